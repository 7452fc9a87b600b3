# Connects in a loop from the first instruction: an ordinary workload, nothing before it. Arguments: places as HOST:PORT, where HOST may be GATE.
import socket
import sys
import time

start = time.monotonic()
with open("/etc/resolv.conf") as file:
    gate = next(line.split()[1] for line in file if line.startswith("nameserver"))
places = [(place.rsplit(":", 1)[0].replace("GATE", gate), int(place.rsplit(":", 1)[1])) for place in sys.argv[1:]]
tries, leaks = 0, []
while time.monotonic() < start + 4:
    for place in places:
        tries += 1
        try:
            with socket.create_connection(place, 0.05):
                leaks.append(f"{place[0]}:{place[1]} after {time.monotonic() - start:.3f} s")
        except OSError:
            pass
print("tries", tries, flush=True)
print("leaks", len(leaks), *leaks[:5], flush=True)
