# Who may: those whom RBAC lets, and nobody learns what is there before that.
NAME = ARGS["sandbox"]
EXEC = {"command": ["true"]}
holds("who may, may", request("POST", at(NAME), EXEC)[0] == 200)
got = refusal("POST", at(NAME), EXEC, token="")
holds("no token", got[:2] == (401, "Unauthenticated"), got)
for token in ("x", ARGS["token"][:-8] + "AAAAAAAA", "a.b.c"):
    got = refusal("POST", at(NAME), EXEC, token=token)
    holds("a token that is not good", got[:2] == (401, "Unauthenticated"), got)
got = refusal("POST", at(NAME), EXEC, token=ARGS["other_audience"])
holds("a token for somebody else", got[:2] == (401, "Unauthenticated"), got)
there = refusal("POST", at(NAME), EXEC, token=ARGS["nobody"])
holds("without the right", there[:2] == (403, "Forbidden"), there)
holds("the missing rule is named", "agentsandboxes/exec" in there[2] and "create" in there[2] and "glovebox.dev" in there[2], there)
absent = refusal("POST", at("none"), EXEC, token=ARGS["nobody"])
holds("and nothing is told of what is there", absent[:2] == there[:2] and absent[2].replace("none", NAME) == there[2], (there, absent))
got = refusal("GET", at(NAME, ""), token=ARGS["nobody"])
holds("nor where it stands", got[:2] == (403, "Forbidden"), got)
got = refusal("POST", at(ARGS["elsewhere_sandbox"], namespace=ARGS["elsewhere"]), EXEC)
holds("rights end at the namespace", got[:2] == (403, "Forbidden"), got)
got = refusal("POST", at(NAME), EXEC, token=ARGS["viewer"])
holds("who may look may not run", got[:2] == (403, "Forbidden"), got)
holds("who may look, looks", request("GET", at(NAME, ""), token=ARGS["viewer"])[0] == 200)

# Past the session, to the agent itself: the network keeps this pod away.
probe = socket.socket()
probe.settimeout(3)
try:
    probe.connect((ARGS["address"], 13443))
    reached = True
except OSError:
    reached = False
holds("no other pod reaches the agent", not reached)
done()
