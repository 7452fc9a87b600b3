# A program with a key that it believes to be one: asks its API, is led away by it, and goes on asking.
import json
import os
import time
import urllib.error
import urllib.request

KEY = os.environ["API_KEY"]
API = "https://api.allowed.example"


def ask(url):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}", "X-Copy": "none"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


status, said = ask(f"{API}/ok")
print("asked", status, said, flush=True)
# Where it is led to is no host that it may reach; what is told there is none of the secret.
print("away", *ask(f"{API}/away"), flush=True)
while True:
    status, said = ask(f"{API}/ok")
    why = json.loads(said).get("reason", "") if status != 200 else ""
    print("said", status, why, flush=True)
    time.sleep(0.5)
