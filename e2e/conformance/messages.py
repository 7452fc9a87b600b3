# What a refusal says to whom it meets. No argument.
answer = connect("evil.example:443")
found = body(answer)
attack(46, "CONNECT is answered 403", status(answer) == 403, answer[:300])
wanted = {"layer": "connect", "host": "evil.example", "port": 443, "reason": "NoRule", "ruleMissing": True}
for field, value in wanted.items():
    holds(f"#46 twin the answer's {field} is {value!r}", found.get(field) == value, repr(found))
holds("#46 twin the answer says how to ask", "spec.egress.allow" in found.get("howToAsk", ""), repr(found))
holds("#46 twin the answer has an id", len(found.get("requestId", "")) > 16, repr(found))
found = body(get("evil.example"))
holds("#48 twin HTTP's answer says as much", (found.get("layer"), found.get("host"), found.get("reason")) == ("http", "evil.example", "NoRule"), repr(found))
found = body(plain("GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 3128))
holds("#48 twin so does the proxy's", (found.get("layer"), found.get("host"), found.get("reason")) == ("absolute", "evil.example", "NoRule"), repr(found))
found = body(get("web.example", "/other"))
holds("#58 twin a request that is not allowed names its rule", (found.get("reason"), found.get("rule")) == ("RequestNotAllowed", "web"), repr(found))
reply = resolve("evil.example")
holds("#18 twin DNS says why and how to ask", b"NoRule" in reply and b"spec.egress.allow" in reply, repr(reply))
attack(30, "TLS is told by an alert", first(hello("evil.example")) == DENIED)
for _ in range(5):
    connect("allowed.example:22")
finish()
