//! The text of `--help`.

/// What `--help` prints.
pub const HELP: &str = "\
glovebox-agent: what runs inside a sandbox's pod

USAGE
  glovebox-agent init --isolation KIND --agent-dir DIR --home-dir DIR --workspace DIR [OPTIONS]
      Prepares the pod before the workload exists: copies this program, fills the home
      directory, and reports the kernel on the termination log.
        --isolation KIND             what the class promises: VirtualMachine, UserspaceKernel
                                     or SharedKernel; surely less ends with status 78
        --accept-weaker              report less than promised, but go on
        --agent-dir DIR              where to copy this program to
        --home-dir DIR               the home directory to fill
        --home-mountpoint REL        an empty directory to make in the home (repeatable)
        --workspace DIR              the workspace, at the path the workload will see
        --workspace-mountpoint REL   an empty directory to make in the workspace (repeatable)
        --git-safe-directory DIR     a further directory git may use though it belongs to
                                     another user (repeatable; the workspace always is)

  glovebox-agent run [OPTIONS] -- COMMAND [ARGUMENT]...
      Process 1 of the workload's container: runs COMMAND until it ends or until TERM
      comes, then kills whatever is left and exits with COMMAND's status (128 + signal,
      127 not found, 126 cannot be executed).
        --cwd DIR                    where to start COMMAND; made if missing
        --path-append DIR            a directory to append to PATH (repeatable)
        --grace MS                   from TERM to the kill of everything [default: 700]

  glovebox-agent idle [--grace MS]
      Process 1 of a container without a workload: reaps and waits for TERM.

  glovebox-agent look [OPTIONS]
      Tries the fence now: 0 if it holds, 79 if it is open, 80 if nothing could be tried.

  Of init, which proves the fence once, of run and idle, which repeat the proof, and of look:
        --fence-forbid ADDR:PORT     what must not be reachable (repeatable)
        --fence-node ADDR            a node, whose kubelet (port 10250) must not be reachable
        --fence-gateway ADDR:PORT    what must be reachable beside it (repeatable)
        --fence-dns ADDR:PORT        a name server that must answer (over UDP)
        --fence-within MS            how long init tries [default: 60000]
        --fence-every MS             from proof to proof in run and idle [default: 5000]
      init ends with status 79 where the fence is open and 80 where the gateway does not
      answer; run and idle kill everything and end with 79 where it came to be open.

  Of run and idle, before anything else starts:
        --trust-authority PEM        certificates that the sandbox trusts besides those of
                                     its image
        --trust-dir DIR              where to write them, for programs to be pointed at

  Of run and idle, all or none, where the sandbox's sessions may have commands run:
        --calls-listen ADDR:PORT     where calls come in; without it no port is open
        --calls-uid UID              the sandbox's, for which a call must be signed
        --calls-key BASE64           an Ed25519 public key whose signature counts
                                     (repeatable, for a change of keys)
        --calls-most N               how many calls may run at once, whatever they say [default: 1024]
        --calls-workspace DIR        below which sessions may read and write files; without
                                     it they may not
      A call ends with its first process: whatever else it started is killed then, or at
      its deadline. What an exec of Kubernetes leaves behind may be taken for a call's.

  --termination-log FILE             where init, run and idle report [default: /dev/termination-log]
  --help, --version

run and idle start keep, call, file and stage for themselves.
";
