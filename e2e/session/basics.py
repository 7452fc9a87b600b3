# Calls as tools make them: what goes in arrives, what comes out is all of it, and how it ended is told.
NAME = ARGS["sandbox"]

answer = run(NAME, "sh", "-c", "echo out; echo err >&2; exit 3")
holds("exit code and both streams", (answer["outcome"], answer["exitCode"]) == ("Exited", 3), answer)
holds("standard output", answer["stdout"] == "out\n" and answer["stdoutBytes"] == 4, answer)
holds("standard error", answer["stderr"] == "err\n" and not answer["truncated"], answer)

answer = run(NAME, "sh", "-c", 'printf "%s %s %s" "$PWD" "$WORD" "$(cat)"', cwd="/tmp", env={"WORD": "a b"}, stdin="from me")
holds("directory, variable and standard input", answer["stdout"] == "/tmp a b from me", answer)
answer = run(NAME, "cat")
holds("no standard input is an end at once", answer["outcome"] == "Exited" and answer["stdoutBytes"] == 0, answer)
answer = run(NAME, "cat", stdinBase64=base64.b64encode(bytes(range(256))).decode())
holds("bytes that are no text", base64.b64decode(answer.get("stdoutBase64", "")) == bytes(range(256)), answer)
answer = run(NAME, "pwd")
holds("the workload's own directory", answer["stdout"] == "/workspace\n", answer)
answer = run(NAME, "env")
inside = dict(line.split("=", 1) for line in answer["stdout"].splitlines() if "=" in line)
holds("the workload's variables", inside.get("HTTPS_PROXY") and inside.get("HOME") == "/home/sandbox", sorted(inside))
holds("nothing of the platform", not [name for name in inside if name.startswith(("KUBERNETES_", "GLOVEBOX_"))], sorted(inside))

answer = run(NAME, "no-such-program")
holds("a program that is not there", (answer["outcome"], answer["exitCode"]) == ("NotStarted", 127), answer)
answer = run(NAME, "/etc/passwd")
holds("a file that is no program", (answer["outcome"], answer["exitCode"]) == ("NotStarted", 126), answer)
answer = run(NAME, "sh", "-c", "kill -SEGV $$")
holds("a signal", (answer["outcome"], answer["signal"]) == ("Signalled", 11), answer)

answer = run(NAME, "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x", maxOutputBytes=1000)
holds("output beyond its limit is counted", answer["stdoutBytes"] == 3000000 and answer["truncated"], answer["stdoutBytes"])
holds("and dropped", len(answer["stdout"]) == 1000, len(answer["stdout"]))
answer = run(NAME, "sh", "-c", "head -c 50000000 /dev/zero >&2", maxOutputBytes="1Ki", timeout="60s")
holds("a flood is read to its end", (answer["outcome"], answer["stderrBytes"]) == ("Exited", 50000000), (answer["outcome"], answer["stderrBytes"]))

# What a call started and left behind goes with it, though its first process ended well.
answer = run(NAME, "sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 & echo left-$$")
holds("a call that leaves something behind", answer["outcome"] == "Exited", answer)
answer = run(NAME, "sh", "-c", "grep -l 'whil[e] :' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
holds("leaves nothing", answer["stdout"].strip() == "0", answer)

answer = run(NAME, "sleep", "60", timeout="1s")
holds("the deadline", answer["outcome"] == "DeadlineExceeded" and answer["durationMs"] >= 1000, answer)

# A stream: lines as they come, the last of which is the result.
connection().request("POST", at(NAME), json.dumps({"command": ["sh", "-c", "echo one; echo two >&2; exit 4"], "stream": True}),
                     {"Authorization": "Bearer " + ARGS["token"], "Content-Type": "application/json"})
answer = connection().getresponse()
lines = [json.loads(line) for line in answer.read().splitlines()]
holds("a stream's kind", answer.getheader("Content-Type", "").startswith("application/x-ndjson"), answer.getheader("Content-Type"))
holds("a stream's output", {"stdout": "one\n"} in lines and {"stderr": "two\n"} in lines, lines)
holds("a stream's end", lines[-1].get("result", {}).get("exitCode") == 4, lines)

# What a call is held to beyond the sandbox: enforced, or said not to be.
answer = run(NAME, "python3", "-c", "import socket; socket.socket(socket.AF_INET)", access={"network": False})
held = answer.get("network") == "Enforced"
network = answer.get("network")
holds("a call without network", held and answer["exitCode"] != 0 or answer.get("network") == "NotEnforced", answer)
answer = run(NAME, "sh", "-c", "echo x > /workspace/a; mkdir -p /tmp/free && echo x > /tmp/free/a", access={"write": ["/tmp"]})
held = answer.get("write") == "Enforced"
holds("a call that may write in one place", held and "/workspace/a" in answer["stderr"] or answer.get("write") == "NotEnforced", answer)
print("figure: held to no network:", network, "- to one place to write:", answer.get("write"))

# Once, though it is asked for twice.
key = {"Idempotency-Key": "basics-1"}
count = {"command": ["sh", "-c", "echo x >> /workspace/count; wc -l < /workspace/count"]}
first = request("POST", at(NAME), count, headers=key)
again = request("POST", at(NAME), count, headers=key)
holds("the same call once more is the same", first == again and first[1]["stdout"].strip() == "1", (first, again))
holds("another call by its key is refused", refusal("POST", at(NAME), {"command": ["true"]}, headers=key)[:2] == (422, "KeyReused"))

status, answer = request("GET", at(NAME, ""))
holds("where it stands", status == 200 and answer["phase"] == "Running" and answer["ready"], answer)
status, answer = request("GET", at(NAME, "/wait?for=Ready&timeout=5s"))
holds("a wait for what is so already", status == 200 and answer["reached"], answer)
status, answer = request("GET", "/openapi.json")
holds("the document", status == 200 and answer["openapi"].startswith("3.") and len(answer["paths"]) >= 3, status)
done()
