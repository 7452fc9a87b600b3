# What a sandbox's calls are held to: its own wishes within its class, and no call's own.
NAME = ARGS["sandbox"]

if ARGS["step"] == "narrow":
    answer = run(NAME, "sleep", "60")
    holds("the sandbox's own deadline", answer["outcome"] == "DeadlineExceeded" and 2000 <= answer["durationMs"] < 10000, answer)
    status, answer = request("POST", at(NAME), {"command": ["true"], "timeout": "3s"})
    error = answer.get("error", {})
    holds("a call may not ask for more", (status, error.get("field")) == (400, "timeout") and "2s" in error["message"], answer)
    answer = run(NAME, "sleep", "60", timeout="500ms")
    holds("it may ask for less", answer["outcome"] == "DeadlineExceeded" and answer["durationMs"] < 2000, answer)
    answer = run(NAME, "sh", "-c", "head -c 5000 /dev/zero")
    holds("the sandbox's own output", answer["truncated"] and answer["stdoutBytes"] == 5000, answer["stdoutBytes"])
    error = request("POST", at(NAME), {"command": ["true"], "maxOutputBytes": "2Ki"})[1].get("error", {})
    holds("a call may not ask for more output", error.get("field") == "maxOutputBytes" and "1Ki" in error["message"], error)

    # One at a time: whoever comes second while the first runs is told so.
    answers = []

    def occupy():
        """Takes the one place for two seconds, as soon as no probe has it."""
        status, answer = 429, None
        while status == 429:
            status, answer = request("POST", at(NAME), {"command": ["sleep", "60"]})
        answers.append((status, answer))

    first = threading.Thread(target=occupy)
    first.start()
    busy = None
    while busy is None and first.is_alive():
        status, answer = request("POST", at(NAME), {"command": ["true"]})
        busy = answer["error"] if status != 200 else None
    first.join()
    holds("calls beyond maxConcurrent are refused", busy and busy["reason"] == "SandboxBusy", busy)
    holds("the one before went on", answers[0][1].get("outcome") == "DeadlineExceeded", answers)

if ARGS["step"] == "wide":
    # The session hears of it a moment after its status is there.
    until = time.monotonic() + 30
    while request("POST", at(NAME), {"command": ["true"], "timeout": "5s"})[0] != 200 and time.monotonic() < until:
        pass
    answer = run(NAME, "sleep", "2.5", timeout="5s")
    holds("what was raised holds for the next call", answer["outcome"] == "Exited", answer)
    answers = []
    both = [threading.Thread(target=lambda: answers.append(run(NAME, "sleep", "1"))) for _ in range(2)]
    [thread.start() for thread in both]
    [thread.join() for thread in both]
    holds("two at once", [answer["outcome"] for answer in answers] == ["Exited"] * 2, answers)
done()
