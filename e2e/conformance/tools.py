# What each attack on the gateway begins with. A line names the row of the conformance table and what it is: an attack, which must
# come to nothing, or its honest twin, which must work, so that a refusal is no accident.
#
# The same attacks judge any other proxy: then the argument has {"target": {"proxy": [host, port], "tls": [host, port] or null,
# "connect": whether it takes CONNECT}}. What is asked of an entry that it has not is reported as `none` and counts for nothing.
import random
import re
import ssl
import struct
import subprocess
import threading

TARGET = json.loads(sys.argv[1]).get("target") if sys.argv[1:] and sys.argv[1].startswith("{") else None
with open("/etc/resolv.conf") as file:
    GATE = TARGET["proxy"][0] if TARGET else next(line.split()[1] for line in file if line.startswith("nameserver"))
DENIED = b"\x15\x03\x03\x00\x02\x02\x31"  # TLS alert access_denied
INTERNAL = b"\x15\x03\x03\x00\x02\x02\x50"  # TLS alert internal_error
HELLO = b"\x16"
PACE = 1 / 120
_next = [0.0]
# Whom one speaks with is not the question here; `ordinary.py` verifies.
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE


_absent = [False]
_rows = {"attack": set(), "twin": set()}


class NotOffered(OSError):
    """The target has no such entry. The attempt that needed it is the next that is reported."""

    def __init__(self):
        super().__init__("not offered")
        _absent[0] = True


def tell(row, kind, what, good, detail):
    absent, _absent[0] = _absent[0], False
    if absent:
        print("none", f"#{row} {kind} {what}", flush=True)
    else:
        _rows[kind].add(row)
        holds(f"#{row} {kind} {what}", good, detail)


def attack(row, what, held, detail="", token=None):
    """With a token, the attack has not held if a request with that text in it arrived outside: seen there, not here."""
    tell(row, "attack", f"[{token}] {what}" if token else what, held, detail)


def twin(row, what, works, detail=""):
    tell(row, "twin", what, works, detail)


def finish():
    """A row without a twin of its own has this one against a target: who refuses everything holds nothing."""
    for row in sorted(_rows["attack"] - _rows["twin"]) if TARGET else []:
        seen = [through("allowed.example:443", "allowed.example")] if TARGET["connect"] else []
        seen += [reach("allowed.example")] if TARGET["tls"] else []
        seen.append(body(get("web.example")))
        twin(row, "afterwards what is allowed is reached", all("place" in one for one in seen), seen)
    print("attempts", attempts, flush=True)


def pace():
    """Slower than the gateway's limit of new connections, which would refuse for a reason of its own."""
    wait = _next[0] - time.monotonic()
    if wait > 0:
        time.sleep(wait)
    _next[0] = max(time.monotonic(), _next[0]) + PACE


def dial(port, host=None, patience=8):
    pace()
    place = (host or GATE, port)
    if TARGET and host is None:
        entry = {3128: "proxy", 443: "tls"}.get(port)
        if not TARGET.get(entry):
            raise NotOffered
        place = tuple(TARGET[entry])
    stream = socket.create_connection(place, patience)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def drain(stream, most=1 << 18, until=None, step=65536, linger=None):
    """What comes until the end, a reset, a silence, or what is waited for. A target may keep the connection: its answer ends where it
    says, or so many seconds later."""
    got = b""
    try:
        while len(got) < most and not (until and until in got):
            if TARGET and whole(got):
                if not linger:
                    break
                stream.settimeout(linger)
            more = stream.recv(step)
            if not more:
                break
            got += more
    except OSError:
        pass
    return got


def whole(answer):
    """Whether an answer of HTTP is complete."""
    top, end, rest = answer.partition(b"\r\n\r\n")
    length = re.search(rb"\ncontent-length: *(\d+)", top, re.I)
    chunked = re.search(rb"\ntransfer-encoding: *chunked", top, re.I)
    return bool(end) and (len(rest) >= int(length[1]) if length else bool(chunked) and rest.endswith(b"0\r\n\r\n"))


def say(port, data, host=None, patience=8, linger=None):
    """Sends bytes to a port of the gateway; gives what came back."""
    try:
        with dial(port, host, patience) as stream:
            try:
                stream.sendall(data)
            except OSError:
                pass
            return drain(stream, linger=linger)
    except OSError as error:
        return f"!{type(error).__name__}".encode()


def status(answer):
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) > 2 and words[0].startswith(b"HTTP/1.") and words[1].isdigit() else 0


def body(answer):
    """The JSON of an answer: a refusal's, or what the world tells of a request."""
    try:
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])
    except (IndexError, ValueError):
        return {}


def patiently(ask):
    """Asks again while it is one's own haste that is refused."""
    for _ in range(40):
        answer = ask()
        if status(answer) != 429:
            break
        time.sleep(0.25)
    return answer


def raw(data):
    return data if isinstance(data, bytes) else data.encode()


def absolute(data):
    """A request as a proxy takes it: the host of its Host field in its first line."""
    host = re.search(rb"\nhost:[ \t]*([^\r\n]*)", data, re.I)
    return re.sub(rb"^([A-Za-z]+ +)(/)", rb"\1http://" + host[1].replace(b"\\", b"\\\\") + rb"\2", data, count=1) if host else data


def plain(text, port=80, linger=None):
    """A request as it stands, to the transparent port or the proxy's. A target has no transparent one."""
    if TARGET and port == 80:
        text, port = absolute(raw(text)), 3128
    return patiently(lambda: say(port, raw(text), linger=linger))


def get(host, path="/ok", fields="", method="GET"):
    return plain(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n")


def head(stream):
    # Byte by byte: what follows a head belongs to whoever reads next.
    return drain(stream, 65536, b"\r\n\r\n", 1)


def tunnel(target, fields=b""):
    """A CONNECT: the answer, and the connection behind it."""
    if TARGET and not TARGET["connect"]:
        NotOffered()
        dead, other = socket.socketpair()
        other.close()
        return b"", dead
    for _ in range(40):
        stream = dial(3128)
        stream.sendall(b"CONNECT " + raw(target) + b" HTTP/1.1\r\n" + raw(fields) + b"\r\n")
        answer = head(stream)
        if status(answer) != 429:
            break
        stream.close()
        time.sleep(0.25)
    if status(answer) != 200:
        answer += drain(stream)
    return answer, stream


def connect(target, fields=b""):
    """The answer to a CONNECT alone; of a target also what stands behind it."""
    try:
        answer, stream = tunnel(target, fields)
    except OSError as error:
        return f"!{type(error).__name__}".encode()
    with stream:
        return behind(answer, stream, raw(target)) if TARGET and status(answer) == 200 else answer


_own = []


def own_certificate():
    """Whose certificate a target shows behind a CONNECT to a name that nobody has: its own, if it says 200 to all of them."""
    if not _own:
        answer, stream = tunnel("name-that-nobody-has.invalid:443")
        try:
            with stream:
                _own.append(seal(stream, "allowed.example").getpeercert(True) if status(answer) == 200 else None)
        except OSError:
            _own.append(None)
    return _own[0]


def behind(answer, stream, target):
    """Some proxies answer 200 and refuse within. What counts is whether somebody else is there: asked with the target's own name if
    rules take it in, or else with one that they do."""
    host = target.decode("latin-1").rpartition(":")[0].lower().removesuffix(".")
    allowed = re.fullmatch(r"(allowed|web|[a-z0-9-]{1,63}\.(wild|bad|aliases))\.example|([a-z0-9-]{1,63}\.)+(opendns\.com|defo\.ie)", host)
    try:
        stream.settimeout(4)
        with seal(stream, host if allowed else "allowed.example") as sealed:
            if sealed.getpeercert(True) == own_certificate():
                return b"HTTP/1.1 403 within\r\n\r\n{}"
            return answer[:answer.find(b"\r\n\r\n") + 4] + json.dumps(fetch(sealed, host)).encode()
    except TimeoutError:
        # It stands, and whoever is there waits.
        return answer
    except OSError as error:
        return f"HTTP/1.1 502 {type(error).__name__}\r\n\r\n".encode()


def seal(stream, name):
    return CONTEXT.wrap_socket(stream, server_hostname=name)


def fetch(stream, host, path="/ok"):
    """One request on a connection; what the world tells of it."""
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    return body(drain(stream))


def reach(name, path="/ok", host=None):
    """TLS to the address that DNS gives, or to another one; what the world tells, or why nothing. A target is asked by CONNECT
    if it has no port for it."""
    if TARGET and not TARGET["tls"]:
        return through(f"{name}:443", name, path)
    try:
        with seal(dial(443, host), name) as stream:
            return fetch(stream, name, path)
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}"[:120]}


def through(target, name, path="/ok"):
    """TLS in a tunnel."""
    answer, stream = tunnel(target)
    with stream:
        if status(answer) != 200:
            return {"error": f"CONNECT {status(answer)}", **body(answer)}
        return sealed_in(stream, name, path)


def sealed_in(stream, name, path="/ok"):
    """TLS in a tunnel that is open."""
    try:
        with seal(stream, name) as sealed:
            return fetch(sealed, name, path)
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}"[:120]}


def hello(name):
    """The first message of a real client; without a name if there is none."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = CONTEXT.wrap_bio(here, there, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return there.read()


def handshake(record, extensions=b""):
    """The handshake message in a record, with more extensions."""
    content = bytearray(record[9:])
    at = 34
    at += 1 + content[at]
    at += 2 + int.from_bytes(content[at:at + 2], "big")
    at += 1 + content[at]
    length = int.from_bytes(content[at:at + 2], "big") + len(extensions)
    content[at:at + 2] = length.to_bytes(2, "big")
    content += extensions
    return b"\x01" + len(content).to_bytes(3, "big") + bytes(content)


def extension(number, data):
    return struct.pack(">HH", number, len(data)) + data


def records(message, size=16384):
    parts = [message[at:at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in parts)


def first(data, stream=None, dribble=None):
    """Bytes to the transparent TLS port, or into a tunnel; the beginning of what comes back."""
    try:
        stream = stream or dial(443)
        with stream:
            try:
                for at in range(0, len(data), dribble or len(data) or 1):
                    stream.sendall(data[at:at + (dribble or len(data))])
            except OSError:
                pass
            try:
                return stream.recv(7)
            except ConnectionResetError:
                return b""
    except OSError as error:
        return f"!{type(error).__name__}".encode()


def peeked(data, dribble=None):
    """The same where there is a TLS port; else in a tunnel to the allowed host."""
    tunnelled = TARGET and not TARGET["tls"]
    return first(data, tunnel("allowed.example:443")[1] if tunnelled else None, dribble)


def question(name, kind=1, family=1, ident=None, flags=0x0100, count=1, edns=True):
    """A DNS query. A name is text, or a list of labels as bytes."""
    labels = name if isinstance(name, list) else [label.encode() for label in name.split(".") if label]
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    ident = random.randrange(65536) if ident is None else ident
    packet = struct.pack(">6H", ident, flags, count, 0, 0, int(edns)) + wire + struct.pack(">2H", kind, family)
    return packet + (b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b"")


def ask(packet, server=None, port=53, patience=3, tries=2):
    """By UDP; none without an answer. No target answers DNS."""
    if TARGET:
        NotOffered()
        return None
    for _ in range(tries):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.settimeout(patience)
                probe.connect((server or GATE, port))
                probe.send(packet)
                while True:
                    reply = probe.recv(4096)
                    if reply[:2] == packet[:2]:
                        return reply
        except OSError:
            continue
    return None


def rcode(reply):
    return reply[3] & 15 if reply and len(reply) >= 12 else None


def answers(reply):
    return int.from_bytes(reply[6:8], "big") if reply and len(reply) >= 12 else 0


def resolve(name, kind=1, **options):
    return ask(question(name, kind, **options))


def refused_by(answer, *reasons):
    """Not let through, for one of these reasons; a target has reasons of its own."""
    return not 200 <= status(answer) < 400 if TARGET else status(answer) != 200 and (not reasons or body(answer).get("reason") in reasons)


def denied(answer, *reasons):
    """The same by a refusal that says so. A target may also put a request right: what arrived is then what the rules allow."""
    return refused_by(answer) or harmless(answer) if TARGET else status(answer) in (400, 403) and refused_by(answer, *reasons)


def harmless(answer):
    """Whether what a request came to is what the rules allow, whatever was asked."""
    seen = body(answer)
    if seen.get("place") == "203.0.113.7:443":
        return seen.get("sni") in ("allowed.example", "web.example")
    method, path = (seen.get("head", "").split(" ") + ["", ""])[:2]
    right = re.fullmatch(r"/ok(/[A-Za-z0-9_-]+)*(\?.*)?", path) and method in ("GET", "HEAD", "POST")
    return bool(right) and seen.get("place") == "203.0.113.7:80" and seen.get("host") in ("web.example", "web.example:80")


def cut(got):
    """A hello that is refused; by a target, that no server answers."""
    return got[:1] != HELLO if TARGET else got == DENIED


def dropped(got):
    """What is no TLS at all comes to nothing: the connection ends, with an alert or without."""
    return got == b"" or (got[:1] == b"\x15" if TARGET else got == DENIED)


def short(answer):
    found = body(answer) if isinstance(answer, bytes) else answer
    told = {key: found[key] for key in ("reason", "layer", "host", "port", "error", "place", "sni") if key in found}
    return repr((status(answer), told) if isinstance(answer, bytes) else told)[:300]


def run(command, env):
    """How an ordinary program ended, and all that it said."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, timeout=50, text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return "no end", ""
