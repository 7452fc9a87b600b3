# Starts `true` and waits for its end, so many times. Prints the times in seconds.
import json
import os
import shutil
import sys
import time

program = shutil.which("true")


def start():
    began = time.monotonic()
    child = os.posix_spawn(program, [program], os.environ)
    os.waitpid(child, 0)
    return time.monotonic() - began


start()
print(json.dumps({"took": [start() for _ in range(int(sys.argv[1]))]}))
