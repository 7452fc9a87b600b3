# Taking all of everything at once, for so many seconds: processor, memory up to the limit, room in the workspace.
end = time.monotonic() + float(sys.argv[1])


def spin():
    while time.monotonic() < end:
        for _ in range(10000):
            pass


def balloon():
    while time.monotonic() < end:
        held = [bytearray(b"x") * (4 << 20) for _ in range(12)]
        del held


def fill():
    while time.monotonic() < end:
        try:
            with open("/workspace/fill", "wb", buffering=0) as file:
                while time.monotonic() < end:
                    file.write(b"\xa5" * (1 << 20))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
        os.unlink("/workspace/fill")


children = []
for act in (spin, spin, balloon, fill):
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    children.append(child)
for child in children:
    _, how = os.waitpid(child, 0)
    holds("a greedy process came to its end", how == 0, how)
finish()
