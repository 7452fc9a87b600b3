# New connections one after the other beside tunnels that stay open, and all the while tries at what is denied. Argument: JSON
# {"tunnels": number, "seconds": after all are open}. Its last line is JSON.
told = json.loads(sys.argv[1])
open_, broken, breaches, stop = set(), set(), [], threading.Event()


def hold(number):
    try:
        answer, stream = tunnel("allowed.example:443")
        with seal(stream, "allowed.example") as sealed:
            sealed.sendall(b"GET /stream HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
            while not stop.is_set():
                if not sealed.recv(4096):
                    break
                open_.add(number)
    except OSError:
        pass
    if not stop.is_set():
        open_.discard(number)
        broken.add(number)


def past():
    while not stop.is_set():
        for place in [("203.0.113.9", 443), (GATE, 9099)]:
            try:
                with socket.create_connection(place, 0.3):
                    breaches.append(f"{place[0]}:{place[1]}")
            except OSError:
                pass


def denied():
    while not stop.is_set():
        if status(connect("evil.example:443")) == 200:
            breaches.append("CONNECT evil.example")
        if first(hello("evil.example"))[:1] == b"\x16":
            breaches.append("SNI evil.example")
        if answers(ask(question("evil.example"), patience=0.5, tries=1)):
            breaches.append("DNS evil.example")


threads = [threading.Thread(target=hold, args=(number,), daemon=True) for number in range(told["tunnels"])]
threads += [threading.Thread(target=tries, daemon=True) for tries in (past, denied)]
for thread in threads:
    thread.start()
good, bad, steady = [], [], None
while steady is None or time.monotonic() < steady + told["seconds"]:
    try:
        with dial(3128, patience=2) as stream:
            stream.sendall(b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")
            works = status(head(stream)) == 200
    except OSError:
        works = False
    (good if works else bad).append(time.monotonic())
    if steady is None and len(open_) == told["tunnels"] and len(good) > 20:
        steady, bad, good = time.monotonic(), [], good[-1:]
        print("steady", flush=True)
stop.set()
gap = max((later - sooner for sooner, later in zip(good, good[1:])), default=None)
print(json.dumps({"connections": len(good), "failed": len(bad), "longest_gap": gap,
                  "failing_for": bad[-1] - bad[0] if bad else 0, "since_last_success": time.monotonic() - good[-1],
                  "alive": len(open_), "broken": len(broken), "breaches": breaches}), flush=True)
