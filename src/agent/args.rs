//! Owns the agent's command line. Parsed by hand: a few commands do not pay for a parser in every sandbox's memory.
//! Pure; must not look at files, so a path is only checked for its shape.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::fault::Fault;
use super::kernel::Isolation;

mod calls;
mod fence;
mod help;
mod own;
#[cfg(test)]
mod tests;
mod trust;
mod words;

pub use calls::CallsArgs;
pub use fence::FenceArgs;
pub use help::HELP;
pub use own::StageArgs;
pub use trust::TrustArgs;
use words::{Words, push, unknown};

/// Where the kubelet looks for a container's last words, unless the pod names another file.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// From TERM to the kill of everything.
pub const DEFAULT_GRACE: Duration = Duration::from_millis(700);

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
    /// `keep`, with the workload's command; never empty
    Keep(Vec<OsString>),
    /// `call`
    Call,
    /// `file`, with the workspace
    File(PathBuf),
    /// `stage`
    Stage(StageArgs),
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
    /// Where calls come in.
    pub calls: Option<CallsArgs>,
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
    /// Where calls come in.
    pub calls: Option<CallsArgs>,
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
        Some("keep") => own::keep(rest).map(Command::Keep),
        Some("call") => own::call(rest).map(|()| Command::Call),
        Some("file") => own::file(rest).map(Command::File),
        Some("stage") => own::stage(rest).map(Command::Stage),
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
        calls: None,
        termination_log: PathBuf::from(TERMINATION_LOG),
        command: Vec::new(),
    };
    let mut trust = trust::Options::default();
    let mut calls = calls::Options::default();
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
            _ if calls.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "run")),
        }
    }
    if run.command.is_empty() {
        return Err(Fault::usage("run needs a command after --"));
    }
    run.trust = trust.whole()?;
    run.calls = calls.whole()?;
    Ok(Command::Run(run))
}

fn parse_idle(mut words: Words) -> Result<Command, Fault> {
    let mut idle = IdleArgs {
        grace: DEFAULT_GRACE,
        fence: FenceArgs::default(),
        trust: None,
        calls: None,
        termination_log: PathBuf::from(TERMINATION_LOG),
    };
    let mut trust = trust::Options::default();
    let mut calls = calls::Options::default();
    while let Some(option) = words.option("idle")? {
        match option.as_str() {
            "--help" => return Ok(Command::Help),
            "--grace" => idle.grace = words.millis(&option)?,
            "--termination-log" => idle.termination_log = words.absolute(&option)?,
            _ if idle.fence.take(&option, &mut words)? || trust.take(&option, &mut words)? => {}
            _ if calls.take(&option, &mut words)? => {}
            _ => return Err(unknown(&option, "idle")),
        }
    }
    idle.trust = trust.whole()?;
    idle.calls = calls.whole()?;
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
