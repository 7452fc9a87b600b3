//! A container as small as these tests need: a PID namespace with its own /proc, the agent as process 1, no
//! privileges. Everything in it dies with the value that owns it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use glovebox::report::{ExitRecord, parse_exit_record};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A user that nobody else on the machine is, so that a process limit counts these tests alone.
pub(crate) const USER: &str = "64321";
/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of one test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("glovebox-agent-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with a mode.
    pub(crate) fn file(&self, name: &str, content: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How a container is made.
pub(crate) struct Recipe {
    scratch: Scratch,
    before: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Recipe {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        // A copy: the build's own directory may be closed to other users.
        let agent = scratch.path().join("glovebox-agent");
        // By a process of its own: one that another test starts meanwhile would hold a file that is open for writing here, and
        // a program that somebody writes can't be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_glovebox-agent")).arg(agent).status();
        assert!(copied.unwrap().success());
        // Longer than any record: what is left of it would show.
        scratch.file("log", &"what stood here before ".repeat(50), 0o666);
        Self { scratch, before: String::new(), options: Vec::new(), environment: Vec::new() }
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Shell commands that run in the container just before the agent takes their place.
    pub(crate) fn before(mut self, commands: &str) -> Self {
        self.before = format!("{commands}; ");
        self
    }

    pub(crate) fn option(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `run` with a shell script as the workload.
    pub(crate) fn shell(self, script: &str) -> Container {
        self.run(&["/bin/sh", "-c", script])
    }

    pub(crate) fn run(self, command: &[&str]) -> Container {
        let workload = ["--"].iter().chain(command).map(ToString::to_string).collect();
        self.start("run", workload)
    }

    pub(crate) fn idle(self) -> Container {
        self.start("idle", Vec::new())
    }

    fn start(self, subcommand: &str, workload: Vec<String>) -> Container {
        let directory = self.scratch.path();
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount", "--mount-proc"]);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            unshare.args(["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"]);
            unshare.args(["--bounding-set", "-all", "--no-new-privs"]);
        } else {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["/bin/sh", "-c", &format!("{}exec \"$@\"", self.before), "sh"]);
        unshare.arg(directory.join("glovebox-agent")).arg(subcommand);
        unshare.arg("--termination-log").arg(directory.join("log")).args(&self.options).args(workload);
        unshare.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").envs(self.environment);
        unshare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = unshare.spawn().expect("unshare of util-linux is needed");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = child.stderr.take().unwrap();
        Container { scratch: self.scratch, child, stdout, stderr, process_1: None }
    }
}

/// A container that runs.
pub(crate) struct Container {
    scratch: Scratch,
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
    process_1: Option<Pid>,
}

/// How a container ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What stands in the termination log.
    pub(crate) log: String,
}

impl Ended {
    pub(crate) fn record(&self) -> ExitRecord {
        parse_exit_record(&self.log).unwrap_or_else(|error| panic!("{error}: {:?}", self.log))
    }
}

impl Container {
    /// The next line that the workload prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Process 1 as this test's namespace names it, once it listens for signals.
    pub(crate) fn process_1(&mut self) -> Pid {
        if let Some(pid) = self.process_1 {
            return pid;
        }
        let unshare = self.child.id();
        let pid = eventually("the agent listens for signals", || {
            let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
            let pid: i32 = children.split_whitespace().next()?.parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?.trim();
            (status.starts_with("Name:\tglovebox-agent") && blocked != "0000000000000000").then_some(pid)
        });
        *self.process_1.insert(Pid::from_raw(pid))
    }

    /// Sends a signal to process 1 from outside.
    pub(crate) fn signal(&mut self, signal: Signal) {
        kill(self.process_1(), signal).unwrap();
    }

    /// Waits for the end of the container and of everything that holds its output open.
    pub(crate) fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        // unshare repeats the exit status of its child, and dies by the signal that its child died of.
        let code = status.code().unwrap_or(-1);
        let log = fs::read_to_string(self.scratch.path().join("log")).unwrap();
        Ended { code, stdout, stderr, log }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let pid = self.process_1();
            let _ = kill(pid, Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Asks again every 5 ms until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
