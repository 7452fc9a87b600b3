# Rows 30, 31, 32, 34, 36, 37, 38, 39, 41, 43 and 45: TLS. Argument: JSON {"suffix": random}. Rules: allowed.example:443,
# *.wild.example:443, tcp.example:8443 TCP, api.allowed.example:443 HTTPS with GET and /ok; unvouched and misnamed.wild.example HTTPS.
suffix = json.loads(sys.argv[1])["suffix"]

seen = reach("allowed.example")
twin(30, "the allowed host by the address of DNS", seen.get("sni") == "allowed.example" and seen.get("place") == "203.0.113.7:443", short(seen))
attack(30, "the evil host at the gateway's address", cut(first(hello("evil.example"))))
for address in ["203.0.113.9", "203.0.113.8", "203.0.113.7", "198.51.100.7"]:
    if TARGET:
        answer = connect(f"{address}:443")
        attack(30, f"an allowed name sent to {address}", refused_by(answer), short(answer))
        continue
    try:
        with socket.create_connection((address, 443), 1.5) as stream:
            attack(30, f"an allowed name sent to {address}", False, first(hello("allowed.example"), stream))
    except OSError as error:
        attack(30, f"an allowed name sent to {address}", True, type(error).__name__)

seen = through("allowed.example:443", "allowed.example")
twin(31, "CONNECT and SNI agree", seen.get("place") == "203.0.113.7:443", short(seen))
for target, name in [("allowed.example", "evil.example"), ("allowed.example", f"a-{suffix}.wild.example"),
                     (f"a-{suffix}.wild.example", "allowed.example"), ("allowed.example", "xallowed.example")]:
    answer, stream = tunnel(f"{target}:443")
    got = first(hello(name), stream)
    attack(31, f"CONNECT {target} and SNI {name}", cut(got), f"{status(answer)} {got!r}")
data = b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n"
got = say(3128, data + hello("evil.example"), patience=8)
if TARGET and not TARGET["connect"]:
    NotOffered()
inner = got.partition(b"\r\n\r\n")[2]
attack(31, "the hello with the CONNECT in one packet", cut(inner) if TARGET else inner == DENIED, got[-40:])
answer, stream = tunnel("allowed.example:443", b"Host: evil.example:443\r\n")
# A proxy may also do what its first line says, and not ask the field.
followed = TARGET and sealed_in(stream, "allowed.example").get("place") in ("203.0.113.7:443", None)
attack(31, "CONNECT and its Host field differ", refused_by(answer, "AuthorityMismatch") or followed, short(answer))
stream.close()

for name, what in [(None, "no name"), ("203.0.113.7", "an address"), ("203.0.113.9", "the evil address"), ("2001:db8::7", "an IPv6 address")]:
    attack(32, f"a hello with {what}", cut(first(hello(name))))
    answer, stream = tunnel("allowed.example:443")
    attack(32, f"the same in a tunnel: {what}", cut(first(hello(name), stream)))
good = hello("allowed.example")
two = handshake(good).replace(b"allowed.example", b"evil.example\0\0\0")
attack(32, "a name with NULs behind", peeked(records(two))[:1] != HELLO)
doubled = handshake(good, extension(0, struct.pack(">HBH", 15, 0, 12) + b"evil.example"))
attack(32, "two names in two extensions", peeked(records(doubled))[:1] != HELLO)

twin(34, "a hello byte by byte", peeked(good, dribble=1)[:1] == HELLO)
twin(34, "a hello in many records", peeked(records(handshake(good), 40))[:1] == HELLO)
bad = hello("evil.example")
attack(34, "the evil hello byte by byte", cut(peeked(bad, dribble=1)))
attack(34, "the evil hello in many records", cut(peeked(records(handshake(bad), 7))))


def dripped():
    if TARGET and not TARGET["tls"]:
        return tunnel("allowed.example:443")[1]
    return dial(443, patience=20)


started = time.monotonic()
with dripped() as stream:
    try:
        for byte in good:
            stream.sendall(bytes([byte]))
            time.sleep(0.1)
            if time.monotonic() - started > 15:
                break
    except OSError:
        pass
    got = drain(stream)
took = time.monotonic() - started
attack(34, "a hello that drips is given up in time", got[:1] != HELLO and took < 14, f"{took:.1f} s {got[:7]!r}")

for size in [1490, 1911, 16000, 40000, 60 * 1024]:
    filler = b"".join(extension(0xff10 + at, b"\0" * min(30000, size - at * 30000)) for at in range(-(-size // 30000)))
    twin(36, f"a hello of {size} bytes more", peeked(records(handshake(good, filler)))[:1] == HELLO)
    attack(36, f"the evil one with {size} bytes more", cut(peeked(records(handshake(bad, filler)))))
endless = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"\0" * 16380
got = peeked(endless + (b"\x16\x03\x01\x40\x00" + b"\0" * 16384) * 20)
attack(36, "a hello without end", got[:1] != HELLO, got)
grease = b"".join(extension(value << 8 | value, b"\0") for value in [0x0a, 0x1a, 0x5a, 0xfa])
twin(37, "values that mean nothing (GREASE)", peeked(records(handshake(good, grease)))[:1] == HELLO)
attack(37, "the same in the evil hello", cut(peeked(records(handshake(bad, grease)))))
# An outer hello that carries an encrypted one: what is seen outside decides.
sealed = extension(0xfe0d, b"\0" + struct.pack(">HHB", 1, 1, 7) + struct.pack(">H", 32) + os.urandom(32) + struct.pack(">H", 144) + os.urandom(144))
twin(38, "an encrypted hello that means nothing, behind an allowed name", peeked(records(handshake(good, sealed)))[:1] == HELLO)
for name in ["evil.example", "cloudflare-ech.com", "cover.defo.ie"]:
    attack(38, f"an encrypted hello behind {name}", cut(peeked(records(handshake(hello(name), sealed)))))
    attack(38, f"CONNECT {name}", refused_by(connect(f"{name}:443")))

early = f"GET /early-{suffix} HTTP/1.1\r\nHost: allowed.example\r\n\r\n".encode()
attack(41, "bytes behind an evil hello", cut(peeked(bad + early)))
answer, stream = tunnel("allowed.example:443")
attack(41, "bytes behind an evil hello in a tunnel", cut(first(bad + early, stream)))
twin(41, "a hello and no more", peeked(good)[:1] == HELLO)

for what, data in [("SSH", b"SSH-2.0-OpenSSH_9.9\r\n"), ("HTTP", early), ("SMTP", b"EHLO x\r\nSTARTTLS\r\n"), ("a shell", b"id; uname -a\n"),
                   ("Postgres", b"\0\0\0\x08\x04\xd2\x16\x2f"), ("zeros", b"\0" * 64), ("SSLv2", b"\x80\x2e\x01\x03\x01" + b"\0" * 41),
                   ("junk", os.urandom(256).replace(b"\x16", b"\x17")), ("an alert", DENIED), ("a record of nothing", b"\x16\x03\x01\x00\x00"),
                   ("a server's hello", b"\x16\x03\x03\x00\x04\x02\x00\x00\x00"), ("a length that lies", b"\x16\x03\x01\x00\x08\x01\x00\x00\x04abcd")]:
    got = first(data)
    attack(43, f"{what} on the TLS port", dropped(got), got)
    answer, stream = tunnel("allowed.example:443")
    if TARGET:
        # Each has a patience of its own; this is more than the gateway's.
        stream.settimeout(16)
    got = first(data, stream)
    attack(43, f"{what} in a tunnel", dropped(got), f"{status(answer)} {got!r}")

if TARGET:
    answer, stream = tunnel("tcp.example:8443")
    got = first(b"\x01bytes\n", stream)
    twin(43, "any bytes under a rule with protocol TCP", got == b"\x01bytes\n", f"{short(answer)} {got!r}")
    # The rest is of hosts whose TLS is opened.
    finish()
    sys.exit()

# Hosts whose requests are judged: the gateway opens TLS in their names, and proves itself to whom the sandbox's variables tell.
secret = f"secret-{suffix}"
API = "api.allowed.example"
TRUSTING = ssl.create_default_context()


def opened(path, host=API, method="GET", name=API, context=TRUSTING):
    try:
        with context.wrap_socket(dial(443), server_hostname=name) as stream:
            stream.sendall(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return drain(stream)
    except OSError as error:
        return f"!{type(error).__name__}: {error}".encode()


def told(answer, code, reason):
    return status(answer) == code and body(answer).get("reason") == reason and "place" not in body(answer)


answer = opened("/ok")
twin(39, "a request for the host of the hello", body(answer).get("sni") == API and body(answer).get("host") == API, short(answer))
for host in ["evil.example", "allowed.example", "unvouched.wild.example", f"{API}:444"]:
    answer = opened(f"/ok?{secret}", host)
    attack(39, f"a request for {host}, opened", told(answer, 421, "OpenedMismatch"), short(answer))
for name in ["unvouched.wild.example", "misnamed.wild.example"]:
    answer = opened(f"/ok?{secret}", name, name=name)
    attack(45, f"{name}, opened", told(answer, 502, "Untrusted"), short(answer))
answer, stream = tunnel(f"{API}:443")
with stream, TRUSTING.wrap_socket(stream, server_hostname=API) as stream:
    seen = fetch(stream, API)
twin(45, "a host that proves itself, in a tunnel and verified", seen.get("place") == "203.0.113.7:443", short(seen))
answer = opened(f"/ok?{secret}", context=ssl.create_default_context(cafile="/etc/ssl/certs/ca-certificates.crt"))
attack(45, "a client that trusts the image's authorities alone is not passed through", b"CERTIFICATE_VERIFY_FAILED" in answer, answer[:80])
for method, path in [("DELETE", f"/ok?{secret}"), ("GET", f"/{secret}"), ("GET", f"/ok/../{secret}")]:
    answer = opened(path, method=method)
    attack(58, f"{method} {path}, opened", status(answer) == 403 and "place" not in body(answer), short(answer))
seen = through(f"{API}:443", API, f"/{secret}")
attack(58, "the same in a tunnel", seen.get("reason") == "RequestNotAllowed", short(seen))
answer, stream = tunnel("tcp.example:8443")
with stream:
    stream.sendall(b"\x01any bytes\n")
    got = stream.recv(64)
twin(43, "any bytes under a rule with protocol TCP", got == b"\x01any bytes\n", f"{short(answer)} {got!r}")
finish()
