//! The cluster's `init`: PID 1 of its namespaces, the world's router, the parent of every part. Killing it ends
//! everything. It decides nothing about Kubernetes: it makes places, keeps processes alive and serves a socket.

mod keeper;
mod net;
pub(crate) mod node;
mod reaper;
mod serve;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{self, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use self::keeper::Keeper;
use self::reaper::Reaper;
use super::parts::{self, Launch, PartId};
use super::plan::{Node, Place, Plan, files};
use super::spaces::{self, Room};
use super::{cgroup, wire};

/// What `up` says once `init` may begin, and what it says at its end. If it dies before, `init` dies too.
pub(super) const BEGIN: &str = "begin";
/// From then on the cluster lives by itself.
pub(super) const KEEP: &str = "keep";
/// What `init` says once its socket is there.
pub(super) const READY: &str = "ready";

/// How long the last processes of a node may take to leave their control groups.
const DYING: Duration = Duration::from_secs(10);

/// Everything `init` knows.
struct House {
    plan: Plan,
    reaper: Arc<Reaper>,
    rooms: Mutex<BTreeMap<Node, Booted>>,
    complete: AtomicBool,
}

/// A node whose namespaces are there.
struct Booted {
    pid: u32,
    room: Arc<Room>,
    gone: Receiver<()>,
    joined: bool,
}

/// The parts, in the order of starting.
struct Parts(Vec<(Launch, Keeper)>);

/// Runs as PID 1, until it is killed or the `up` that made it dies before its end.
pub(super) fn main(plan: Plan) -> Result<()> {
    let mut orders = io::stdin().lock().lines();
    expect(orders.next(), BEGIN)?;
    let outcome = begin(plan).and_then(|house| {
        writeln!(io::stdout(), "{READY}").context("`up` hung up")?;
        Ok(house)
    });
    if let Err(error) = &outcome {
        // For `up`, which shows it; the log gets it too.
        let _ = writeln!(io::stdout(), "{error:#}");
    }
    let house = outcome?;
    expect(orders.next(), KEEP)?;
    house.complete.store(true, Ordering::Release);
    writeln!(io::stdout(), "{KEEP}").context("`up` hung up")?;
    loop {
        thread::park();
    }
}

fn expect(order: Option<io::Result<String>>, wanted: &str) -> Result<()> {
    match order {
        Some(Ok(order)) if order == wanted => Ok(()),
        Some(Ok(order)) => bail!("`up` said {order:?} instead of {wanted:?}"),
        Some(Err(_)) | None => bail!("`up` ended before the cluster was complete"),
    }
}

fn begin(plan: Plan) -> Result<Arc<House>> {
    nix::unistd::setsid().context("no session of its own")?;
    cgroup::enter(&plan)?;
    let resolver = node::resolver()?;
    node::own_proc()?;
    node::cover(&plan.file("resolv.conf"), &resolver)?;
    let rooms = Mutex::default();
    let house = Arc::new(House { plan, reaper: Reaper::start(), rooms, complete: AtomicBool::new(false) });
    net::world(&house.reaper)?;
    house.plan.nodes().try_for_each(|node| house.boot(node))?;
    let start = |launch: Launch| (launch.clone(), Keeper::start(Arc::clone(&house), launch));
    let parts = Arc::new(Parts(parts::launches(&house.plan).into_iter().map(start).collect()));
    let socket = house.plan.file(files::SOCKET);
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    let serving = Arc::clone(&house);
    thread::spawn(move || serve::serve(&listener, &serving, &parts));
    Ok(house)
}

/// Writes a line to the log of `init`.
fn log(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Kills one process of this PID namespace. One that is dead already is as good as killed.
fn kill(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

impl House {
    /// Does `work` at a place.
    fn at<T: Send + 'static>(&self, place: Place, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        match place {
            Place::World => Ok(work()),
            Place::Node(node) => self.room(node)?.run(work),
        }
    }

    /// Where programs at a place put temporary files, so that none are left on the machine.
    fn tmp(&self, place: Place) -> PathBuf {
        match place {
            Place::World => self.plan.file("tmp"),
            Place::Node(node) => self.plan.node_file(node, "tmp"),
        }
    }

    fn rooms(&self) -> MutexGuard<'_, BTreeMap<Node, Booted>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, node: Node) -> Result<Arc<Room>> {
        let rooms = self.rooms();
        let room = rooms.get(&node).map(|booted| Arc::clone(&booted.room));
        room.with_context(|| format!("{node} is not running"))
    }

    /// Makes the namespaces of a node and lays its cable.
    fn boot(&self, node: Node) -> Result<()> {
        let (tell, gone) = mpsc::channel();
        let mut command = self.own_command(node)?;
        let mut child = spaces::in_new_namespaces(|| {
            let spawned = self.reaper.spawn(&mut command, move |_| _ = tell.send(()));
            spawned.with_context(|| format!("the PID 1 of {node} does not start"))
        })?;
        let pid = child.id();
        let room = self.furnish(node, pid, child.stdout.take()).inspect_err(|_| kill(pid))?;
        self.rooms().insert(node, Booted { pid, room, gone, joined: true });
        Ok(())
    }

    /// Waits for a node's mounts and gives it its network.
    fn furnish(&self, node: Node, pid: u32, stdout: Option<ChildStdout>) -> Result<Arc<Room>> {
        let mut line = String::new();
        BufReader::new(stdout.context("no pipe")?).read_line(&mut line).with_context(|| node.to_string())?;
        if line.trim() != READY {
            bail!("{node} got no mounts; see {}", self.plan.log(&format!("{node}.log")).display());
        }
        net::lay_cable(&self.reaper, node, pid)?;
        let room = Arc::new(Room::enter(pid)?);
        let reaper = Arc::clone(&self.reaper);
        room.run(move || net::node(&reaper, node))??;
        Ok(room)
    }

    fn own_command(&self, node: Node) -> Result<Command> {
        let log = self.plan.log(&format!("{node}.log"));
        let log = fs::File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(self.plan.file(files::XTASK));
        command.args(["cluster", "--name", self.plan.name.as_str(), "__node"]);
        command.arg(&self.plan.run).arg(node.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        Ok(command)
    }

    /// Kills everything on a node; its namespaces and cable go with it.
    fn cut_power(&self, node: Node) -> Result<()> {
        let booted = self.rooms().remove(&node);
        let booted = booted.with_context(|| format!("{node} is not running"))?;
        // The kernel would take the cable away too, but some time later.
        let cable = net::take_cable(&self.reaper, node);
        kill(booted.pid);
        booted.gone.recv().with_context(|| format!("nobody waits for {node}"))?;
        cgroup::renew(&self.plan, node, DYING)?;
        cable
    }

    fn plug(&self, node: Node, join: bool) -> Result<()> {
        let mut rooms = self.rooms();
        let booted = rooms.get_mut(&node).with_context(|| format!("{node} is not running"))?;
        let change = if join { net::plug } else { net::unplug };
        change(&self.reaper, node)?;
        booted.joined = join;
        Ok(())
    }
}

impl Parts {
    fn of(&self, node: Node) -> impl Iterator<Item = &Keeper> {
        self.0.iter().filter(move |(launch, _)| launch.id.node == Some(node)).map(|(_, keeper)| keeper)
    }

    fn find(&self, id: PartId) -> Result<(&Launch, &Keeper)> {
        let found = self.0.iter().find(|(launch, _)| launch.id == id);
        let (launch, keeper) = found.with_context(|| format!("this cluster has no {id}"))?;
        Ok((launch, keeper))
    }

    fn status(&self) -> Vec<wire::PartStatus> {
        self.0.iter().map(|(launch, keeper)| keeper.status(launch)).collect()
    }
}

/// Reads the plan of a run folder.
pub(super) fn read_plan(run: &Path) -> Result<Plan> {
    let path = run.join(files::PLAN);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))
}

/// Ends at once: the kernel then kills everything in the PID namespace.
pub(super) fn fall(error: &anyhow::Error) -> ! {
    let _ = writeln!(io::stderr(), "init ends: {error:#}");
    process::exit(1)
}
