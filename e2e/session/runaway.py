# A command that does all it can to outlive its deadline, and what is left of it.
NAME, MARK = ARGS["sandbox"], ARGS["mark"]
RUNAWAY = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
def detach():
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True
def beat():
    # Never the same process for long: each forks the next and ends.
    while True:
        with open("/workspace/beat", "a") as file:
            file.write(f"{time.time()}\\n")
        time.sleep(0.02)
        if os.fork():
            os._exit(0)
        os.setsid()
for _ in range(3):
    if detach():
        beat()
if detach():
    # Stopped: a signal that is not KILL is not heard.
    os.kill(os.getpid(), signal.SIGSTOP)
# Its reaper, which is of the same user; once the others live.
while not os.path.exists("/workspace/beat") or not os.path.getsize("/workspace/beat"):
    time.sleep(0.01)
for number in (signal.SIGSTOP, signal.SIGKILL) if "parent" in sys.argv else ():
    try:
        os.kill(os.getppid(), number)
    except OSError:
        pass
while True:
    time.sleep(1)
"""
LOOK = f"""
import glob
left = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        with open(path, "rb") as file:
            words = file.read().split(b"\\0")
    except OSError:
        continue
    if b"{MARK}" in words:
        left.append(path)
print(len(left))
"""


def last_beat():
    beats = run(NAME, "tail", "-n", "1", "/workspace/beat")["stdout"]
    return float(beats) if beats.strip() else 0.0


for what in ("", "parent"):
    run(NAME, "rm", "-f", "/workspace/beat")
    began = float(run(NAME, "date", "+%s.%N")["stdout"])
    status, answer = request("POST", at(NAME), {"command": ["python3", "-c", RUNAWAY, MARK, what], "timeout": "2s"})
    ended = float(run(NAME, "date", "+%s.%N")["stdout"])
    left = run(NAME, "python3", "-c", LOOK)["stdout"].strip()
    first, again = last_beat(), last_beat()
    name = "a runaway" + (" that kills what watches it" if what else "")
    holds(f"{name} began", first > began, (began, first, answer))
    if not what:
        holds(f"{name} ends at its deadline", answer.get("outcome") == "DeadlineExceeded", answer)
    holds(f"{name} leaves no process", left == "0", left)
    holds(f"{name} is silent", first == again, (first, again))
    holds(f"{name} was gone 1 s after its deadline", first <= began + 3.5 and ended <= began + 6, (began, first, ended))
    print("figure: last sign of", name, f"{first - began - 2:+.2f} s of its deadline;", answer.get("durationMs"), "ms in all")
done()
