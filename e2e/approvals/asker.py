# Wants a host that no rule names, again and again, and says each time that it is answered otherwise. With a number as the second argument:
# so many hosts, each once.
import json
import os
import socket
import sys
import time

PROXY = os.environ["http_proxy"].removeprefix("http://").rstrip("/").rsplit(":", 1)


def connect(target):
    try:
        with socket.create_connection((PROXY[0], int(PROXY[1])), timeout=60) as stream:
            stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            said = stream.recv(65536).decode()
            while not said.startswith("HTTP/1.1 200") and (more := stream.recv(65536)):
                said += more.decode()
    except OSError as error:
        return type(error).__name__
    return "reached" if said.startswith("HTTP/1.1 200") else json.loads(said.split("\r\n\r\n", 1)[1])["reason"]


host = sys.argv[1]
if len(sys.argv) > 2:
    for number in range(int(sys.argv[2])):
        connect(f"n{number}.{host}:443")
    print("flooded", flush=True)
    time.sleep(1000)
before, since = None, time.monotonic()
while True:
    now = connect(f"{host}:443")
    if now != before:
        print("says", now, f"after {time.monotonic() - since:.1f} s", flush=True)
        before, since = now, time.monotonic()
    time.sleep(0.2)
