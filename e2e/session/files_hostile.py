# A workload that wants the session to read and write elsewhere, and requests that want it, too.
import io
import tarfile

NAME = ARGS["sandbox"]
SECRET = "what stands outside"


def files(method, below, body=None):
    status, kind, content = transfer(method, at(NAME, "/files" + below), body)
    if SECRET.encode() in content or b"root:" in content:
        holds(f"nothing outside is read by {method} {below}", False, content[:100])
    return (status, json.loads(content)) if kind.startswith("application/json") else (status, content)


def refused(what, method, below, statuses, body=None, limit=10):
    begun = time.monotonic()
    status, answer = files(method, below, body)
    error = answer.get("error", {}) if isinstance(answer, dict) else {}
    took = time.monotonic() - begun
    holds(what, status in statuses and error.get("message") and took < limit, (status, error, round(took, 1)))
    return error


for path in ("../../etc/passwd", "/etc/passwd", "%2Fetc%2Fpasswd", "..%2f..%2fetc%2fpasswd", "a/../../etc/passwd", "a%00b"):
    for method in ("GET", "PUT", "DELETE"):
        error = refused(f"{method} of {path}", method, f"?path={path}", (400,), b"x")
        holds("names its field", error.get("field") == "path", error)

answer = run(NAME, "sh", "-c", f"""
set -e
echo '{SECRET}' > /tmp/outside; mkdir /tmp/beside; echo '{SECRET}' > /tmp/beside/f
cd /workspace; mkdir real; echo inside > real/f
ln -s real/f in; ln -s /etc/passwd abs; ln -s ../tmp/outside up; ln -s ../tmp/beside up-dir; ln -s ring ring
ln -s /proc/self/environ env; ln -s /proc/1/root/etc/passwd users; ln -s /dev/zero zero
mkfifo fifo; ln -s fifo to-fifo
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
""")
holds("traps are laid", answer["exitCode"] == 0, answer)
holds("a link that stays inside is followed", files("GET", "?path=in") == (200, b"inside\n"))
for name in ("abs", "up", "up-dir/f", "ring", "env", "users", "zero"):
    refused(f"a link that leads out: {name}", "GET", f"?path={name}", (422,))
    refused(f"a write through it: {name}", "PUT", f"?path={name}", (422,), b"overwritten")
refused("a list through a link", "GET", "/list?path=up-dir", (422,))
refused("an archive through a link", "GET", "/archive?path=up-dir", (422,))
refused("an archive into a link", "PUT", "/archive?path=up-dir/x", (422,), bytes(1024))
for name in ("fifo", "to-fifo", "socket"):
    refused(f"read of {name}", "GET", f"?path={name}", (422,))
    refused(f"write of {name}", "PUT", f"?path={name}", (422,), b"x")
for path in (".git/hooks/pre-commit", ".vscode/tasks.json", ".git/hooks/new/x"):
    refused(f"a write to {path}", "PUT", f"?path={path}&parents=true", (422,), b"evil")
refused("removal of what is protected", "DELETE", "?path=.git/hooks&recursive=true", (422,))
refused("removal of what it is in", "DELETE", "?path=.git&recursive=true", (422,))
refused("removal of the workspace", "DELETE", "?path=.&recursive=true", (400, 422))

# Over the cap, by what comes and not by what is said; and more than the workspace has.
def pieces(count):
    for _ in range(count):
        yield bytes(1 << 20)


def broken_off(act):
    # A client that sends hundreds of megabytes may see the connection closed before the answer.
    try:
        return act()
    except (BrokenPipeError, ConnectionError, http.client.HTTPException, ssl.SSLError) as error:
        return type(error).__name__, {}


files("PUT", "?path=kept", b"before")
got = broken_off(lambda: files("PUT", "?path=kept", pieces(300)))
holds("more than is carried", got[0] != 200, got[0])
holds("leaves what was there", files("GET", "?path=kept") == (200, b"before"))
answer = run(NAME, "sh", "-c", "ls -A /workspace | grep -c glovebox; df -k --output=used /workspace | tail -1")
holds("and nothing half-written", answer["stdout"].split()[0] == "0" and int(answer["stdout"].split()[1]) < 20_000, answer)


def archive(*names, kind=tarfile.REGTYPE, content=b""):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


for name, kind in (("../../tmp/evil", tarfile.REGTYPE), ("/tmp/evil", tarfile.REGTYPE), ("link", tarfile.SYMTYPE),
                   ("hard", tarfile.LNKTYPE), ("device", tarfile.CHRTYPE), ("pipe", tarfile.FIFOTYPE),
                   ("up-dir/evil", tarfile.REGTYPE), (".vscode/evil", tarfile.REGTYPE)):
    error = refused(f"an archive with {name}", "PUT", "/archive", (422,), archive(name, kind=kind, content=b"x" if kind == tarfile.REGTYPE else b""))
    holds("names its entry", name in error.get("message", ""), error)
# Of one directory, again and again: what is counted is what comes, whatever becomes of it.
one = archive("many", kind=tarfile.DIRTYPE)[:512]
error = refused("an archive of a million entries", "PUT", "/archive?path=many&timeout=2m", (413,), one * 150_000, limit=120)
refused("what is no archive", "PUT", "/archive", (422,), b"PK\x03\x04" + bytes(600))
answer = run(NAME, "sh", "-c", "ls /tmp; cat /tmp/beside/f; ls -A /workspace/.vscode")
holds("nothing outside was touched", "evil" not in answer["stdout"] and SECRET in answer["stdout"], answer)

# Links and directories change places while hundreds of reads run.
stop = {"command": ["sh", "-c", """cd /workspace; mkdir d; echo inside > d/f; ln -s ../tmp/beside e; echo inside > g
end=$(($(date +%s) + 100)); while [ $(date +%s) -lt $end ] && [ ! -e enough ]; do for i in 1 2 3 4 5 6 7 8; do
ln -sfn ../tmp/outside l; mv d x; mv e d; ln -sfn g l; mv d e; mv x d; done; done"""], "timeout": "110s"}
swapping = threading.Thread(target=lambda: request("POST", at(NAME), stop))
swapping.start()
for _ in range(200):
    if files("GET", "/entry?path=l")[0] == 200:
        break
    time.sleep(0.05)
seen = {}
begun = time.monotonic()
for turn in range(400):
    status, content = files("GET", "?path=" + ("d/f" if turn % 2 else "l"))
    if status == 200 and content != b"inside\n":
        holds("only what is inside is read", False, content)
    seen[status] = seen.get(status, 0) + 1
holds("hundreds of reads of what is swapped", set(seen) <= {200, 404, 409, 422} and seen.get(200) and seen.get(422), seen)
print("figure: 400 reads of a file that is swapped:", seen, round(time.monotonic() - begun, 1), "s")
files("PUT", "?path=enough", b"")
swapping.join()
done()
