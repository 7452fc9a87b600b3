# Looks for bytes in memory, environments and files. What is looked for is given backwards and never turned round, so that this program does
# not hold it: everything else is read backwards, too. With the uid of a pod it looks from its node, as root, at all of the pod's
# processes; without, from inside, at whatever may be read.
import json
import os
import sys

POD = sys.argv[1]
NEEDLES = [bytes.fromhex(text) for text in sys.argv[2:]]
PIECE, PAGE = 1 << 20, os.sysconf("SC_PAGE_SIZE")
OVERLAP = max(map(len, NEEDLES))
seen = {"processes": 0, "bytes": 0, "files": 0}
found = [[] for _ in NEEDLES]


def look(data, where):
    seen["bytes"] += len(data)
    backwards = data[::-1]
    for number, needle in enumerate(NEEDLES):
        if needle in backwards and len(found[number]) < 20:
            found[number].append(where)


def pieces(read, begin, end, where):
    at, kept = begin, b""
    while at < end:
        try:
            data = read(at, min(PIECE, end - at))
        except (OSError, ValueError, OverflowError):
            data = b""
        if not data:
            at, kept = at + PAGE, b""
            continue
        look(kept + data, where)
        at, kept = at + len(data), data[-OVERLAP:]


def present(pid, begin, end):
    """Runs of pages that are there: to look at the others would make them."""
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pages:
            start = None
            for at in range(begin, end, PAGE * 4096):
                last = min(end, at + PAGE * 4096)
                entries = os.pread(pages.fileno(), (last - at) // PAGE * 8, at // PAGE * 8)
                for number in range(len(entries) // 8):
                    there = entries[number * 8 + 7] & 0xC0
                    page = at + number * PAGE
                    if there and start is None:
                        start = page
                    elif not there and start is not None:
                        yield start, page
                        start = None
            if start is not None:
                yield start, end
    except OSError:
        yield begin, end


def process(pid):
    base = f"/proc/{pid}"
    for name in ("environ", "cmdline"):
        with open(f"{base}/{name}", "rb") as file:
            look(file.read(), f"{pid} {name}")
    with open(f"{base}/maps") as file:
        maps = file.read().splitlines()
    with open(f"{base}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, rights, *_, name = (line.split(None, 5) + [""])[:6]
            if "r" not in rights or name in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
                continue
            begin, end = (int(text, 16) for text in span.split("-"))
            for first, last in present(pid, begin, end):
                pieces(lambda at, size: os.pread(memory.fileno(), size, at), first, last, f"{pid} {name or 'memory'}")
    if POD != "inside":
        for number in os.listdir(f"{base}/fd"):
            # What a kernel that is a program keeps its guest's memory and files in.
            link = f"{base}/fd/{number}"
            try:
                if os.readlink(link).startswith("/memfd:"):
                    holes(link, f"{pid} {os.readlink(link)}")
            except OSError:
                continue
    seen["processes"] += 1


def holes(path, where):
    with open(path, "rb", buffering=0) as file:
        end, at = os.fstat(file.fileno()).st_size, 0
        while at < end:
            try:
                first = os.lseek(file.fileno(), at, os.SEEK_DATA)
                at = os.lseek(file.fileno(), first, os.SEEK_HOLE)
            except OSError:
                return
            pieces(lambda place, size: os.pread(file.fileno(), size, place), first, at, where)


def ours(pid):
    if POD == "inside":
        return True
    with open(f"/proc/{pid}/cgroup") as file:
        text = file.read()
    return POD in text or POD.replace("-", "_") in text


for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if ours(pid):
            process(pid)
    except OSError:
        continue
if POD == "inside":
    for top, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(top, name) not in ("/proc", "/sys", "/dev")]
        # What the image brought can't hold it, and is much.
        if top in ("/usr", "/lib", "/opt"):
            folders[:] = []
            continue
        for name in files:
            path = os.path.join(top, name)
            try:
                with open(path, "rb") as file:
                    pieces(lambda at, size: os.pread(file.fileno(), size, at), 0, os.fstat(file.fileno()).st_size, path)
                    seen["files"] += 1
            except OSError:
                continue
print(json.dumps({**seen, "found": found}))
