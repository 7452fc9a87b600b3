# Calls until so many were answered, whoever is killed meanwhile; which they were.
import concurrent.futures

UNTIL = time.monotonic() + 180


def some(wanted):
    answered = []
    while len(answered) < wanted and time.monotonic() < UNTIL:
        try:
            status, answer = request("POST", at(ARGS["sandbox"]), {"command": ["true"]})
        except (http.client.HTTPException, OSError, ValueError):
            status = 0
        if status == 200:
            answered.append(answer["id"])
        else:
            time.sleep(0.1)
    return answered


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    ids = sum(pool.map(some, [ARGS["calls"] // 4] * 4), [])
holds(f"{len(ids)} calls were answered", len(ids) == ARGS["calls"], len(ids))
print("ids", " ".join(ids))
done()
