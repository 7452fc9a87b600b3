# Many calls: in a row, and at once. None is lost, none gets another's answer.
import concurrent.futures

NAMES = ARGS["sandboxes"]
ROW, ONCE = ARGS["row"], ARGS["once"]

warm = [run(NAMES[0], "true") for _ in range(20)]
began = time.monotonic()
bad = []
for number in range(ROW):
    answer = run(NAMES[0], "echo", str(number))
    if answer["stdout"] != f"{number}\n" or answer["exitCode"] != 0:
        bad.append((number, answer))
took = time.monotonic() - began
holds(f"{ROW} calls in a row", not bad, bad[:3])
print(f"figure: {ROW} calls in a row took {took:.1f} s, {took / ROW * 1000:.2f} ms each")


def one(number):
    for _ in range(200):
        status, answer = request("POST", at(NAMES[number % len(NAMES)]), {"command": ["sh", "-c", f"echo {number}; sleep 1"]})
        if status != 429:
            return number, status, answer
        # As Retry-After says.
        time.sleep(1)
    return number, 429, {}


began = time.monotonic()
with concurrent.futures.ThreadPoolExecutor(ONCE) as pool:
    answers = list(pool.map(one, range(ONCE)))
wrong = [answer for answer in answers if answer[1] != 200 or answer[2]["stdout"] != f"{answer[0]}\n"]
holds(f"{ONCE} calls at once over {len(NAMES)} sandboxes", not wrong and len(answers) == ONCE, wrong[:3])
print(f"figure: {ONCE} calls of 1 s at once over {len(NAMES)} sandboxes took {time.monotonic() - began:.1f} s")
done()
