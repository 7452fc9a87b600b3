# A program that knows no proxy: its host by name, at the host's own port; and ports that stand for other sandboxes' hosts.
given = json.loads(sys.argv[1])
for variable in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[variable]
WORDS = b"\x01any bytes\n"


def speak(address, port):
    try:
        with dial(port, address) as stream:
            stream.sendall(WORDS)
            return stream.recv(64)
    except OSError as error:
        return f"!{type(error).__name__}".encode()


# The name may have been looked up before its address was made: answers hold for 10 s.
deadline = time.monotonic() + 30
while True:
    try:
        address = socket.gethostbyname(given["host"])
        seen = speak(address, given["port"])
    except OSError as error:
        address, seen = None, str(error).encode()
    if seen == WORDS or time.monotonic() > deadline:
        break
    time.sleep(0.5)
twin(76, f"{given['host']}:{given['port']} by name, without a proxy", seen == WORDS and address != GATE, f"{address} {seen!r}")
if given.get("tls"):
    found = reach(given["host"], host=address)
    twin(76, "TLS at the same address", "place" in found, short(found))
answer = ask(question(given["host"], 28))
twin(76, "no address of another family", rcode(answer) == 0 and answers(answer) == 0, repr(answer))
for place in given["others"]:
    host, port = place.rsplit(":", 1)
    seen = speak(host, int(port))
    attack(76, f"{place}, which stands for another's host", seen != WORDS, repr(seen))
if given.get("foreign"):
    found = resolve(given["foreign"])
    attack(76, f"the name {given['foreign']}, which no rule allows here", rcode(found) == 3 and answers(found) == 0, repr(found))
finish()
