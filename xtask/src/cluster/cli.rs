//! The command line of `cargo xtask cluster`: reads arguments, calls, and turns outcomes into exit codes.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::parts::Role;
use super::plan::{Node, Place};
use super::wire::{Action, NodeAction, Request};
use super::{Cluster, Target, UpOptions, build, client, init, probe, status, up};
use crate::ui;

/// A real Kubernetes on this machine: built from source, in namespaces of its own.
#[derive(Args)]
pub(crate) struct ClusterArgs {
    /// Which of this machine's clusters.
    #[arg(long, global = true, default_value = "default", env = "GLOVEBOX_CLUSTER")]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing and build the parts into the user's cache (about 20 minutes the first time).
    Build,
    /// Start the cluster and wait until it can be relied on; builds first what is missing.
    Up {
        /// How many nodes [default: 1].
        #[arg(long)]
        nodes: Option<u8>,
    },
    /// Kill and remove everything of the cluster.
    Down,
    /// Show nodes, parts and versions; the exit status is 0 if all is well.
    Status {
        /// How to print it.
        #[arg(short, long, value_enum, default_value = "text")]
        output: Output,
    },
    /// Run kubectl as the administrator.
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Put the images of OCI archives on every node.
    Load {
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Run a command on a node, in this folder, with KUBECONFIG set.
    Node {
        /// On which node.
        #[arg(long, default_value = "node0")]
        node: Node,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run a command in the world: the router and pretended internet around the nodes.
    World {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run a command against the cluster, or against one of your own.
    Run {
        /// A cluster of your own; the command then runs on this machine as it is.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Stop, start and list the processes that the cluster is made of.
    #[command(subcommand)]
    Part(PartVerb),
    #[command(name = "__init", hide = true)]
    Init { run: PathBuf },
    #[command(name = "__node", hide = true)]
    NodeInit { run: PathBuf, node: Node },
    #[command(name = "__listen", hide = true)]
    Listen,
    #[command(name = "__resolve", hide = true)]
    Resolve { host: String, address: Ipv4Addr },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

#[derive(Subcommand)]
enum PartVerb {
    /// Kill a part, or a whole node with its pods, and leave it dead.
    Stop(PartArgs),
    /// Start it again as it was, and wait until it answers.
    Start(PartArgs),
    /// Stop and start.
    Restart(PartArgs),
    /// Pull a node's network cable.
    Cut {
        /// Which node.
        node: Node,
    },
    /// Plug a node's network cable in again.
    Join {
        /// Which node.
        node: Node,
    },
    /// List the parts.
    List,
}

#[derive(Args)]
struct PartArgs {
    /// etcd, apiserver, controller-manager, scheduler, world-dns, containerd, kubelet, proxy, kube-router, or a node.
    part: String,
    /// Of which node, for the parts that each node has [default: node0].
    #[arg(long)]
    node: Option<Node>,
}

/// Does what the command line says.
pub(crate) fn run(args: ClusterArgs) -> Result<ExitCode> {
    let cluster = Cluster::open(&args.name)?;
    let place = |node| Place::Node(node);
    match args.verb {
        Verb::Build => build::build().map(|built| say_built(&built)),
        Verb::Up { nodes } => cluster.ensure_up(&UpOptions { nodes }),
        Verb::Down => cluster.down(),
        Verb::Status { output } => return report(&cluster, matches!(output, Output::Json)),
        Verb::Load { archives } => archives.iter().try_for_each(|archive| cluster.load(archive)),
        Verb::Part(verb) => part(&cluster, verb),
        Verb::Kubectl { mut arguments } => {
            arguments.insert(0, "kubectl".to_owned());
            return program(&cluster, place(Node(0)), arguments);
        }
        Verb::Node { node, command } => return program(&cluster, place(node), command),
        Verb::World { command } => return program(&cluster, Place::World, command),
        Verb::Run { kubeconfig, command } => return against(cluster, kubeconfig, &command),
        Verb::Init { run } => init::read_plan(&run).and_then(init::main).map_err(|error| init::fall(&error)),
        Verb::NodeInit { run, node } => init::read_plan(&run).and_then(|plan| init::node::main(&plan, node)),
        Verb::Listen => probe::listen(),
        Verb::Resolve { host, address } => probe::resolve(&host, address),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn say_built(built: &build::Built) {
    let all: Vec<_> = built.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    ui::say(&format!("everything is built: {}", all.join(", ")));
}

fn report(cluster: &Cluster, json: bool) -> Result<ExitCode> {
    Ok(if status::print(cluster, json)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn program(cluster: &Cluster, place: Place, command: Vec<String>) -> Result<ExitCode> {
    client::run(&cluster.plan()?, place, command).map(ExitCode::from)
}

fn against(cluster: Cluster, kubeconfig: Option<PathBuf>, command: &[String]) -> Result<ExitCode> {
    let target = kubeconfig.map_or(Target::Local(cluster), Target::Kubeconfig);
    let (program, arguments) = command.split_first().context("no command is given")?;
    let status = target.command(program)?.args(arguments).status().with_context(|| program.clone())?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn part(cluster: &Cluster, verb: PartVerb) -> Result<()> {
    let (action, args) = match verb {
        PartVerb::List => return list(cluster),
        PartVerb::Cut { node } => return ask(cluster, &Request::Node(NodeAction::Cut, node)),
        PartVerb::Join { node } => return ask(cluster, &Request::Node(NodeAction::Join, node)),
        PartVerb::Stop(args) => (Action::Stop, args),
        PartVerb::Start(args) => (Action::Start, args),
        PartVerb::Restart(args) => (Action::Restart, args),
    };
    if !args.part.starts_with("node") {
        let role: Role = args.part.parse()?;
        ask(cluster, &Request::Part(action, role, args.node))?;
        return if action == Action::Stop { Ok(()) } else { settle(cluster, role) };
    }
    if args.node.is_some() {
        bail!("--node goes with a part, as in `part stop kubelet --node {}`", args.part);
    }
    let node: Node = args.part.parse()?;
    if action != Action::Start {
        ask(cluster, &Request::Node(NodeAction::Stop, node))?;
    }
    if action == Action::Stop { Ok(()) } else { ask(cluster, &Request::Node(NodeAction::Start, node)) }
}

/// Waits for the API server too, where it depends on what was started: it answers before it is ready.
fn settle(cluster: &Cluster, role: Role) -> Result<()> {
    let parts = client::status(&cluster.run)?.parts;
    let stopped = parts.iter().any(|part| part.id.role == Role::Apiserver && part.state == "stopped");
    if stopped || !matches!(role, Role::Apiserver | Role::Etcd) { Ok(()) } else { up::api_ready(cluster) }
}

fn ask(cluster: &Cluster, request: &Request) -> Result<()> {
    client::ask(&cluster.run, request).map(drop)
}

fn list(cluster: &Cluster) -> Result<()> {
    let status = client::status(&cluster.run)?;
    let mut out = io::stdout();
    for part in status.parts {
        writeln!(out, "{:24}{}", part.id.to_string(), part.state).context("nobody reads the list")?;
    }
    Ok(())
}
