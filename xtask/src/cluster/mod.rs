//! A real Kubernetes on one machine, from Go modules and Debian packages, in namespaces of its own.
//!
//! `build` makes the parts once, into the user's cache. `up` starts one process, `init`, in new PID, mount and
//! network namespaces; it is the parent of everything, so that `down` is one kill. `docs/local-cluster.md` tells
//! more. Nothing here knows what the cluster is used for.

mod build;
mod cgroup;
pub(crate) mod cli;
mod client;
mod config;
mod down;
mod init;
mod parts;
mod pki;
mod plan;
mod probe;
mod spaces;
mod status;
mod up;
mod wire;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use self::plan::{Name, Node, Plan, files};
use crate::paths;

pub(crate) use self::up::UpOptions;

/// One local cluster, up or down, by its name.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    name: Name,
    run: PathBuf,
}

impl Cluster {
    /// The cluster of that name; it need not exist.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let name: Name = name.parse()?;
        let run = name.run_dir(&paths::run_base());
        Ok(Self { name, run })
    }

    /// Whether it is there and `up` came to its end.
    pub(crate) fn is_up(&self) -> bool {
        client::status(&self.run).is_ok_and(|status| status.complete)
    }

    /// Builds what is missing and starts the cluster, unless it is up.
    pub(crate) fn ensure_up(&self, options: &UpOptions) -> Result<()> {
        up::up(self, options)
    }

    /// Kills and removes everything of it; nothing happens if there is nothing.
    pub(crate) fn down(&self) -> Result<()> {
        down::down(self)
    }

    /// `kubectl` as the administrator.
    pub(crate) fn kubectl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = self.node_command(self.bin("kubectl"));
        command.args(arguments);
        command
    }

    /// A program in the namespaces of node0, with `KUBECONFIG` set and the cluster's programs on `PATH`.
    pub(crate) fn node_command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_on(Node(0), program)
    }

    /// A program in the world: the router and pretended internet.
    pub(crate) fn world_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.own_command();
        command.args(["world", "--"]).arg(program);
        command
    }

    /// Puts the image of an OCI archive on every node, under the name that its annotation says.
    pub(crate) fn load(&self, archive: &Path) -> Result<()> {
        let plan = self.plan()?;
        thread::scope(|scope| {
            let loads: Vec<_> =
                plan.nodes().map(|node| scope.spawn(move || self.load_on(node, archive))).collect();
            loads.into_iter().try_for_each(|load| load.join().unwrap_or_else(|_| bail!("a load died")))
        })
    }

    /// The administrator's kubeconfig; it works in the namespaces of a node.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.run.join(files::KUBECONFIG)
    }

    /// The API server's audit log: one JSON object a line, for every write.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.run.join("log").join(files::AUDIT)
    }

    /// A program of the cluster's: `kubectl`, `helm`, `ctr`, `runsc`...
    pub(crate) fn bin(&self, name: &str) -> PathBuf {
        self.run.join("bin").join(name)
    }

    /// The folder with everything of the cluster: logs, certificates, state.
    pub(crate) fn run_dir(&self) -> &Path {
        &self.run
    }

    fn plan(&self) -> Result<Plan> {
        if !self.run.join(files::PLAN).exists() {
            bail!("no cluster {:?} is up; `{}` starts it", self.name.as_str(), self.suggest("up"));
        }
        init::read_plan(&self.run)
    }

    /// A command for a person to type, which names this cluster.
    fn suggest(&self, verb: &str) -> String {
        match self.name.as_str() {
            "default" => format!("cargo xtask cluster {verb}"),
            name => format!("cargo xtask cluster --name {name} {verb}"),
        }
    }

    /// This program as the cluster knows it: a rebuild does not change it under a running cluster.
    fn own_command(&self) -> Command {
        let mut command = Command::new(self.run_dir().join(files::XTASK));
        command.args(["cluster", "--name", self.name.as_str()]);
        command.env(paths::RUN_BASE, self.run.parent().unwrap_or(&self.run));
        command
    }

    fn command_on(&self, node: Node, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.own_command();
        command.args(["node", "--node"]).arg(node.to_string()).arg("--").arg(program);
        command
    }

    fn load_on(&self, node: Node, archive: &Path) -> Result<()> {
        let file = File::open(archive).with_context(|| archive.display().to_string())?;
        let mut command = self.command_on(node, "ctr");
        command.args(["--namespace", "k8s.io", "images", "import", "-"]);
        // By its open file: the archive's path may not exist on the node.
        let output =
            command.stdin(Stdio::from(file)).output().context("the cluster's xtask does not start")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            // Warnings about the machine are marked by a time; what is left is why.
            let why: Vec<_> = text.lines().filter(|line| !line.starts_with("time=")).collect();
            bail!("{}: containerd on {node} refuses it: {}", archive.display(), why.join("; "));
        }
        Ok(())
    }
}

/// The cluster that a task works on.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One of this machine's own.
    Local(Cluster),
    /// A user's own, by its kubeconfig.
    Kubeconfig(PathBuf),
}

impl Target {
    /// A program that reaches the cluster: it finds `KUBECONFIG` set, `kubectl` and `helm` on `PATH`, and for a local
    /// cluster runs in the namespaces of node0.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        match self {
            Self::Local(cluster) => Ok(cluster.node_command(program)),
            Self::Kubeconfig(file) => {
                let file = file.canonicalize().with_context(|| format!("kubeconfig {}", file.display()))?;
                let mut command = Command::new(program);
                command.env("KUBECONFIG", file).env("PATH", path_with_tools()?);
                Ok(command)
            }
        }
    }
}

/// The caller's `PATH`, and behind it the tools that were built for local clusters.
fn path_with_tools() -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let tools = build::built().into_iter();
    env::join_paths(env::split_paths(&path).chain(tools)).context("a folder in PATH contains a colon")
}
