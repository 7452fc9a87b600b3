//! The socket of `init`: a thread per conversation. Only root can reach it: the run folder is closed to others.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::super::parts::{PartId, Role};
use super::super::plan::Node;
use super::super::wire::{Action, Line, NodeAction, NodeStatus, Note, Reply, Request, Run, Status};
use super::keeper::{self, Keeper};
use super::{House, Parts};

/// How long a part may take until it answers: the API server on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes up conversations, for ever.
pub(super) fn serve(listener: &UnixListener, house: &Arc<House>, parts: &Arc<Parts>) {
    for stream in listener.incoming().flatten() {
        let (house, parts) = (Arc::clone(house), Arc::clone(parts));
        thread::spawn(move || {
            if let Err(error) = converse(stream, &house, &parts) {
                super::log(&format!("a client was not served: {error:#}"));
            }
        });
    }
}

fn converse(stream: UnixStream, house: &Arc<House>, parts: &Parts) -> Result<()> {
    let (line, request, files) = Line::accept(stream)?;
    let answer = match request {
        Request::Run(run) => return program(line, house, run, files),
        Request::Status => Ok(Reply::Status(status(house, parts))),
        Request::Part(action, role, node) => part(house, parts, action, role, node).map(|()| Reply::Done),
        Request::Node(action, node) => whole_node(house, parts, action, node).map(|()| Reply::Done),
        Request::Await(id) => answers(house, parts, id).map(|()| Reply::Done),
    };
    line.send(&answer.unwrap_or_else(refused))
}

#[expect(clippy::needless_pass_by_value, reason = "taken as a function")]
fn refused(error: anyhow::Error) -> Reply {
    Reply::Refused(format!("{error:#}"))
}

/// Runs a program for a client; if the client dies, so does the program with its process group.
fn program(mut line: Line, house: &Arc<House>, run: Run, files: Vec<OwnedFd>) -> Result<()> {
    let sender = line.sender()?;
    let (tell, told) = mpsc::channel();
    let pid = match spawn(house, run, files, move |status| _ = tell.send(status)) {
        Ok(pid) => pid,
        Err(error) => return sender.send(&refused(error)),
    };
    let over = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    thread::spawn(move || {
        while let Ok(Some(Note::Signal(number))) = line.receive() {
            if let (false, Ok(signal)) = (ended.load(Ordering::Acquire), Signal::try_from(number)) {
                let _ = signal::killpg(pid, signal);
            }
        }
        if !ended.load(Ordering::Acquire) {
            let _ = signal::killpg(pid, Signal::SIGKILL);
        }
    });
    let status = told.recv().context("nobody waits for the program")?;
    over.store(true, Ordering::Release);
    // A client that was killed takes no answer.
    let _ = sender.send(&Reply::Exited(status));
    Ok(())
}

fn spawn(
    house: &Arc<House>,
    run: Run,
    files: Vec<OwnedFd>,
    then: impl FnOnce(u8) + Send + 'static,
) -> Result<Pid> {
    let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(files) else {
        bail!("a program needs 3 open files");
    };
    let (program, arguments) = run.argv.split_first().context("no program is named")?;
    let program = program.clone();
    let mut command = Command::new(&program);
    command.args(arguments).env_clear().envs(run.env).current_dir(&run.cwd).process_group(0);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    let reaper = Arc::clone(&house.reaper);
    let child = house.at(run.place, move || reaper.spawn(&mut command, then))?;
    let child = child.with_context(|| format!("{program} cannot be run in {} there", run.cwd))?;
    Ok(Pid::from_raw(child.id().try_into()?))
}

fn status(house: &House, parts: &Parts) -> Status {
    let rooms = house.rooms();
    let node = |node: Node| {
        let booted = rooms.get(&node);
        NodeStatus { node, running: booted.is_some(), joined: booted.is_some_and(|booted| booted.joined) }
    };
    Status {
        complete: house.complete.load(Ordering::Acquire),
        parts: parts.status(),
        nodes: house.plan.nodes().map(node).collect(),
    }
}

fn part(house: &House, parts: &Parts, action: Action, role: Role, node: Option<Node>) -> Result<()> {
    let id = PartId { role, node: role.on_each_node().then(|| node.unwrap_or(Node(0))) };
    if let (Some(node), false) = (node, role.on_each_node()) {
        bail!("there is one {role} for the whole cluster, none of {node}'s own");
    }
    let (_, keeper) = parts.find(id)?;
    if action != Action::Start {
        keeper.stop()?;
    }
    if action != Action::Stop {
        keeper.wake()?;
        answers(house, parts, id)?;
    }
    Ok(())
}

fn whole_node(house: &House, parts: &Parts, action: NodeAction, node: Node) -> Result<()> {
    if node == Node(0) {
        bail!("node0 carries the control plane; stop its parts one by one, or take a node of `up --nodes 2`");
    }
    if node.0 >= house.plan.nodes {
        bail!("this cluster has {} nodes and no {node}", house.plan.nodes);
    }
    match action {
        NodeAction::Stop => {
            house.room(node)?;
            // First their keepers, or they would start again what dies.
            parts.of(node).try_for_each(Keeper::stop)?;
            house.cut_power(node)
        }
        NodeAction::Start => {
            if house.room(node).is_err() {
                house.boot(node)?;
            }
            parts.of(node).try_for_each(Keeper::wake)
        }
        NodeAction::Cut => house.plug(node, false),
        NodeAction::Join => house.plug(node, true),
    }
}

/// Waits until a part answers.
fn answers(house: &House, parts: &Parts, id: PartId) -> Result<()> {
    let (launch, keeper) = parts.find(id)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tried = launch.answers.clone();
        if keeper.status(launch).pid.is_some() && house.at(launch.place, move || keeper::answers(&tried))? {
            return Ok(());
        }
        if keeper.status(launch).state == "stopped" {
            bail!("{id} is stopped; start it with `cluster part start {}`", id.role);
        }
        if Instant::now() > deadline {
            let log = house.plan.log(&format!("{id}.log"));
            bail!("{id} does not answer after {} s; see {}", PATIENCE.as_secs(), log.display());
        }
        thread::sleep(Duration::from_millis(25));
    }
}
