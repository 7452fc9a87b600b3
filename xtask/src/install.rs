//! Glovebox on a cluster: images loaded, the chart installed. What `demo`, `test` and `bench` stand on. Knows the chart's
//! values for a machine without KVM; knows nothing of what is done with the installation.

mod world;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::{
    cluster::{Cluster, Target, UpOptions},
    deps, image, paths,
    ui::Step,
};

/// Name of the Helm release.
pub(crate) const RELEASE: &str = "glovebox";
/// Where it is installed.
pub(crate) const NAMESPACE: &str = "glovebox-system";
/// Ranges of the local cluster's pods and Services.
const LOCAL_RANGES: [&str; 2] = ["10.244.0.0/16", "10.96.0.0/16"];

/// Which cluster, and which images.
#[derive(Args, Clone, Debug)]
pub(crate) struct TargetArgs {
    /// Name of the local cluster.
    #[arg(long, default_value = "default")]
    pub(crate) cluster: String,
    /// A cluster of your own instead of a local one.
    #[arg(long, value_name = "FILE", requires = "image")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Glovebox's image as your cluster pulls it; a local cluster gets one that is built here.
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// The tools image as your cluster pulls it.
    #[arg(long, value_name = "REF")]
    pub(crate) tools_image: Option<String>,
    /// More values for the chart, such as the classes that fit your cluster.
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Vec<PathBuf>,
}

/// A cluster with Glovebox on it.
pub(crate) struct Installation {
    /// The cluster.
    pub(crate) target: Target,
    /// Glovebox's image there.
    pub(crate) image: String,
    /// The tools image there.
    pub(crate) tools: String,
    /// What names the content of the image: pods must be made anew when it changes, though the tag stays.
    content: String,
    values: Vec<PathBuf>,
}

impl Installation {
    /// Brings up the cluster, builds and loads the images. The chart is not installed yet.
    pub(crate) fn prepare(args: &TargetArgs) -> Result<Self> {
        let values: Vec<PathBuf> = args
            .values
            .iter()
            .map(|file| file.canonicalize().with_context(|| file.display().to_string()))
            .collect::<Result<_>>()?;
        if let (Some(kubeconfig), Some(image)) = (&args.kubeconfig, &args.image) {
            let tools = args.tools_image.clone().unwrap_or_else(|| image::TOOLS_NAME.into());
            return Ok(Self {
                target: Target::Kubeconfig(kubeconfig.clone()),
                image: image.clone(),
                tools,
                content: image.clone(),
                values,
            });
        }
        let cluster = Cluster::open(&args.cluster)?;
        cluster.ensure_up(&UpOptions { nodes: None })?;
        let tools = image::tools()?;
        let product = image::product()?;
        for built in [&tools, &product] {
            load(&cluster, built)?;
        }
        let content = product.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { target: Target::Local(cluster), image: product.name, tools: tools.name, content, values })
    }

    /// Whether it is one of this machine's own.
    pub(crate) fn local(&self) -> Option<&Cluster> {
        match &self.target {
            Target::Local(cluster) => Some(cluster),
            Target::Kubeconfig(_) => None,
        }
    }

    /// A program that reaches the cluster.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        self.target.command(program)
    }

    /// `kubectl` with these arguments.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command("kubectl")?;
        command.args(arguments);
        Ok(command)
    }

    /// Installs the chart, or upgrades what is there, and waits until it works.
    pub(crate) fn install(&self) -> Result<()> {
        self.recover()?;
        if let Some(cluster) = self.local() {
            let manifest = world::manifest(cluster.run_dir())?;
            feed(self.kubectl(&["apply", "--filename", "-"])?, &manifest, "kubectl apply")?;
        }
        let step = Step::start("installing the chart");
        let mut command = self.helm("upgrade")?;
        command.args(["--install", "--create-namespace", "--wait", "--timeout", "3m"]);
        command.arg(chart());
        self.values(&mut command)?;
        run(command, "helm upgrade --install")?;
        step.done("");
        Ok(())
    }

    /// Ends what an installation that was broken off left: Helm refuses every other operation beside it.
    fn recover(&self) -> Result<()> {
        let mut history = self.helm("history")?;
        history.args(["--output", "json"]);
        let Ok(text) = run(history, "helm history") else { return Ok(()) };
        let revisions: Vec<Value> = serde_json::from_str(&text).context("helm history")?;
        let status = |revision: &Value| revision["status"].as_str().unwrap_or_default().to_owned();
        let good = |revision: &Value| matches!(status(revision).as_str(), "deployed" | "superseded");
        let Some(last) = revisions.last().map(status) else { return Ok(()) };
        if revisions.iter().any(good) {
            if last.starts_with("pending") {
                let mut rollback = self.helm("rollback")?;
                rollback.arg("--no-hooks");
                run(rollback, "helm rollback")?;
            }
        } else {
            let mut uninstall = self.helm("uninstall")?;
            uninstall.args(["--no-hooks", "--wait", "--timeout", "2m"]);
            run(uninstall, "helm uninstall")?;
        }
        Ok(())
    }

    /// Takes the chart away again.
    pub(crate) fn uninstall(&self) -> Result<()> {
        let step = Step::start("uninstalling the chart");
        let mut command = self.helm("uninstall")?;
        command.args(["--wait", "--timeout", "3m"]);
        run(command, "helm uninstall")?;
        step.done("");
        Ok(())
    }

    fn helm(&self, verb: &str) -> Result<Command> {
        let mut command = self.command("helm")?;
        command.args([verb, RELEASE, "--namespace", NAMESPACE]);
        Ok(command)
    }

    fn values(&self, command: &mut Command) -> Result<()> {
        let (repository, tag) =
            self.image.rsplit_once(':').with_context(|| format!("image {} has no tag", self.image))?;
        command.arg("--set").arg(format!("image.repository={repository},image.tag={tag}"));
        for role in ["controller", "gateway", "session", "audit"] {
            command.arg("--set-string").arg(format!("{role}.podAnnotations.content={}", self.content));
        }
        if self.local().is_some() {
            command.arg("--values").arg(chart().join("values-no-kvm.yaml"));
            command.arg("--set").arg(format!("controller.clusterCIDRs={{{}}}", LOCAL_RANGES.join(",")));
            // Nothing there makes volumes.
            command.arg("--set").arg("audit.persistence.enabled=false");
            command.arg("--set").arg(format!("gateway.extraRoots.configMap={}", world::CONFIG_MAP));
        }
        for file in &self.values {
            command.arg("--values").arg(file);
        }
        Ok(())
    }
}

/// The chart's folder.
pub(crate) fn chart() -> PathBuf {
    paths::checkout().join("charts/glovebox")
}

/// Makes the authority of the pretended internet's sites, for suites that install nothing.
pub(crate) fn world_authority(cluster: &Cluster) -> Result<()> {
    world::certificate(cluster.run_dir()).map(|_| ())
}

/// Loads an image unless this cluster has it: its file's name changes with its content.
fn load(cluster: &Cluster, built: &image::Built) -> Result<()> {
    let name = built.path.file_name().unwrap_or_default();
    let marker = cluster.run_dir().join("loaded").join(name);
    if marker.exists() {
        return Ok(());
    }
    let step = Step::start(format!("loading {}", built.name));
    cluster.load(&built.path)?;
    std::fs::create_dir_all(marker.parent().unwrap_or_else(|| Path::new("/")))?;
    std::fs::write(&marker, "")?;
    step.done("");
    Ok(())
}

/// Runs a program quietly; its output is shown if it fails.
pub(crate) fn run(mut command: Command, what: &str) -> Result<String> {
    let output = command.output().with_context(|| format!("{what} does not start"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
            .join("\n");
        bail!("{what}: {}", text.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program quietly with a text on its standard input.
pub(crate) fn feed(mut command: Command, text: &str, what: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{what} does not start"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// What every task here needs of the machine besides the cluster's own parts.
pub(crate) fn ensure_tools() -> Result<()> {
    deps::ensure(&[deps::need("cc", "gcc"), deps::need("git", "git")])
}
