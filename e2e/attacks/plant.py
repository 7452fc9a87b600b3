# Leaving something behind in every writable place. What is left is not the argument, so that only this writes it.
marker = sys.argv[1][::-1] * 200
trust = ["/.glovebox-trust"] if os.path.isdir("/.glovebox-trust") else []
for place in ["/workspace", "/workspace/.git", "/home/sandbox/.cache", "/tmp", "/dev/shm", *trust]:
    append(f"{place}/left-behind", marker)
    os.makedirs(f"{place}/left/deep", exist_ok=True)
    append(f"{place}/left/deep/left-behind", marker)
os.environ["LEFT"] = marker
print("planted", flush=True)
time.sleep(3600)
