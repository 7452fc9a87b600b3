# Connecting outward until each place is as expected, three times in a row, or the time is over. Arguments: JSON of "tcp HOST:PORT" or
# "udp HOST:PORT" to whether it should answer, and seconds. A policy takes effect a moment late, so one look proves nothing.
import threading

expected, patience = json.loads(sys.argv[1]), float(sys.argv[2])
deadline = time.monotonic() + patience
seen = {}


def look(place):
    protocol, address = place.split(" ")
    host, port = address.rsplit(":", 1)
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    try:
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.settimeout(1.5)
            probe.connect((host, int(port)))
            if protocol == "udp":
                # A question that any name server answers, and the echo too.
                probe.send(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\x07allowed\x07example\0\0\1\0\1")
                probe.recv(512)
        return True
    except OSError as error:
        return errno.errorcode.get(error.errno) or type(error).__name__


def watch(place, wanted):
    history = []
    while time.monotonic() < deadline and [answer is True for answer in history[-3:]] != [wanted] * 3:
        history.append(look(place))
        time.sleep(0.1)
    seen[place] = history


threads = [threading.Thread(target=watch, args=item) for item in expected.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for place, wanted in expected.items():
    last = seen[place][-3:]
    held = [answer is True for answer in last] == [wanted] * 3
    holds(f"{place} is {'open' if wanted else 'closed'}", held, f"{len(seen[place])} looks, last {last}")
finish()
