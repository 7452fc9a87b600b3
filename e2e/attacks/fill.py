# Filling every writable place. Arguments: JSON of place to size in bytes.
block = b"\xa5" * (64 << 10)
for place, size in json.loads(sys.argv[1]).items():
    written, how = 0, None
    before = os.statvfs(place)
    used = (before.f_blocks - before.f_bavail) * before.f_frsize
    holds(f"{place} is said to have {size} bytes", before.f_blocks * before.f_frsize == size, before.f_blocks * before.f_frsize)
    try:
        with open(f"{place}/fill", "wb", buffering=0) as file:
            while written < 4 * size:
                written += file.write(block)
    except OSError as error:
        how = error.errno
    # A tmpfs keeps a page or two for itself.
    holds(f"{place} takes {size} bytes and no more", size - (256 << 10) <= written + used <= size, f"{written} and {used} bytes")
    holds(f"{place} says that it is full", how == errno.ENOSPC, how)
    os.unlink(f"{place}/fill")
    append(f"{place}/after")
    holds(f"{place} takes something again", os.path.getsize(f"{place}/after") > 0)
    os.unlink(f"{place}/after")
finish()
