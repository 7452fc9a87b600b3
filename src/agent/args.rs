//! Owns the agent's command line. Parsed by hand: three commands do not pay for a parser in every sandbox's memory.
//! Pure; must not look at files, so a path is only checked for its shape.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::fault::Fault;
use super::kernel::Isolation;

mod fence;
#[cfg(test)]
mod tests;
mod trust;

pub use fence::FenceArgs;
pub use trust::TrustArgs;

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

  --termination-log FILE             where init, run and idle report [default: /dev/termination-log]
  --help, --version
";

/// Where the kubelet looks for a container's last words, unless the pod names another file.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// From TERM to the kill of everything.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(700);
/// Longest time that an option takes: more than any of them can need.
const MAX_MS: u64 = 600_000;
/// Most times that a repeatable option may be given.
const MAX_REPEATS: usize = 64;

/// One command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// `--help`
    Help,
    /// `--version`
    Version,
    /// `init`
    Init(InitArgs),
    /// `run`
    Run(RunArgs),
    /// `idle`
    Idle(IdleArgs),
    /// `look`
    Look(FenceArgs),
}

/// Options of `init`.
#[derive(Debug, PartialEq, Eq)]
pub struct InitArgs {
    /// What the class promises.
    pub isolation: Isolation,
    /// Go on though the kernel is less than promised.
    pub accept_weaker: bool,
    /// Where to copy this program to.
    pub agent_dir: PathBuf,
    /// The home directory to fill.
    pub home_dir: PathBuf,
    /// Empty directories to make in it, relative.
    pub home_mountpoints: Vec<PathBuf>,
    /// The workspace, at the path the workload will see.
    pub workspace: PathBuf,
    /// Empty directories to make in it, relative.
    pub workspace_mountpoints: Vec<PathBuf>,
    /// Directories beside the workspace that git may use though they belong to another user.
    pub git_safe_directories: Vec<PathBuf>,
    /// What must hold of the network before the workload exists.
    pub fence: FenceArgs,
    /// Where to report.
    pub termination_log: PathBuf,
}

/// Options of `run`.
#[derive(Debug, PartialEq, Eq)]
pub struct RunArgs {
    /// Where to start the command.
    pub cwd: Option<PathBuf>,
    /// Directories to append to PATH.
    pub path_append: Vec<PathBuf>,
    /// From TERM to the kill of everything.
    pub grace: Duration,
    /// What must hold of the network all the time.
    pub fence: FenceArgs,
    /// Whom the sandbox trusts besides.
    pub trust: Option<TrustArgs>,
    /// Where to report.
    pub termination_log: PathBuf,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// Options of `idle`.
#[derive(Debug, PartialEq, Eq)]
pub struct IdleArgs {
    /// From TERM to the kill of everything.
    pub grace: Duration,
    /// What must hold of the network all the time.
    pub fence: FenceArgs,
    /// Whom the sandbox trusts besides.
    pub trust: Option<TrustArgs>,
    /// Where to report.
    pub termination_log: PathBuf,
}

/// Reads a command line, without the program's name.
///
/// # Errors
/// A usage [`Fault`] that names the option, the value and what would be right.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Fault> {
    let mut words = arguments.into_iter();
    let Some(first) = words.next() else {
        return Err(Fault::usage("no command given, expected init, run, idle or look"));
    };
    let rest = Words { inner: words.collect::<Vec<_>>().into_iter() };
    match first.to_str() {
        Some("--help" | "-h" | "help") => Ok(Command::Help),
        Some("--version" | "-V") => Ok(Command::Version),
        Some("init") => parse_init(rest),
        Some("run") => parse_run(rest),
        Some("idle") => parse_idle(rest),
        Some("look") => parse_look(rest),
        _ => Err(Fault::usage(&format!(
            "unknown command {}, expected init, run, idle or look",
            first.display()
        ))),
    }
}

fn parse_init(mut words: Words) -> Result<Command, Fault> {
    let (mut isolation, mut agent_dir, mut home_dir, mut workspace) = (None, None, None, None);
    let mut accept_weaker = false;
    let (mut home_mountpoints, mut workspace_mountpoints) = (Vec::new(), Vec::new());
    let mut git_safe_directories = Vec::new();
    let mut fence = FenceArgs::default();
    let mut termination_log = PathBuf::from(TERMINATION_LOG);
    while let Some(option) = words.option("init")? {
        match option.as_str() {
            "--help" => return Ok(Command::Help),
            "--isolation" => isolation = Some(words.isolation(&option)?),
            "--accept-weaker" => accept_weaker = true,
            "--agent-dir" => agent_dir = Some(words.absolute(&option)?),
            "--home-dir" => home_dir = Some(words.absolute(&option)?),
            "--home-mountpoint" => push(&mut home_mountpoints, &option, words.relative(&option)?)?,
            "--workspace" => workspace = Some(words.absolute(&option)?),
            "--workspace-mountpoint" => push(&mut workspace_mountpoints, &option, words.relative(&option)?)?,
            "--git-safe-directory" => push(&mut git_safe_directories, &option, words.absolute(&option)?)?,
            "--termination-log" => termination_log = words.absolute(&option)?,
            _ if fence.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "init")),
        }
    }
    let missing = |option| Fault::usage(&format!("init needs {option}"));
    Ok(Command::Init(InitArgs {
        isolation: isolation.ok_or_else(|| missing("--isolation"))?,
        accept_weaker,
        agent_dir: agent_dir.ok_or_else(|| missing("--agent-dir"))?,
        home_dir: home_dir.ok_or_else(|| missing("--home-dir"))?,
        home_mountpoints,
        workspace: workspace.ok_or_else(|| missing("--workspace"))?,
        workspace_mountpoints,
        git_safe_directories,
        fence,
        termination_log,
    }))
}

fn parse_run(mut words: Words) -> Result<Command, Fault> {
    let mut run = RunArgs {
        cwd: None,
        path_append: Vec::new(),
        grace: DEFAULT_GRACE,
        fence: FenceArgs::default(),
        trust: None,
        termination_log: PathBuf::from(TERMINATION_LOG),
        command: Vec::new(),
    };
    let mut trust = trust::Options::default();
    while let Some(option) = words.option("run")? {
        match option.as_str() {
            "--" => {
                run.command = words.inner.collect();
                break;
            }
            "--help" => return Ok(Command::Help),
            "--cwd" => run.cwd = Some(words.absolute(&option)?),
            "--path-append" => push(&mut run.path_append, &option, words.absolute(&option)?)?,
            "--grace" => run.grace = words.millis(&option)?,
            "--termination-log" => run.termination_log = words.absolute(&option)?,
            _ if run.fence.take(&option, &mut words)? || trust.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "run")),
        }
    }
    if run.command.is_empty() {
        return Err(Fault::usage("run needs a command after --"));
    }
    run.trust = trust.whole()?;
    Ok(Command::Run(run))
}

fn parse_idle(mut words: Words) -> Result<Command, Fault> {
    let mut idle = IdleArgs {
        grace: DEFAULT_GRACE,
        fence: FenceArgs::default(),
        trust: None,
        termination_log: PathBuf::from(TERMINATION_LOG),
    };
    let mut trust = trust::Options::default();
    while let Some(option) = words.option("idle")? {
        match option.as_str() {
            "--help" => return Ok(Command::Help),
            "--grace" => idle.grace = words.millis(&option)?,
            "--termination-log" => idle.termination_log = words.absolute(&option)?,
            _ if idle.fence.take(&option, &mut words)? || trust.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "idle")),
        }
    }
    idle.trust = trust.whole()?;
    Ok(Command::Idle(idle))
}

fn parse_look(mut words: Words) -> Result<Command, Fault> {
    let mut fence = FenceArgs::default();
    while let Some(option) = words.option("look")? {
        match option.as_str() {
            "--help" => return Ok(Command::Help),
            _ if fence.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "look")),
        }
    }
    if !fence.is_asked() {
        return Err(Fault::usage("look needs --fence-forbid"));
    }
    Ok(Command::Look(fence))
}

fn unknown(option: &str, command: &str) -> Fault {
    Fault::usage(&format!("unknown option {option} of {command}"))
}

fn push<T>(list: &mut Vec<T>, option: &str, value: T) -> Result<(), Fault> {
    if list.len() == MAX_REPEATS {
        return Err(Fault::usage(&format!("{option} is given more than {MAX_REPEATS} times")));
    }
    list.push(value);
    Ok(())
}

/// The words that are left.
struct Words {
    inner: std::vec::IntoIter<OsString>,
}

impl Words {
    /// The next option's name, or `None` at the end.
    fn option(&mut self, command: &str) -> Result<Option<String>, Fault> {
        let Some(word) = self.inner.next() else { return Ok(None) };
        match word.to_str() {
            Some(name) if name.starts_with("--") => Ok(Some(name.to_owned())),
            _ => Err(Fault::usage(&format!("unexpected argument {} of {command}", word.display()))),
        }
    }

    fn value(&mut self, option: &str) -> Result<OsString, Fault> {
        self.inner.next().ok_or_else(|| Fault::usage(&format!("{option} needs a value")))
    }

    fn isolation(&mut self, option: &str) -> Result<Isolation, Fault> {
        let value = self.value(option)?;
        value
            .to_str()
            .and_then(Isolation::from_name)
            .ok_or_else(|| wrong(option, &value, "VirtualMachine, UserspaceKernel or SharedKernel"))
    }

    fn address(&mut self, option: &str) -> Result<SocketAddr, Fault> {
        let value = self.value(option)?;
        let address = value.to_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| {
            wrong(option, &value, "an address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443")
        })
    }

    fn ip(&mut self, option: &str) -> Result<IpAddr, Fault> {
        let value = self.value(option)?;
        let address = value.to_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| wrong(option, &value, "an address such as 192.0.2.1 or 2001:db8::1"))
    }

    fn millis(&mut self, option: &str) -> Result<Duration, Fault> {
        let value = self.value(option)?;
        let millis = value.to_str().and_then(|text| text.parse::<u64>().ok());
        match millis {
            Some(millis) if millis <= MAX_MS => Ok(Duration::from_millis(millis)),
            _ => Err(wrong(option, &value, "milliseconds from 0 to 600000")),
        }
    }

    fn absolute(&mut self, option: &str) -> Result<PathBuf, Fault> {
        let value = self.value(option)?;
        let path = Path::new(&value);
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if path.is_absolute() && path.components().all(plain) {
            return Ok(path.to_path_buf());
        }
        Err(wrong(option, &value, "an absolute path without .."))
    }

    fn relative(&mut self, option: &str) -> Result<PathBuf, Fault> {
        let value = self.value(option)?;
        let path = Path::new(&value);
        let mut parts = path.components().peekable();
        if parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_))) {
            return Ok(path.to_path_buf());
        }
        Err(wrong(option, &value, "a relative path without .."))
    }
}

fn wrong(option: &str, value: &OsStr, expected: &str) -> Fault {
    Fault::usage(&format!("{option} is {:?}, expected {expected}", value.to_string_lossy()))
}
