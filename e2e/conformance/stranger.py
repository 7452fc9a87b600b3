# Row 56: the gateway from a pod that is no sandbox. Argument: JSON {"gateway": address, "pods": [addresses of its pods]}.
told = json.loads(sys.argv[1])


def tried(host, port, data):
    try:
        with socket.create_connection((host, port), 3) as stream:
            stream.settimeout(12)
            stream.sendall(data)
            got = b""
            while more := stream.recv(4096):
                got += more
            return got
    except OSError as error:
        return f"!{type(error).__name__}".encode()


for host, web, proxy in [(told["gateway"], 80, 3128)] + [(pod, 8080, 3128) for pod in told["pods"]]:
    for what, port, data in [("HTTP", web, b"GET /ok HTTP/1.1\r\nHost: web.example\r\nX-Forwarded-For: 10.244.0.9\r\n\r\n"),
                             ("CONNECT", proxy, b"CONNECT allowed.example:443 HTTP/1.1\r\nProxy-Authorization: Basic eDp4\r\n\r\n"),
                             ("a whole URI", proxy, b"GET http://web.example/ok HTTP/1.1\r\nHost: web.example\r\n\r\n")]:
        got = tried(host, port, data)
        held = got.startswith(b"!") or b"UnknownSource" in got
        holds(f"#56 attack {what} at {host}:{port} from a pod that is no sandbox", held, repr(got[:200]))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.settimeout(8)
    probe.connect((told["gateway"], 53))
    try:
        probe.send(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x07allowed\x07example\0\0\1\0\1")
        reply = probe.recv(512)
        held = reply[3] & 15 == 5 and reply[6:8] == b"\0\0"
    except OSError as error:
        reply, held = type(error).__name__, True
    holds("#56 attack DNS from a pod that is no sandbox", held, repr(reply))
finish()
