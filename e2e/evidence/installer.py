# An installer as they are: retries, hosts that want to know of each installation, a cloud's library that looks for credentials, a search
# list, and a lot that is fetched.
import os
import socket
import ssl

PROXY = os.environ["http_proxy"].removeprefix("http://").rstrip("/").rsplit(":", 1)
CONTEXT = ssl._create_unverified_context()


def resolves(name):
    try:
        return socket.gethostbyname(name)
    except OSError:
        return None


def fetch():
    with socket.create_connection((resolves("allowed.example"), 443), timeout=20) as plain:
        with CONTEXT.wrap_socket(plain, server_hostname="allowed.example") as tls:
            tls.sendall(b"GET / HTTP/1.1\r\nHost: allowed.example\r\nConnection: close\r\n\r\n")
            said = b""
            while more := tls.recv(65536):
                said += more
            return said.startswith(b"HTTP/1.1 200")


def connect(target):
    with socket.create_connection((PROXY[0], int(PROXY[1])), timeout=20) as stream:
        stream.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return stream.recv(4096).startswith(b"HTTP/1.1 200")


for _ in range(3):
    for name in ["allowed.example.team.svc.cluster.local", "allowed.example.svc.cluster.local", "printer.local"]:
        resolves(name)
    for number in range(12):
        assert not resolves(f"telemetry{number}.example")
        assert not connect(f"telemetry{number}.example:443")
    resolves("metadata.google.internal")
    connect("169.254.169.254:80")
    for _ in range(15):
        assert fetch()
print("installed", flush=True)
