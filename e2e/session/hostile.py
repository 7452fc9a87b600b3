# Requests that are wrong in every way get an answer that says what is wrong, and nothing runs.
NAME = ARGS["sandbox"]


def wrong(what, body, status, reason, **more):
    got = refusal("POST", at(NAME), body, **more)
    holds(what, got[:2] == (status, reason) and got[2], got)


wrong("an unknown field", {"command": ["true"], "root": True}, 400, "InvalidRequest")
wrong("no command", {"command": []}, 400, "InvalidRequest")
wrong("a NUL in a word", {"command": ["a\0b"]}, 400, "InvalidRequest")
wrong("a NUL in a variable", {"command": ["true"], "env": {"A": "\0"}}, 400, "InvalidRequest")
wrong("a directory that goes up", {"command": ["true"], "cwd": "/workspace/../etc"}, 400, "InvalidRequest")
wrong("no time at all", {"command": ["true"], "timeout": "0s"}, 400, "InvalidRequest")
wrong("more time than there is", {"command": ["true"], "timeout": "1h"}, 400, "InvalidRequest")
wrong("half a body", None, 400, "InvalidRequest", raw='{"command": ["tr')
wrong("no JSON", None, 415, "NotJson", raw="x", headers={"Content-Type": "text/plain"})
got = refusal("POST", at(NAME), {"command": ["echo", "x" * 10_000_000]})
holds("an argument of 10 MB", got[0] in (400, 413), got)
holds("no such path", refusal("GET", "/v2")[:2] == (404, "NoSuchPath"))
holds("a path with another method", refusal("PUT", at(NAME))[:2] == (405, "MethodNotAllowed"))
holds("no such sandbox", refusal("POST", at("none"), {"command": ["true"]})[:2] == (404, "NotFound"))
for name in ("..", "%2e%2e", "a%00b", "a" * 300):
    got = refusal("POST", at(name), {"command": ["true"]})
    holds(f"a name that is none {name[:8]!r}", got[0] in (400, 403, 404), got)

# Who hangs up ends the call, unless it was asked to be kept. Each writes its mark at its end.
for kept in (False, True):
    mark = f"/workspace/hangup-{kept}"
    body = {"command": ["sh", "-c", f"echo begun > {mark}.begun; sleep 2; echo x > {mark}"], "onHangup": "Keep" if kept else "Kill"}
    connection().request("POST", at(NAME), json.dumps(body),
                         {"Authorization": "Bearer " + ARGS["token"], "Content-Type": "application/json"})
    other = {}

    def look(path):
        worker = threading.Thread(target=lambda: other.update(answer=run(NAME, "sh", "-c", f"for i in $(seq 400); do [ -e {path} ] && echo seen && exit; sleep 0.05; done", timeout="30s")))
        worker.start()
        worker.join()
        return "seen" in other["answer"]["stdout"]

    holds(f"a call begins (kept: {kept})", look(mark + ".begun"), other)
    connection().close()
    _own.connection = None
    if kept:
        holds("a call that was to be kept goes on", look(mark), other)
    else:
        answer = run(NAME, "sh", "-c", f"sleep 4; ls {mark}")
        holds("a call that was hung up on is over", answer["exitCode"] != 0, answer)
done()
