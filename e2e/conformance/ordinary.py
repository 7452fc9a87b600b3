# Ordinary tools with their ordinary settings: what is allowed works by the proxy variables and without them, and what is not
# fails. Argument: JSON {"certificate": PEM}.

CA = "/tmp/world.pem"
with open(CA, "w") as file:
    file.write(json.loads(sys.argv[1])["certificate"])
TRUST = {"CURL_CA_BUNDLE": CA, "SSL_CERT_FILE": CA, "GIT_SSL_CAINFO": CA, "NODE_EXTRA_CA_CERTS": CA, "PIP_CERT": CA, "REQUESTS_CA_BUNDLE": CA,
         "GIT_TERMINAL_PROMPT": "0"}
WITH = {**os.environ, **TRUST}
if TARGET:
    WITH = {name: value for name, value in WITH.items() if not name.lower().endswith("_proxy")}
    WITH |= {name: "http://{}:{}".format(*TARGET["proxy"]) for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
WITHOUT = {name: value for name, value in WITH.items() if not name.lower().endswith("_proxy")}


URLLIB = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=8).read().decode())"
NODE = "fetch(process.argv[1]).then(a => a.text()).then(console.log).catch(e => { console.error(e.cause || e); process.exit(1) })"
tools = {
    "curl": (["curl", "-sS", "-m", "10", "https://HOST/ok"], '"sni":"HOST"', True),
    "python": (["python3", "-c", URLLIB, "https://HOST/ok"], '"sni":"HOST"', True),
    "git": (["git", "ls-remote", "https://HOST/repo.git"], "refs/heads/main", True),
    "pip": (["pip", "index", "versions", "tiny", "--index-url", "https://HOST/simple/", "--retries", "0", "--timeout", "8"], "tiny (1.0)", False),
    "npm": (["npm", "ping", "--registry", "https://HOST/", "--cafile", CA, "--fetch-retries", "0"], "", False),
    "node": (["node", "-e", NODE, "https://HOST/ok"], '"sni":"HOST"', False),
}
if TARGET:
    # Those that heed nothing but their environment, of this machine and not of the tools image.
    tools = {tool: (*tools[tool][:2], False) for tool in ("curl", "python", "git") if shutil.which(tools[tool][0][0])}
    if not TARGET["connect"]:
        tools = {}
for tool, (command, wanted, both) in tools.items():
    for how, env in [("with the proxy variables", WITH)] + [("without them", WITHOUT)] * both:
        code, said = run([word.replace("HOST", "allowed.example") for word in command], env)
        works = code == 0 and wanted.replace("HOST", "allowed.example") in said
        twin(46, f"{tool} {how}", works, f"{code} {said[-400:]!r}")
        code, said = run([word.replace("HOST", "evil.example") for word in command], env)
        attack(46, f"{tool} to the evil host {how}", code not in (0, "no end") and "refs/heads" not in said, f"{code} {said[-200:]!r}")
for how, options in [("as a whole URI", []), ("by DNS", ["--noproxy", "*"])][:1 if TARGET else 2]:
    code, said = run(["curl", "-sS", "-m", "10", *options, "http://web.example/ok"], WITH)
    twin(48, f"curl without TLS {how}", code == 0 and '"host":"web.example"' in said, f"{code} {said!r}")
    code, said = run(["curl", "-sS", "-m", "10", *options, "http://evil.example/ok"], WITH)
    attack(48, f"curl without TLS to the evil host {how}", code != 0 or '"NoRule"' in said or TARGET and '"place"' not in said, f"{code} {said!r}")
if TARGET:
    finish()
    sys.exit()
code, said = run(["curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_connect}", "https://evil.example/"], WITH)
attack(46, "curl is told 403", code != 0 and "403" in said, f"{code} {said!r}")
for what, options in [("--resolve", ["--resolve", f"evil.example:443:{GATE}", "https://evil.example/"]),
                      ("--connect-to the gateway", ["--connect-to", f"evil.example:443:{GATE}:443", "https://evil.example/"]),
                      ("--connect-to the evil address", ["--connect-to", "allowed.example:443:203.0.113.9:443", "https://allowed.example/"])]:
    code, said = run(["curl", "-sSk", "-m", "6", "--noproxy", "*", *options], WITH)
    attack(30, f"curl {what}", code != 0, f"{code} {said!r}")
code, said = run(["curl", "-sSk", "-m", "8", "--doh-url", "https://dns.google/dns-query", "--noproxy", "*", "https://evil.example/"], WITH)
attack(24, "curl --doh-url", code != 0, f"{code} {said!r}")
finish()
