//! The near end of the socket of `init`: asks it things, and runs programs in its namespaces with this process's
//! own standard input, output and error. Works from the machine and from inside the cluster alike.

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};

use super::plan::{Place, Plan, files};
use super::wire::{Line, Note, Reply, Request, Run, Status};

/// Asks `init` one thing.
pub(crate) fn ask(run: &Path, request: &Request) -> Result<Reply> {
    let mut line = Line::open(connect(run)?, request, &[])?;
    match line.receive()? {
        Some(Reply::Refused(why)) => bail!("{why}"),
        Some(reply) => Ok(reply),
        None => bail!("the cluster went down meanwhile; `cargo xtask cluster up` starts it again"),
    }
}

/// Asks for the state of the parts.
pub(crate) fn status(run: &Path) -> Result<Status> {
    match ask(run, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        other => bail!("init answered {other:?} when asked for its state"),
    }
}

/// Runs a program at a place, in this process's folder, and gives its exit status. Signals that would end this
/// process go to the program instead; if this process is killed, so is the program.
pub(crate) fn run(plan: &Plan, place: Place, argv: Vec<String>) -> Result<u8> {
    let cwd = env::current_dir().context("the current folder is gone")?;
    let cwd = cwd.to_str().context("the current folder's name is not UTF-8")?.to_owned();
    let request = Request::Run(Run { place, argv, env: environment(plan, place), cwd });
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block().context("signals cannot be held back")?;

    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let files = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let mut line = Line::open(connect(&plan.run)?, &request, &files)?;
    let sender = line.sender()?;
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let _ = sender.send(&Note::Signal(signal as i32));
        }
    });
    match line.receive()? {
        Some(Reply::Exited(status)) => Ok(status),
        Some(Reply::Refused(why)) => bail!("{why}"),
        Some(other) => bail!("init answered {other:?} when asked to run a program"),
        None => bail!("the cluster went down while the program ran"),
    }
}

fn connect(run: &Path) -> Result<UnixStream> {
    let socket = run.join(files::SOCKET);
    UnixStream::connect(&socket).with_context(|| {
        format!("no cluster is up in {}; `cargo xtask cluster up` starts one", run.display())
    })
}

/// This process's environment, and what tells a program which cluster it is in.
fn environment(plan: &Plan, place: Place) -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut all: BTreeMap<_, _> = env::vars_os().filter_map(text).collect();
    let file = |name: &str| plan.file(name).display().to_string();
    let base = plan.run.parent().unwrap_or(&plan.run).display().to_string();
    let bin = file("bin");
    let path = all.remove("PATH").unwrap_or_default();
    let path = if path.split(':').any(|entry| entry == bin) { path } else { format!("{bin}:{path}") };
    all.extend([
        ("PATH".to_owned(), path),
        ("GLOVEBOX_CLUSTER".to_owned(), plan.name.as_str().to_owned()),
        (crate::paths::RUN_BASE.to_owned(), base),
        ("GLOVEBOX_CLUSTER_RUN_DIR".to_owned(), plan.run.display().to_string()),
        ("GLOVEBOX_CLUSTER_SOCKET".to_owned(), file(files::SOCKET)),
        ("GLOVEBOX_XTASK".to_owned(), file(files::XTASK)),
    ]);
    // Clusters have the same address one after another: what kubectl learnt of one is wrong for the next.
    all.extend([
        ("KUBECACHEDIR".to_owned(), file("tmp/kubectl")),
        ("HELM_CACHE_HOME".to_owned(), file("tmp/helm")),
    ]);
    if place != Place::World {
        all.insert("KUBECONFIG".to_owned(), file(files::KUBECONFIG));
    }
    all
}
