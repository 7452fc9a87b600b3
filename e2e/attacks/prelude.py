# What every attack begins with: one line an attempt, "ok" where it was refused and "BREACH" where it was not.
import ctypes
import errno
import json
import os
import shutil
import socket
import stat
import sys
import time

attempts = 0
libc = ctypes.CDLL(None, use_errno=True)

# What a refusal looks like. "No such file" is none: it would mean that nothing was attacked.
REFUSALS = {errno.EROFS, errno.EPERM, errno.EACCES, errno.EBUSY, errno.EXDEV, errno.ENOTEMPTY, errno.ETXTBSY,
            errno.ENOSYS}


def report(held, name, detail=""):
    global attempts
    attempts += 1
    print("ok" if held else "BREACH", name, detail, flush=True)


def holds(name, condition, detail=""):
    report(bool(condition), name, detail)


def refused(name, act, refusals=REFUSALS):
    try:
        act()
    except OSError as error:
        report(error.errno in refusals, name, errno.errorcode.get(error.errno, error.errno))
    else:
        report(False, name, "was allowed")


def call(function, *arguments):
    """A function of the C library; its failure becomes an OSError."""
    converted = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(libc, function)(*converted) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def append(path, text="evil\n"):
    with open(path, "a") as file:
        file.write(text)


def status_of(pid="self"):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def mounts():
    """Mount point, options, file system type and root of each mount."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, after = line.rstrip("\n").split(" - ")
            fields, tail = before.split(" "), after.split(" ")
            found.append({"point": fields[4], "root": fields[3], "options": fields[5].split(","),
                          "type": tail[0], "source": tail[1], "super": tail[2].split(",")})
    return found


def finish():
    print("attempts", attempts, flush=True)
