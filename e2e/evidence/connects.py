# A workload that connects again and again through the proxy, whoever is killed meanwhile, and counts those that were opened.
import concurrent.futures
import os
import socket
import threading
import time
import urllib.parse

WANTED = 9000
UNTIL = time.monotonic() + 180
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
opened = 0
lock = threading.Lock()


def connect():
    global opened
    while opened < WANTED and time.monotonic() < UNTIL:
        try:
            with socket.create_connection((proxy.hostname, proxy.port), timeout=15) as tunnel:
                tunnel.sendall(b"CONNECT allowed.example:443 HTTP/1.1\r\nHost: allowed.example:443\r\n\r\n")
                good = tunnel.recv(4096).startswith(b"HTTP/1.1 200 ")
        except OSError:
            good = False
        if good:
            with lock:
                opened += 1
        else:
            time.sleep(0.1)


with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for _ in range(16):
        pool.submit(connect)
print("connections", opened, flush=True)
time.sleep(3600)
