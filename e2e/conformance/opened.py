# Ordinary tools in a sandbox as it comes: they trust what the gateway opens, what it does not open shows its own certificate,
# and requests beside the rule are refused in words that a program can read.
import urllib.error
import urllib.request

API = "api.allowed.example"
WITH = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
WITHOUT = {name: value for name, value in WITH.items() if not name.lower().endswith("_proxy")}
BOTH = [("with the proxy variables", WITH), ("without them", WITHOUT)]


def certificate(name):
    """What the peer presents, unverified: the names in it are readable bytes."""
    with seal(dial(443), name) as stream:
        return stream.getpeercert(True)


with open(os.environ["SSL_CERT_FILE"]) as file:
    bundle = file.read()
with open(os.environ["NODE_EXTRA_CA_CERTS"]) as file:
    authority = file.read()
count = bundle.count("BEGIN CERTIFICATE")
twin(45, "the sandbox trusts the authority and those of its image", bundle.startswith(authority) and count > 100, count)
twin(45, "what a rule opens shows the gateway's certificate", b"Glovebox egress authority" in certificate(API))
twin(45, "what no rule opens shows the host's own", b"the world's authority" in certificate("allowed.example"))
code, said = run(["curl", "-sS", "-m", "10", "https://allowed.example/ok"], WITH)
attack(45, "a host whose TLS is not opened is not vouched for by the gateway", code == 60, f"{code} {said[-200:]!r}")

URLLIB = """import sys, urllib.error, urllib.request as r
try:
    answer = r.urlopen(sys.argv[1], timeout=8)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())"""
NODE = """fetch(process.argv[1]).then(async a => console.log(a.status, await a.text()))
    .catch(e => { console.error(e.cause || e); process.exit(1) })"""
CURL = ["curl", "-sS", "-m", "10", "-w", "%{http_code} "]
for what, command, ways in [("curl", CURL, BOTH), ("python", ["python3", "-c", URLLIB], BOTH), ("node", ["node", "-e", NODE], BOTH[:1])]:
    for how, env in ways:
        code, said = run([*command, f"https://{API}/ok"], env)
        twin(58, f"{what} {how}", code == 0 and "200 " in said and f'"sni":"{API}"' in said, f"{code} {said[-300:]!r}")
        code, said = run([*command, f"https://{API}/no"], env)
        refused = code == 0 and "403 " in said and '"RequestNotAllowed"' in said and "howToAsk" in said
        attack(58, f"{what} beside the rule {how}", refused, f"{code} {said[-300:]!r}")
for how, env in BOTH:
    code, said = run([*CURL, "--data", "x", f"https://{API}/ok"], env)
    attack(58, f"curl with another method {how}", code == 0 and "403 " in said and '"RequestNotAllowed"' in said, f"{code} {said[-300:]!r}")
    code, said = run(["git", "ls-remote", f"https://{API}/repo.git"], env)
    twin(58, f"git {how}", code == 0 and "refs/heads/main" in said, f"{code} {said[-300:]!r}")
    code, said = run(["git", "ls-remote", f"https://{API}/other.git"], env)
    attack(58, f"git beside the rule {how}", code not in (0, "no end") and "403" in said, f"{code} {said[-300:]!r}")
PIP = ["pip", "index", "versions", "tiny", "--retries", "0", "--timeout", "8", "--index-url"]
code, said = run([*PIP, f"https://{API}/simple/"], WITH)
twin(58, "pip", code == 0 and "tiny (1.0)" in said, f"{code} {said[-300:]!r}")
code, said = run([*PIP, f"https://{API}/elsewhere/"], WITH)
attack(58, "pip beside the rule", code not in (0, "no end"), f"{code} {said[-300:]!r}")
code, said = run(["npm", "ping", "--registry", f"https://{API}/", "--fetch-retries", "0"], WITH)
twin(58, "npm", code == 0, f"{code} {said[-300:]!r}")
REQUESTS = "from pip._vendor import requests; import sys; a = requests.get(sys.argv[1], timeout=8); print(a.status_code, a.text)"
code, said = run(["python3", "-c", REQUESTS, f"https://{API}/ok"], WITH)
twin(58, "requests", code == 0 and "200 " in said and f'"sni":"{API}"' in said, f"{code} {said[-300:]!r}")
finish()
