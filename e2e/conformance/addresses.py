# Rows 6, 8, 10, 12, 13, 14, 15, 16, 24 and 38: addresses in every spelling, wildcards' borders, names that lie, names that are
# always denied. Argument: JSON {"cluster": [addresses of the cluster], "suffix": random}. Rules: web.example:80 HTTP,
# allowed.example:443, *.wild.example:443, *.bad.example:443, *.aliases.example:443, **.opendns.com:443,
# **.defo.ie:443.
told = json.loads(sys.argv[1])


def entries(host):
    """Every entry that takes a host and a port: CONNECT on both ports, whole URI, Host."""
    yield "CONNECT :443", connect(f"{host}:443")
    yield "CONNECT :80", connect(f"{host}:80")
    yield "whole URI", plain(f"GET http://{host}/ok HTTP/1.1\r\nHost: {host}\r\n\r\n", 3128)
    if not TARGET:
        yield "Host", get(host)


def everywhere(row, what, host, reasons=()):
    for entry, answer in entries(host):
        attack(row, f"{what} {host} by {entry}", denied(answer, *reasons), short(answer))


twin(8, "the name by CONNECT", "place" in through("allowed.example:443", "allowed.example"))
twin(8, "the name by Host", status(get("web.example")) == 200)
for host in ["203.0.113.7", "203.0.113.9", "3405803783", "0xcb007107", "0xcb.0x00.0x71.0x07", "0313.0.0161.7", "203.0.28935",
             "203.28935", "203.0.113.07", "203.0.113.7.", "[2001:db8::7]"]:
    everywhere(8, "address", host)
ways = {"mapped": "::ffff:{0}", "mapped, in hex": "::ffff:{1}", "compatible": "::{0}", "compatible, in hex": "::{1}",
        "translated": "::ffff:0:{0}", "NAT64": "64:ff9b::{0}", "NAT64, in hex": "64:ff9b::{1}", "local NAT64": "64:ff9b:1::{0}",
        "6to4": "2002:{1}::1", "Teredo": "2001:0:{1}::1", "ISATAP": "2001:db8::5efe:{0}", "ISATAP, global": "2001:db8::200:5efe:{0}"}
for address in ["169.254.169.254", "10.0.0.1", "10.0.0.7", "203.0.113.9", "127.0.0.1"]:
    octets = [int(part) for part in address.split(".")]
    in_hex = f"{octets[0] << 8 | octets[1]:x}:{octets[2] << 8 | octets[3]:x}"
    for way, form in ways.items():
        everywhere(10, way, f"[{form.format(address, in_hex)}]")
for host in ["0.0.0.0", "0", "0.0", "[::]", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "[::1]",
             "[0:0:0:0:0:0:0:1]", "224.0.0.1", "[ff02::1]", "255.255.255.255", "240.0.0.1", "localhost", "localhost.localdomain",
             "[fe80::1%25eth0]", "[fe80::1]", "[fec0::1]", "[100::1]"]:
    everywhere(12, "this host and reserved", host)
for host in ["169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16",
             "192.0.0.192", "[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
             "169.254.43518", "metadata.google.internal", "metadata", "instance-data", "instance-data.ec2.internal", "metadata.goog"]:
    everywhere(13, "metadata", host)
for host in ["169.254.169.254", "metadata.google.internal"]:
    answer = connect(f"{host}:80")
    attack(13, f"{host} is refused for what it is", refused_by(answer, "MetadataAddress", "MetadataName"), short(answer))

# Names that may be reached and lead where nothing may: the answers are checked, not the names alone.
for row, name in [(13, "metadata"), (14, "private"), (14, "pod"), (14, "service"), (14, "node"), (12, "loopback"), (10, "nat64")]:
    name = f"{name}.bad.example"
    answer = connect(f"{name}:443")
    attack(row, f"{name} leads where nothing may, by CONNECT", refused_by(answer, "NoUsableAddress"), short(answer))
    got = first(hello(name))
    attack(row, f"{name} leads where nothing may, by SNI", cut(got) if TARGET else got == INTERNAL, got)
twin(14, "a name whose answer is good", status(connect("allowed.example:443")) == 200)
for name in ["mixed", "mixed-metadata"]:
    for _ in range(6):
        seen = through(f"{name}.bad.example:443", f"{name}.bad.example")
        # A target may refuse what is mixed.
        held = seen.get("place") in ("203.0.113.7:443", None) if TARGET else seen.get("place") == "203.0.113.7:443"
        attack(14, f"of {name}.bad.example the good answer alone is dialled", held, short(seen))
seen = reach("hops3.aliases.example")
twin(16, "an alias of an alias of an alias", "place" in seen, short(seen))
answer = connect("hops9.aliases.example:443")
if TARGET:
    # How many are too many is nobody's law.
    NotOffered()
attack(16, "nine aliases in a row", refused_by(answer, "TooManyAliases", "ResolverFailed", "NameNotFound"), short(answer))

for address in [GATE, *told["cluster"]]:
    for port in [53, 80, 443, 3128, 5353, 6443, 8080, 8443, 9090, 9099, 10250]:
        answer = connect(f"{address}:{port}")
        attack(15, f"the cluster's {address}:{port} by CONNECT", refused_by(answer), short(answer))
for host in ["kubernetes.default.svc.cluster.local", "kubernetes.default.svc", "kubernetes", "glovebox-gateway",
             "glovebox-gateway.glovebox-system", "glovebox-gateway.glovebox-system.svc.cluster.local", "node0", "node0.local"]:
    everywhere(15, "the cluster's names", host)

suffix = told["suffix"]
for row, name, wanted in [(6, "wild.example", False), (6, f"a-{suffix}.wild.example", True), (6, "a.b.wild.example", False),
                          (6, "evilwild.example", False), (6, "wild.example.evil.example", False), (6, ".wild.example", False),
                          (6, "a..wild.example", False), (6, "*.wild.example", False), (6, "-.wild.example.x", False)]:
    answer = connect(f"{name}:443")
    if wanted:
        twin(row, f"{name} is under the wildcard", status(answer) == 200, short(answer))
        twin(row, f"{name} is reached by SNI", "place" in reach(name), short(reach(name)))
    else:
        attack(row, f"{name} is not under the wildcard", refused_by(answer), short(answer))

# Rules of the sandbox take **.opendns.com and **.defo.ie in: even so.
answer = connect("api.opendns.com:443")
# For a target these names are there, so that a refusal is no failed lookup.
allowed = status(answer) == 200 if TARGET else refused_by(answer, "NameNotFound", "ResolverFailed")
twin(24, "another name under the wildcard is allowed, and not found", allowed, short(answer))
for row, host, reason in [(24, "doh.opendns.com", "DnsOverHttps"), (24, "dns.google", "DnsOverHttps"),
                          (24, "mozilla.cloudflare-dns.com", "DnsOverHttps"), (38, "cover.defo.ie", "EchPublicName"),
                          (38, "cloudflare-ech.com", "EchPublicName")]:
    answer = connect(f"{host}:443")
    attack(row, f"{host} by CONNECT", refused_by(answer, reason), short(answer))
    attack(row, f"{host} by SNI", cut(first(hello(host))))
    attack(row, f"{host} by DNS", rcode(resolve(host)) == 3)
finish()
