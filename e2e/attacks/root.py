# Becoming root, leaving the container, or staying in it for a later start.
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = 0x20000, 0x10000000, 0x40000000, 0x20000000
MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096
may_be_root = "root" in sys.argv[1:]
# User 0 of a kernel that is the sandbox's own may turn that kernel's knobs; nobody else meets them.
own_kernel = "gvisor" in open("/proc/version").read()

me = status_of()
if not may_be_root:
    holds("is nobody", os.getuid() == os.geteuid() == 65532 and os.getgid() == 65532, f"{os.getuid()} {os.getgid()}")
    holds("is in no other group", set(os.getgroups()) <= {65532}, os.getgroups())
for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    holds(f"no capability in {kind}", int(me.get(kind, "0"), 16) == 0, me.get(kind))
holds("no new privileges", libc.prctl(39, 0, 0, 0, 0) == 1)

# Places of which something would run later, in this container or the next.
for place in ("/", "/usr", "/usr/bin", "/usr/local/bin", "/usr/lib", "/etc", "/etc/profile.d", "/var", "/opt", "/root", "/.glovebox",
              "/bin", "/sbin", "/lib"):
    if may_be_root or place != "/root":
        refused(f"creates a file in {place}", lambda: append(f"{place}/evil"))
for place in ("/etc/cron.d", "/etc/cron.daily", "/var/spool/cron/crontabs", "/etc/ld.so.conf.d", "/etc/systemd/system", "/etc/init.d"):
    def drop():
        os.makedirs(place, exist_ok=True)
        append(f"{place}/evil")
    refused(f"drops a file in {place}", drop)
for file in ("/etc/ld.so.preload", "/etc/passwd", "/etc/shadow", "/etc/profile", "/etc/crontab", "/etc/hosts", "/etc/resolv.conf",
             "/etc/sudoers", "/bin/sh", "/usr/bin/python3", "/.glovebox/glovebox-agent", "/proc/1/exe"):
    # The kubelet's list of hosts belongs to this pod alone, and to its user 0.
    if not may_be_root or file != "/etc/hosts":
        refused(f"writes {file}", lambda: append(file))
for file in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory",
             "/proc/sys/net/ipv4/ip_forward", "/proc/sysrq-trigger"):
    if os.path.exists(file) and not (may_be_root and own_kernel):
        refused(f"writes {file}", lambda: append(file, "1"))
writable = []
for top in ("/proc/sys", "/sys"):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                writable.append(path)
            except OSError:
                pass
if not (may_be_root and own_kernel):
    holds("nothing of /proc/sys and /sys can be opened for writing", not writable, writable[:5])
for device in ("/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/loop-control"):
    holds(f"there is no {device}", not os.path.exists(device))

refused("remounts / writable", lambda: call("mount", None, "/", None, MS_REMOUNT | MS_BIND, None))
refused("mounts a tmpfs", lambda: call("mount", "tmpfs", "/workspace", "tmpfs", 0, None))
refused("binds / over the workspace", lambda: call("mount", "/", "/workspace", None, MS_BIND, None))
refused("mounts proc", lambda: call("mount", "proc", "/tmp", "proc", 0, None))
refused("takes a mount away", lambda: call("umount2", "/etc/hosts", 2))
refused("takes /proc away", lambda: call("umount2", "/proc", 2))
for name, flags in (("mount", CLONE_NEWNS), ("network", CLONE_NEWNET), ("process", CLONE_NEWPID)):
    refused(f"makes a {name} namespace", lambda: call("unshare", flags))
refused("changes the root", lambda: os.chroot("/workspace"))
refused("pivots the root", lambda: call("syscall", 155, b"/workspace", b"/workspace"))
for name, number in (("memory", (1, 1)), ("disk", (8, 0))):
    refused(f"makes a {name} device", lambda: os.mknod(f"/workspace/{name}", 0o666 | stat.S_IFCHR, os.makedev(*number)))
if not may_be_root:
    refused("becomes user 0", lambda: os.setuid(0))
    refused("becomes group 0", lambda: os.setgid(0))
refused("joins other groups", lambda: os.setgroups([0, 6, 42]))
refused("gives a file away", lambda: (append("/workspace/mine"), os.chown("/workspace/mine", 1, 1)))
refused("sets the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
refused("sets the host's name", lambda: call("sethostname", b"evil", 4))
refused("loads a kernel module", lambda: call("syscall", 175, b"", 0, b""))
refused("loads another kernel", lambda: call("syscall", 246, 0, 0, 0, 0))
refused("opens a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
refused("opens a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
refused("traces process 1", lambda: call("ptrace", 16, 1, 0, 0))
refused("reads process 1's memory", lambda: open("/proc/1/mem", "rb").close())
refused("reads process 1's environment", lambda: open("/proc/1/environ", "rb").read())
refused("leaves by process 1's root", lambda: os.listdir("/proc/1/root/"))

# A program that would run as root if its bit counted.
shutil.copy("/usr/bin/id", "/workspace/id")
os.chmod("/workspace/id", 0o6755)
holds("a set-user-id program gives nothing", os.popen("/workspace/id -u").read().strip() == str(os.getuid()))
finish()
