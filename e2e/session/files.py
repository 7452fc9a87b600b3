# Files as tools use them: what goes in comes out, whoever may does, and whoever may not learns nothing.
import io
import os
import tarfile

NAME = ARGS["sandbox"]


def files(method, below, body=None, **more):
    status, kind, content = transfer(method, at(NAME, "/files" + below), body, **more)
    return (status, json.loads(content)) if kind.startswith("application/json") else (status, content)


def wrong(what, method, below, status, reason, body=None, **more):
    got = files(method, below, body, **more)
    error = got[1].get("error", {}) if isinstance(got[1], dict) else {}
    holds(what, (got[0], error.get("reason")) == (status, reason) and error.get("message"), got if error else got[0])
    return error


for name, content in (("empty", b""), ("one", b"\0"), ("big", os.urandom(10 << 20)), ("binary", bytes(range(256)))):
    got = files("PUT", f"?path={name}", content)
    holds(f"{name} goes in", got[0] == 200 and got[1]["bytes"] == len(content), got)
    got = files("GET", f"?path={name}")
    holds(f"{name} comes out", got == (200, content), (got[0], len(got[1])))
print("figure: seconds for 10 MiB in and out:", end=" ")
for method in ("PUT", "GET"):
    begun = time.monotonic()
    files(method, "?path=big", bytes(10 << 20) if method == "PUT" else None)
    print(round(time.monotonic() - begun, 3), end=" ")
print()
answer = run(NAME, "sh", "-c", "cd /workspace; wc -c < one; stat -c %a one; ls -A | grep glovebox | wc -l")
holds("commands see it, and nothing besides", answer["stdout"].split() == ["1", "644", "0"], answer)

got = files("PUT", "?path=src/deep/a%20%C3%A4.py&parents=true&mode=755", b"x")
holds("directories are made", got[0] == 200, got)
status, info = files("GET", "/entry?path=src/deep/a+%C3%A4.py")
holds("a file is told", (info.get("kind"), info.get("size"), info.get("mode")) == ("File", 1, "755"), info)
status, listing = files("GET", "/list?path=src")
holds("a directory is listed", [(one["path"], one["kind"]) for one in listing["entries"]] == [("deep", "Directory")], listing)
status, listing = files("GET", "/list")
holds("so is the workspace", {"empty", "one", "big", "src"} <= {one["path"] for one in listing["entries"]}, listing)
wrong("no such file", "GET", "?path=none", 404, "NoSuchFile")
wrong("a directory is no file", "GET", "?path=src", 409, "FileConflict")
wrong("what is there stays", "PUT", "?path=one&replace=false", 409, "FileConflict", b"x")
wrong("a directory that is not empty", "DELETE", "?path=src", 409, "FileConflict")
holds("no such sandbox", transfer("GET", at("none", "/files?path=x"))[0] == 404)

# An archive up, and down again.
made = io.BytesIO()
long = "d" * 120 + "/" + "f" * 120
with tarfile.open(fileobj=made, mode="w") as tar:
    for name, content in (("p/a.txt", b"a"), (long, b"long"), ("p/ä/b.bin", os.urandom(100_000))):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
status, answer = files("PUT", "/archive?path=up/here", made.getvalue())
holds("an archive goes up", status == 200 and answer["entries"] == 3, answer)
status, content = files("GET", "/archive?path=up/here")
with tarfile.open(fileobj=io.BytesIO(content)) as tar:
    found = {one.name: one.size for one in tar.getmembers() if one.isfile()}
holds("and comes down", status == 200 and found == {"p/a.txt": 1, long: 4, "p/ä/b.bin": 100_000}, found)
status, answer = files("DELETE", "?path=up&recursive=true")
holds("all of it is removed", status == 200 and files("GET", "/entry?path=up")[0] == 404, answer)

# Who may what.
holds("who may read, reads", files("GET", "?path=one", token=ARGS["reader"])[0] == 200)
holds("who may create, creates", files("PUT", "?path=new&replace=false", b"x", token=ARGS["maker"])[0] == 200)
for who, method, below, verb in (("nobody", "GET", "?path=one", "get"), ("reader", "PUT", "?path=one", "update"),
                                 ("reader", "DELETE", "?path=one", "delete"), ("maker", "PUT", "?path=one", "update"),
                                 ("maker", "GET", "/list", "get"), ("reader", "PUT", "/archive", "update")):
    error = wrong(f"{who} may not {method} {below}", method, below, 403, "Forbidden", b"x", token=ARGS[who])
    holds("the missing rule is named", f"agentsandboxes/files], verbs: [{verb}]" in error.get("message", ""), error)
path = at(NAME, "/files?path=one", namespace=ARGS["elsewhere"])
holds("rights end at the namespace", transfer("GET", path)[0] == 403)
holds("one is what it was", files("GET", "?path=one") == (200, b"\0"))
done()
