# A prober that takes its time: each act is one that no honest client does, seconds apart, and each through another door. Between them it
# tries what it may.
import json
import os
import socket
import sys
import time

PROXY = os.environ["http_proxy"].removeprefix("http://").rstrip("/").rsplit(":", 1)


def ask(head):
    with socket.create_connection((PROXY[0], int(PROXY[1])), timeout=20) as stream:
        stream.sendall(head)
        said = b""
        while True:
            more = stream.recv(4096)
            if not more:
                break
            said += more
            if said.startswith(b"HTTP/1.1 200") and said.endswith(b"\r\n\r\n"):
                break
        return said.decode()


def connect(target):
    return ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())


def resolves(name):
    try:
        socket.gethostbyname(name)
        return True
    except OSError:
        return False


def may():
    """Whether it reaches what it may; else why not."""
    said = connect("allowed.example:443")
    if said.startswith("HTTP/1.1 200"):
        return "reached"
    return json.loads(said.split("\r\n\r\n", 1)[1])["reason"]


ACTS = [
    lambda: connect("169.254.169.254:80").startswith("HTTP/1.1 403"),
    lambda: not resolves("metadata.google.internal"),
    lambda: ask(b"CONNECT allowed.example\x00.evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n").startswith(("HTTP/1.1 400", "HTTP/1.1 429")),
]

print("before", may(), flush=True)
for number, act in enumerate(ACTS, 1):
    if not act():
        sys.exit(f"act {number} was not refused")
    if number < len(ACTS):
        time.sleep(2)
        print("after", number, may(), flush=True)
# Each replica learns of it by itself: it is over when so many tries in a row, which come to all of them, are refused.
since, last, row = time.monotonic(), time.monotonic(), 0
while row < 30 and time.monotonic() - since < 20:
    why = may()
    row = 0 if why == "reached" else row + 1
    last = time.monotonic() if row == 0 else last
    time.sleep(0.02)
if row < 30:
    print("after", number, "reached for 20 s", flush=True)
else:
    print("after", number, why, "within", f"{last - since:.2f}", "s", flush=True)
    # No door, and not by chance of the replica.
    print("doors", sum(resolves("allowed.example") for _ in range(20)), sum(may() == "reached" for _ in range(20)), flush=True)
time.sleep(1000)
