# Rows 1, 2, 3 and 7: spellings of hosts, at every entry. Rules: web.example:80 HTTP, allowed.example:443, *.wild.example:443.


def entries(host):
    """The answers of CONNECT, a whole URI and the Host field to a host. A target takes CONNECT to port 443 alone, and no bare Host."""
    target = host + b":80"
    field = b" HTTP/1.1\r\nHost: " + target + b"\r\n\r\n"
    answers = [connect(host + b":443" if TARGET else target)] if not TARGET or TARGET["connect"] else []
    answers.append(plain(b"GET http://" + target + b"/ok" + field, 3128))
    return answers if TARGET else answers + [plain(b"GET /ok" + field)]


def taken(host):
    """Whether each of them takes a host for web.example."""
    return [status(answer) for answer in entries(host)]


def passed(host):
    """The same, for a host that is none: a target may put it right, and go where the rules lead."""
    return [status(answer) == 200 and not (TARGET and harmless(answer)) for answer in entries(host)]


def works(host):
    return set(taken(host)) == {200}


def sealed(name):
    """Whether the TLS entry takes bytes in a hello for a name that may be reached. A target's is another row's."""
    if TARGET:
        NotOffered()
        return False
    stand_in = "x" * len(name)
    data = hello(stand_in).replace(stand_in.encode(), name)
    return first(data)[:1] == b"\x16"


def known(labels):
    reply = ask(question(labels))
    return reply is not None and rcode(reply) == 0 and answers(reply) > 0


twin(1, "CONNECT, whole URI and Host take the name itself", works(b"web.example"), taken(b"web.example"))
twin(1, "SNI takes the name itself", sealed(b"allowed.example"))
twin(1, "DNS takes the name itself", known([b"allowed", b"example"]))
for number in range(256):
    byte = bytes([number])
    for at, host in enumerate([byte + b"web.example", b"we" + byte + b"b.example", b"web.example" + byte]):
        got = passed(host)
        # A dot behind is the one honest spelling that is not the name itself; white space before a field's value is no part of it.
        want = [True] * 3 if (at, byte) == (2, b".") else [False, False, at == 0 and byte in b" \t"]
        if not TARGET:
            attack(1, f"byte {number:#04x} in place {at} of a host", got == want, f"{host!r} {got}")
        elif (at, byte) != (2, b"."):
            attack(1, f"byte {number:#04x} in place {at} of a host", not any(got), f"{host!r} {got}")
    # A name in TLS or DNS chooses where to only for who steers by it.
    if TARGET:
        continue
    for at, host in enumerate([byte + b"allowed.example", b"allo" + byte + b"wed.example", b"allowed.example" + byte]):
        if (at, byte) != (2, b"."):
            attack(1, f"byte {number:#04x} in place {at} of SNI", not sealed(host), repr(host))
    for at, label in enumerate([byte + b"allowed", b"allo" + byte + b"wed", b"allowed" + byte]):
        attack(1, f"byte {number:#04x} in place {at} of a DNS label", not known([label, b"example"]), repr(label))
    attack(1, f"byte {number:#04x} for the dot in a DNS name", not known([b"allowed" + byte + b"example"]))

for host in [b"WEB.EXAMPLE", b"wEb.eXaMpLe"]:
    twin(2, "case means nothing where it is allowed", works(host), repr(host))
for host in [b"EVIL.EXAMPLE", b"eViL.example"]:
    attack(2, "case means nothing where it is denied", not any(passed(host)), repr(host))
    attack(2, "nor in SNI", not sealed(host), repr(host))
    attack(2, "nor in DNS", not known(host.split(b".")), repr(host))
twin(2, "case in SNI", sealed(b"Allowed.Example"))
twin(2, "case in DNS", known([b"AlLoWeD", b"eXaMpLe"]))
twin(3, "one dot behind", works(b"web.example."))
for host in [b"web.example..", b".web.example", b"web..example", b".", b"..", b"evil.example.", b"web.example...:80"]:
    got = passed(host)
    attack(3, "dots", not any(got), f"{host!r} {got}")
for host in [b"allowed.example..", b".allowed.example", b"allowed..example", b"evil.example."]:
    attack(3, "dots in SNI", not sealed(host), repr(host))
for host in [b"xweb.example", b"web.examplex", b"web.example.evil.example", b"evil.example\\@web.example",
             b"evil.example@web.example", b"web.example@evil.example", b"web.example:80", b"[web.example]", b"web.example#",
             b"web.example/", b"web.example?", b"web%2eexample", b"web.example%00", b"web.example%00.evil.example",
             b"web.example\x00.evil.example", b"web.example%20", b"web.example%0d%0a", "web.example\u3002".encode(),
             "w\u0435b.example".encode(), "\uff57eb.example".encode(), b"xn--web-.example", b"-web.example", b"*.example", b"*",
             b"*.wild.example", b"a" * 64 + b".wild.example", b"a." * 130 + b"example", b"example", b""]:
    got = passed(host)
    attack(7, "what looks like the name and is another", not any(got), f"{host[:60]!r} {got}")
for host in [b"notallowed.example", b"allowed.example.evil.example", b"allowed.examples", b"xallowed.example", b"sub.allowed.example"]:
    attack(7, "the same in SNI", not sealed(host), repr(host))
    attack(7, "the same in DNS", not known(host.split(b".")), repr(host))
finish()
