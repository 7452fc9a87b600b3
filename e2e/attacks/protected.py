# Poisoning what somebody else, or a later run, would trust: files of the home directory, git's hooks, editors' and agents' settings.
home, workspace = os.environ.get("HOME", "/home/sandbox"), "/workspace"
own = sys.argv[1:]
MS_BIND = 4096

bait = f"{workspace}/bait"
append(bait)
os.makedirs(f"{workspace}/bait-directory", exist_ok=True)


def attack_file(path):
    """Every way to change what is read under that name."""
    refused(f"appends to {path}", lambda: append(path))
    refused(f"truncates {path}", lambda: open(path, "w").close())
    refused(f"renames over {path}", lambda: os.rename(bait, path))
    refused(f"mounts over {path}", lambda: call("mount", bait, path, None, MS_BIND, None))
    if os.path.exists(path):
        refused(f"removes {path}", lambda: os.unlink(path))
        refused(f"renames {path} away", lambda: os.rename(path, f"{path}.away"))
        refused(f"moves {path} away", lambda: os.rename(path, f"{workspace}/away"))
        refused(f"links {path} elsewhere", lambda: os.link(path, f"{workspace}/elsewhere"))
        refused(f"opens {path} to all", lambda: os.chmod(path, 0o777))
        refused(f"dates {path}", lambda: os.utime(path, (0, 0)))
    else:
        refused(f"puts a link at {path}", lambda: os.symlink(bait, path))
        refused(f"puts a hard link at {path}", lambda: os.link(bait, path))


def attack_directory(path):
    """Every way to put something into it, or something else into its place."""
    refused(f"creates in {path}", lambda: append(f"{path}/evil"))
    refused(f"makes a directory in {path}", lambda: os.mkdir(f"{path}/evil.d"))
    refused(f"links into {path}", lambda: os.symlink(bait, f"{path}/evil-link"))
    refused(f"hard-links into {path}", lambda: os.link(bait, f"{path}/evil-hard"))
    refused(f"renames into {path}", lambda: os.rename(bait, f"{path}/evil"))
    refused(f"removes {path}", lambda: os.rmdir(path))
    refused(f"deletes and recreates {path}", lambda: (shutil.rmtree(path), os.mkdir(path)))
    refused(f"renames {path} away", lambda: os.rename(path, f"{path}.away"))
    refused(f"exchanges {path}", lambda: call("syscall", 316, -100, path, -100, f"{workspace}/bait-directory", 2))
    refused(f"mounts over {path}", lambda: call("mount", f"{workspace}/bait-directory", path, None, MS_BIND, None))
    refused(f"mounts memory over {path}", lambda: call("mount", "tmpfs", path, "tmpfs", 0, None))
    refused(f"takes the mount at {path} away", lambda: call("umount2", path, 2))
    refused(f"opens {path} to all", lambda: os.chmod(path, 0o777))


for name in (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".gitconfig", ".npmrc", ".netrc", ".pypirc", ".vimrc",
             ".curlrc", ".inputrc", ".new-rc"):
    attack_file(f"{home}/{name}")
for name in ("", ".ssh", ".config", ".local"):
    attack_directory(f"{home}/{name}".rstrip("/"))
for name in (".ssh/authorized_keys", ".ssh/config", ".config/git/hooks", ".claude", ".claude.json", ".docker", ".aws", ".kube"):
    refused(f"makes {home}/{name}", lambda: os.makedirs(f"{home}/{name}"))
refused("makes the cache the home", lambda: os.rename(f"{home}/.cache", f"{home}/.config"))

directories = [".git/hooks", ".vscode", ".idea", ".cursor", ".claude", ".codex", ".devcontainer", *own]
for name in directories:
    holds(f"{name} is there and empty", os.listdir(f"{workspace}/{name}") == [])
    attack_directory(f"{workspace}/{name}")
    # Its parents: away with them, and a whole new tree in their place.
    parent = os.path.dirname(f"{workspace}/{name}")
    while parent != workspace:
        refused(f"renames {parent} away", lambda: os.rename(parent, f"{parent}-away"))
        refused(f"moves {parent} aside", lambda: os.rename(parent, f"{workspace}/bait-directory/aside"))
        refused(f"removes {parent}", lambda: shutil.rmtree(parent))
        refused(f"puts a link at {parent}", lambda: (os.rename(parent, f"{parent}-old"), os.symlink(bait, parent)))
        parent = os.path.dirname(parent)
refused("renames the workspace away", lambda: os.rename(workspace, "/tmp/away"))
refused("removes the workspace", lambda: os.rmdir(workspace))

for name in directories:
    holds(f"{name} is still there and empty", os.listdir(f"{workspace}/{name}") == [])
# What is not protected is free.
append(f"{workspace}/free")
append(f"{home}/.cache/free")
append("/tmp/free")
append(f"{workspace}/.git/config")
for path in (f"{workspace}/free", f"{home}/.cache/free", "/tmp/free", f"{workspace}/.git/config", bait):
    holds(f"{path} can be written", os.path.getsize(path) > 0)
    os.unlink(path)
os.rmdir(f"{workspace}/bait-directory")
finish()
