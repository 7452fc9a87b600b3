# Looking for anything of the outside: mounts, sockets, devices, tokens, environments. Arguments: JSON of the inputs, path to file in it.
inputs = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
home, workspace = "/home/sandbox", "/workspace"
protected = [f"{workspace}/{name}" for name in (".git/hooks", ".vscode", ".idea", ".cursor", ".claude", ".codex", ".devcontainer")]

# Whom it trusts, where the installation has an authority.
trust = {"/.glovebox-trust"} if os.path.isdir("/.glovebox-trust") else set()
# What is ours, in memory; what the container's runtime gives every container.
writable = {workspace, f"{workspace}/.git", f"{home}/.cache", "/tmp", "/dev/shm", "/dev/mqueue", "/dev/termination-log"} | trust
read_only = {"/", home, "/.glovebox", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", *protected, *inputs}
kernels = ("/proc", "/sys", "/dev")
from_disk = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/dev/termination-log", *inputs}
in_memory = {"tmpfs", "shm", "mqueue", "devpts", "proc", "sysfs", "cgroup", "cgroup2", "dev"}

found = mounts()
points = {mount["point"] for mount in found}
for mount in found:
    point = mount["point"]
    kernel = any(point == top or point.startswith(f"{top}/") for top in kernels)
    holds(f"{point} is one of those that belong here", point in writable | read_only or kernel, mount)
    if point in read_only and point != "/etc/hosts":
        holds(f"{point} is read-only", "ro" in mount["options"], mount["options"])
    # gVisor reaches every mount through its gofer and calls it 9p, whatever is behind.
    if mount["type"] not in in_memory | {"9p"}:
        holds(f"{point} may come from a disk", point == "/" or point in from_disk, mount)
for point in writable - {"/dev/mqueue"}:
    holds(f"{point} is there", point in points or os.path.exists(point))
for point in read_only:
    holds(f"{point} is there", point in points)
    if os.path.isdir(point):
        refused(f"creates a file in {point}", lambda: append(f"{point}/evil"))
    else:
        refused(f"writes {point}", lambda: append(point))
for mount in found:
    if any(mount["point"].startswith(f"{top}/") for top in kernels) and mount["point"] not in writable and os.path.isdir(mount["point"]):
        refused(f"creates a file in {mount['point']}", lambda: append(f"{mount['point']}/evil"), REFUSALS | {errno.ENOENT, errno.EINVAL})

for path in ("/var/run/secrets", "/run/secrets", "/var/run/docker.sock", "/run/containerd", "/var/run/crio", "/var/lib/kubelet",
             "/etc/kubernetes", "/host", "/rootfs"):
    holds(f"there is no {path}", not os.path.exists(path))
odd = []
for top in points - {"/proc", "/sys"} - {mount["point"] for mount in found if mount["point"].startswith(("/proc/", "/sys/"))} - {"/"} - set(inputs):
    for directory, _, names in os.walk(top):
        for name in names:
            mode = os.lstat(os.path.join(directory, name)).st_mode
            if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
                odd.append(os.path.join(directory, name))
holds("no socket and no disk is mounted", not odd, odd)

read = 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            names = [variable.split(b"=")[0].decode() for variable in file.read().split(b"\0") if variable]
    except OSError:
        continue
    read += 1
    bad = [name for name in names if name.startswith(("KUBERNETES_", "GLOVEBOX_", "AWS_", "GOOGLE_", "AZURE_")) and name != "AWS_CA_BUNDLE"
           or any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "SERVICE_HOST"))]
    holds(f"the environment of process {pid} is clean", not bad, bad)
holds("an environment was read", read > 0)
leaked = [name for name in os.listdir(home) if name not in (".ssh", ".config", ".local", ".cache", ".gitconfig")
          and os.path.getsize(f"{home}/{name}") > 0]
holds("the home directory has nothing of anybody's", not leaked, leaked)
for name in (".ssh", ".config", ".local"):
    holds(f"~/{name} is empty", os.listdir(f"{home}/{name}") == [])

for path, file in inputs.items():
    whole = f"{path}/{file}"
    holds(f"{whole} can be read", len(open(whole, "rb").read()) > 0)
    refused(f"appends to {whole}", lambda: append(whole))
    refused(f"removes {whole}", lambda: os.unlink(whole))
    refused(f"renames {whole}", lambda: os.rename(whole, f"{path}/other"))
    refused(f"opens {path} to all", lambda: os.chmod(path, 0o777))
    refused(f"remounts {path} writable", lambda: call("mount", None, path, None, 32 | 4096, None))
finish()
