//! Brings a cluster up: the run folder, the `init`, then everything that must hold before anybody may rely on it:
//! images loaded, API ready, nodes Ready, NetworkPolicy enforced, DNS answering.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::build::{self, Built, IMAGES};
use super::parts::{PartId, Role};
use super::plan::{MAX_NODES, Node, Plan, files};
use super::wire::{Action, Request};
use super::{Cluster, client, config, down, init, pki, probe, spaces};
use crate::ui::{self, Step};

/// How long any one thing may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often a thing is asked for that cannot be watched.
const ASK: Duration = Duration::from_millis(150);
/// Folders that are laid over on a node, or by the kernel: a run folder in them would not be seen there.
const COVERED: [&str; 6] = ["/run", "/var/run", "/var/lib", "/var/log", "/proc", "/sys"];

/// What can be chosen.
#[derive(Clone, Debug)]
pub(crate) struct UpOptions {
    /// How many nodes; none takes what is there, or else one.
    pub(crate) nodes: Option<u8>,
}

/// The whole of `cluster up`.
pub(super) fn up(cluster: &Cluster, options: &UpOptions) -> Result<()> {
    check(cluster, options)?;
    if let Ok(plan) = cluster.plan()
        && cluster.is_up()
    {
        return already(cluster, &plan, options);
    }
    let built = build::build()?;
    let lock = down::lock(&cluster.run)?;
    if cluster.is_up() {
        // Another `up` came first.
        return already(cluster, &cluster.plan()?, options);
    }
    let whole = Instant::now();
    let lock = sweep(cluster, lock)?;
    let plan = plan(cluster, options, &built);
    furnish(&plan, &built)?;
    let mut init = Init::start(&plan)?;
    let outcome = complete(cluster, &plan, &built).and_then(|()| init.keep());
    drop(lock);
    if let Err(error) = outcome {
        init.kill();
        let log = plan.file("log");
        return Err(error.context(format!(
            "the cluster did not come up and was stopped; its logs are in {}",
            log.display()
        )));
    }
    let (name, time) = (cluster.name.as_str(), ui::span(whole.elapsed()));
    ui::say(&format!("cluster {name:?} is up after {time}; try: {}", cluster.suggest("kubectl get pods -A")));
    Ok(())
}

fn check(cluster: &Cluster, options: &UpOptions) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a local cluster needs root, for its namespaces; run this with sudo");
    }
    if let Some(nodes @ (0 | MAX_NODES..)) = options.nodes {
        bail!("--nodes {nodes}: 1 to {} are possible", MAX_NODES - 1);
    }
    let run = &cluster.run;
    let bad = COVERED.iter().find(|folder| run.starts_with(folder));
    if let Some(folder) = bad {
        bail!(
            "{} is in {folder}, which is private on each node; set {} to another folder",
            run.display(),
            crate::paths::RUN_BASE
        );
    }
    // These would end a word in the options of an overlay, or in PATH.
    if run.to_str().is_none_or(|path| path.contains([':', ',', '\\', '"', ' '])) {
        bail!(
            "{} has a character that mount options cannot hold; set {}",
            run.display(),
            crate::paths::RUN_BASE
        );
    }
    Ok(())
}

fn already(cluster: &Cluster, plan: &Plan, options: &UpOptions) -> Result<()> {
    let (name, there) = (cluster.name.as_str(), plan.nodes);
    if let Some(nodes) = options.nodes.filter(|nodes| *nodes != there) {
        let down = cluster.suggest("down");
        bail!(
            "cluster {name:?} is up with --nodes {there}, not {nodes}; run `{down}` first, or choose another --name"
        );
    }
    ui::say(&format!("cluster {name:?} is up already (--nodes {there})"));
    Ok(())
}

/// Clears what an interrupted `up` left, and takes the folder anew.
fn sweep(cluster: &Cluster, lock: File) -> Result<File> {
    let empty = fs::read_dir(&cluster.run).context("run folder")?.next().is_none();
    if !empty {
        ui::say(&format!("clearing what is left of an earlier cluster {:?}", cluster.name.as_str()));
    }
    down::clear(cluster)?;
    drop(lock);
    down::lock(&cluster.run)
}

fn plan(cluster: &Cluster, options: &UpOptions, built: &Built) -> Plan {
    let bin = cluster.run.join("bin").display().to_string();
    let path = env::var("PATH").unwrap_or_default();
    Plan {
        name: cluster.name.clone(),
        run: cluster.run.clone(),
        nodes: options.nodes.unwrap_or(1),
        path: format!("{bin}:{path}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"),
        versions: built.versions.clone(),
    }
}

/// Fills the run folder: programs, configuration, certificates.
fn furnish(plan: &Plan, built: &Built) -> Result<()> {
    let make = |path: &Path| fs::create_dir_all(path).with_context(|| path.display().to_string());
    for folder in ["bin", "log", "tmp", "volume-plugins"] {
        make(&plan.file(folder))?;
    }
    for node in plan.nodes() {
        make(&plan.node_file(node, "tmp"))?;
    }
    let own = env::current_exe().context("the path of this program")?;
    fs::copy(&own, plan.file(files::XTASK)).with_context(|| own.display().to_string())?;
    for folder in &built.programs {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            link(&entry.with_context(|| folder.display().to_string())?.path(), plan)?;
        }
    }
    symlink("kube", plan.file("bin/kubectl")).context("bin/kubectl")?;
    for (name, text) in config::files(plan).into_iter().chain([probe::manifest(plan)]) {
        let path = plan.file(&name);
        make(path.parent().unwrap_or(&path))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    pki::write(plan)?;
    let path = plan.file(files::PLAN);
    fs::write(&path, serde_json::to_vec_pretty(plan)?).with_context(|| path.display().to_string())
}

fn link(program: &Path, plan: &Plan) -> Result<()> {
    let name = program.file_name().context("a program without a name")?;
    symlink(program, plan.file("bin").join(name)).with_context(|| program.display().to_string())
}

/// The init of a cluster that is not complete yet: it dies with this process.
struct Init {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Init {
    fn start(plan: &Plan) -> Result<Self> {
        let step = Step::start("namespaces, network, first parts");
        let log = plan.log("init.log");
        let log = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(plan.file(files::XTASK));
        command.args(["cluster", "--name", plan.name.as_str(), "__init"]).arg(&plan.run);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spaces::in_new_namespaces(|| command.spawn().context("the init does not start"))?;
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).context("no pipes")?;
        let mut init = Self { child, stdin, stdout: BufReader::new(stdout) };
        init.register(plan)?;
        init.say(init::BEGIN)?;
        match init.hear()?.as_str() {
            init::READY => {}
            error => bail!("the init gave up: {error}"),
        }
        step.done("");
        Ok(init)
    }

    /// Writes down who it is before it may do anything that would have to be undone.
    fn register(&self, plan: &Plan) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        let start = down::started(pid).context("the init died at once")?;
        let (path, new) = (plan.file(files::INIT), plan.file("init.pid.new"));
        fs::write(&new, format!("{pid} {start}\n")).with_context(|| new.display().to_string())?;
        fs::rename(&new, &path).with_context(|| path.display().to_string())
    }

    fn say(&mut self, word: &str) -> Result<()> {
        writeln!(self.stdin, "{word}").context("the init died")
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(0) => bail!("the init died"),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::Interrupted => self.hear(),
            Err(error) => Err(error).context("the init died"),
        }
    }

    /// Lets it live on by itself.
    fn keep(&mut self) -> Result<()> {
        self.say(init::KEEP)?;
        match self.hear()?.as_str() {
            init::KEEP => Ok(()),
            other => bail!("the init answered {other:?}"),
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn complete(cluster: &Cluster, plan: &Plan, built: &Built) -> Result<()> {
    let listener = probe::Listener::start(cluster)?;
    thread::scope(|scope| {
        let loads: Vec<_> =
            plan.nodes().map(|node| scope.spawn(move || images(cluster, plan, built, node))).collect();
        api(cluster, plan)?;
        let step = Step::start("images");
        for load in loads {
            load.join().unwrap_or_else(|_| Err(anyhow!("the loading of images died")))?;
        }
        step.done("");
        Ok::<_, anyhow::Error>(())
    })?;
    let step = Step::start("nodes Ready");
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    kubectl(cluster, &["wait", "--for=condition=Ready", "nodes", "--all", &timeout])?;
    step.done("");
    probe::policy(cluster, plan, &listener)?;
    probe::dns(cluster)?;
    kubectl(cluster, &["wait", "--for=create", "serviceaccount/default", &timeout])
}

fn api(cluster: &Cluster, plan: &Plan) -> Result<()> {
    let step = Step::start("API ready");
    api_ready(cluster)?;
    step.done("");
    let step = Step::start("objects");
    let folder = plan.file("manifests").display().to_string();
    kubectl(cluster, &["apply", "--server-side", "-f", &folder])?;
    for node in plan.nodes() {
        client::ask(&plan.run, &Request::Part(Action::Start, Role::KubeRouter, Some(node)))?;
    }
    step.done("");
    Ok(())
}

/// Waits until the API server says that it is ready.
pub(super) fn api_ready(cluster: &Cluster) -> Result<()> {
    client::ask(&cluster.run, &Request::Await(PartId { role: Role::Apiserver, node: None }))?;
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = kubectl(cluster, &["get", "--raw=/readyz"]) {
        if Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(ASK);
    }
    Ok(())
}

fn images(cluster: &Cluster, plan: &Plan, built: &Built, node: Node) -> Result<()> {
    client::ask(&plan.run, &Request::Await(PartId { role: Role::Containerd, node: Some(node) }))?;
    IMAGES.iter().try_for_each(|name| cluster.load_on(node, &built.images.join(format!("{name}.tar"))))
}

/// Runs `kubectl` and keeps what it prints for the error.
pub(super) fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let output =
        cluster.kubectl(arguments).stdin(Stdio::null()).output().context("kubectl does not start")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("`kubectl {}` ended with {}: {}", arguments.join(" "), output.status, text.trim());
    }
    Ok(())
}
