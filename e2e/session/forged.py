# From inside: the agent's port is there, and takes nothing from whom the session did not sign.
import struct
import secrets

uid = next(word for word in open("/proc/1/cmdline").read().split("\0") if len(word) == 36 and word.count("-") == 4) if os.access("/proc/1/cmdline", os.R_OK) else "0" * 36


def frame(kind, payload):
    return bytes([kind]) + struct.pack(">I", len(payload)) + payload


def ask(*frames):
    """What the agent says, until it hangs up."""
    with socket.create_connection(("127.0.0.1", 13443), timeout=20) as agent:
        said = b""
        try:
            for one in frames:
                agent.sendall(one)
            while piece := agent.recv(4096):
                said += piece
        except OSError:
            pass
        return said


request = json.dumps({"id": "a", "command": ["touch", "/workspace/forged"], "timeoutMs": 1000, "maxOutputBytes": 1}).encode()
for what, frames in {
    "no signature": [frame(16, bytes(64) + request)],
    "a signature that is none": [frame(16, secrets.token_bytes(64) + request)],
    "a short frame": [frame(16, b"x")],
    "a long frame": [b"\x10\x7f\xff\xff\xff"],
    "a frame of no kind": [b"\0\0\0\0\0"],
    "an agent's own frame": [frame(5, b"{}")],
    "plain words": [b"GET / HTTP/1.1\r\n\r\n"],
    "input before anything": [frame(17, b"x")],
}.items():
    said = ask(*frames)
    # A nonce of 32 bytes, and at most a refusal: no word that something runs.
    holds(what, said[:5] == b"\x01\0\0\0\x20" and (len(said) == 37 or said[37] == 6), said[:64])
low = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
holds("no outgoing connection is given the agent's port", low > 13443, low)
many = []
try:
    for _ in range(600):
        one = socket.socket()
        one.settimeout(2)
        one.connect(("127.0.0.1", 13443))
        many.append(one)
except OSError:
    pass
print("figure: connections held open from inside:", len(many))
holds("nothing was run", not os.path.exists("/workspace/forged"))
print("attempts", attempts, flush=True)
if "hold" in sys.argv:
    time.sleep(30)
