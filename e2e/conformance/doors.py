# Rows 12, 55, 66, 67, 68 and the ports of row 46: what a sandbox can connect to by address. Argument: JSON {"pods": [addresses of the gateway's pods],
# "cluster": ["HOST:PORT", ...]}.
told = json.loads(sys.argv[1])


def opens(host, port, patience=1.5):
    try:
        with socket.create_connection((host, port), patience):
            return True
    except OSError:
        return False


def scan(places):
    """Many at a time: each that is closed takes its whole time."""
    found, todo = {}, list(places)

    def work():
        while todo:
            try:
                place = todo.pop()
            except IndexError:
                return
            found[place] = opens(*place)

    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


for port in [80, 443, 3128, 53]:
    twin(55, f"port {port} of the gateway", opens(GATE, port, 8))
ports = [1, 21, 22, 23, 25, 81, 111, 179, 389, 444, 853, 1080, 2379, 3129, 5353, 5432, 6379, 6443, 8000, 8080, 8081, 8443, 8888, 9090, 9091,
         9099, 9100, 10250, 10255, 10256, 30000, 32767, 50051, 65535]
for (host, port), open_ in scan((GATE, port) for port in ports).items():
    attack(55, f"port {port} of the gateway's Service", not open_)
data_ports = {3128, 5353, 8080, 8443}
for pod in told["pods"]:
    twin(55, f"the data port of the gateway's pod {pod}", opens(pod, 3128, 8))
for (host, port), open_ in scan((pod, port) for pod in told["pods"] for port in ports if port not in data_ports).items():
    attack(55, f"port {port} of the gateway's pod {host}", not open_)
places = [tuple(place.rsplit(":", 1)) for place in told["cluster"]]
for (host, port), open_ in scan((host, int(port)) for host, port in places).items():
    row = 67 if port in (6443, 443) else 66
    attack(row, f"the cluster's {host}:{port}", not open_)
outside = [("203.0.113.7", 443), ("203.0.113.7", 80), ("203.0.113.9", 443), ("203.0.113.9", 80), ("203.0.113.9", 25), ("169.254.169.254", 80),
           ("10.0.0.7", 443), ("192.168.0.7", 443)]
for (host, port), open_ in scan(outside).items():
    attack(12 if host.startswith("169") else 66, f"{host}:{port} past the gateway", not open_)
for what, make in [("ICMP", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)),
                   ("raw ICMP", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)),
                   ("raw IP", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)),
                   ("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)),
                   ("SCTP", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))]:
    try:
        with make() as probe:
            probe.settimeout(1.5)
            probe.connect(("203.0.113.9", 443))
            probe.send(b"\x08\0\xf7\xff\0\0\0\0")
            got = probe.recv(128)
        attack(68, f"{what} outward", False, got)
    except (OSError, AttributeError, TypeError) as error:
        attack(68, f"{what} outward", True, type(error).__name__)
finish()
