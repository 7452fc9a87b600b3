//! `cargo xtask demo`: everything from nothing, then the examples, and a short report of what was seen from inside.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    install::{self, Installation, TargetArgs},
    paths,
    ui::{self, Step},
};

/// Where the examples are applied.
const NAMESPACE: &str = "glovebox-demo";
/// How long any one sandbox may take to come where its example says.
const PATIENCE: &str = "--timeout=180s";
/// Where examples/poisoned.yaml tries to send things, an address of the local cluster's world.
const ADDRESS: &str = "203.0.113.7";
/// Time to live of the sandbox whose end is measured, in seconds.
const TTL: u32 = 12;

/// Connects for some seconds and counts what got through.
const LOOP: &str = "import socket, time
end, tried, through = time.monotonic() + 4, 0, 0
while time.monotonic() < end:
    tried += 1
    try:
        socket.create_connection(('203.0.113.7', 443), 0.3).close()
        through += 1
    except OSError:
        pass
print(f'{through} of {tried}')";

/// Build everything, run the examples on a real cluster, and show what was seen from inside the sandboxes.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Leave the cluster up, and say what to try next.
    #[arg(long)]
    keep: bool,
}

/// Carries out the demo. A cluster that was up before stays up.
pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    let started = Instant::now();
    install::ensure_tools()?;
    let was_up = crate::cluster::Cluster::open(&args.target.cluster).is_ok_and(|cluster| cluster.is_up());
    let demo = Demo { installation: Installation::prepare(&args.target)? };
    demo.installation.install()?;
    demo.fresh_namespace()?;
    let shown = demo.show();
    match (args.keep, demo.installation.local()) {
        (true, _) => Demo::invite(&args.target),
        (false, Some(cluster)) if !was_up => {
            shown?;
            cluster.down()?;
            ui::say(&format!(
                "demo done in {}; the cluster is gone. Keep it with: cargo xtask demo --keep",
                ui::span(started.elapsed())
            ));
            return Ok(());
        }
        (false, _) => demo.drop_namespace()?,
    }
    shown?;
    ui::say(&format!("demo done in {}", ui::span(started.elapsed())));
    Ok(())
}

/// A process that ends with the demo.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing more to do about it then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Demo {
    installation: Installation,
}

impl Demo {
    fn show(&self) -> Result<()> {
        let _exfiltration = self.listen()?;
        let step = Step::start("applying examples/");
        let examples = examples()?;
        for example in &examples {
            self.apply(&example.text)?;
        }
        for example in examples.iter().filter(|example| example.expect != "class") {
            self.wait(&example.name, &example.expect)?;
        }
        step.done(&format!("{} files", examples.len()));
        println!("\n== sandboxes\n{}", self.kubectl(&["get", "agentsandboxes", "-o", "wide"])?.trim_end());
        println!(
            "\n== what a sandbox looks like from inside (examples/look-around.yaml)\n{}",
            self.log("look-around")?
        );
        println!("\n== what an injected agent gets (examples/poisoned.yaml)\n{}", self.poisoned()?);
        println!(
            "allowed  connect to {ADDRESS}:443 by the rule of examples/egress-cidr.yaml: {}",
            self.connect()?
        );
        if self.installation.local().is_some() {
            println!("\n== a connection in a loop from the first instruction on\n{}", self.leaks()?);
        }
        println!("\n== what holds here (status.enforcement of sandbox idle)\n{}", self.enforcement("idle")?);
        println!("\n== the end, after a time to live of {TTL} s\n{}", self.end()?);
        Ok(())
    }

    /// Somebody in the world who would take what is sent: a refusal means something only where a listener is.
    fn listen(&self) -> Result<Option<Listener>> {
        let Some(cluster) = self.installation.local() else { return Ok(None) };
        let mut command = cluster.world_command("busybox");
        command.args(["httpd", "-f", "-p", &format!("{ADDRESS}:443"), "-h", "/usr/share/misc"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Some(Listener(command.spawn().context("no listener in the world")?)))
    }

    /// The same connection, from a sandbox whose rule opens it.
    fn connect(&self) -> Result<&'static str> {
        if self.installation.local().is_none() {
            return Ok("not tried, since that address is nobody's on this cluster");
        }
        let script = format!("import socket; socket.create_connection(('{ADDRESS}', 443), timeout=5)");
        self.kubectl(&["exec", "egress-cidr", "--container", "workload", "--", "python3", "-c", &script])?;
        Ok("connected")
    }

    fn poisoned(&self) -> Result<String> {
        let log = self.log("poisoned")?;
        let done: Vec<&str> = log.lines().filter(|line| line.starts_with("DONE")).collect();
        if done != ["DONE     write the workspace"] {
            bail!("the poisoned sandbox got further than its workspace:\n{log}");
        }
        Ok(log)
    }

    /// The same loop in an ordinary pod behind a deny-all policy, and in a sandbox: a network programs a new pod's policies a
    /// moment late, and only the sandbox waits for that moment to pass.
    fn leaks(&self) -> Result<String> {
        let image = &self.installation.tools;
        let command = serde_json::json!(["python3", "-c", LOOP]);
        let resources = "{cpu: 200m, memory: 512Mi}";
        let policy = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: demo-deny-all}, spec: {podSelector: {matchLabels: {demo: ordinary}}, policyTypes: [Ingress, Egress]}}";
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: ordinary, labels: {{demo: ordinary}}}}, spec: {{restartPolicy: Never, containers: [{{name: workload, image: {image}, command: {command}, resources: {{limits: {resources}}}}}]}}}}"
        );
        let sandbox = format!(
            "{{apiVersion: glovebox.dev/v1alpha1, kind: AgentSandbox, metadata: {{name: eager}}, spec: {{image: {image}, ttl: 5m, command: {command}, resources: {resources}}}}}"
        );
        self.apply(policy)?;
        self.apply(&format!("{pod}\n---\n{sandbox}"))?;
        self.wait("eager", "Succeeded")?;
        self.kubectl(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/ordinary", PATIENCE])?;
        let (ordinary, eager) = (self.log("ordinary")?, self.log("eager")?);
        if !eager.starts_with("0 of ") {
            bail!("the sandbox got through its fence: {eager} connections");
        }
        Ok(format!(
            "an ordinary pod under a deny-all policy   {ordinary} connections got out\na sandbox                                 {eager} connections got out"
        ))
    }

    fn enforcement(&self, name: &str) -> Result<String> {
        let sandbox = self.sandbox(name)?;
        let all = sandbox["status"]["enforcement"].as_object().context("no status.enforcement")?;
        let line = |(what, held): (&String, &Value)| {
            format!(
                "{what:<16} {:<12} {}",
                held["state"].as_str().unwrap_or("?"),
                held["mechanism"].as_str().unwrap_or("?")
            )
        };
        Ok(all.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    /// Watches a sandbox reach its deadline; what is shown was measured by the cluster's own clock.
    fn end(&self) -> Result<String> {
        let image = &self.installation.tools;
        self.apply(&format!(
            "{{apiVersion: glovebox.dev/v1alpha1, kind: AgentSandbox, metadata: {{name: short}}, spec: {{image: {image}, ttl: {TTL}s, command: [sleep, \"3600\"], resources: {{cpu: 500m, memory: 512Mi}}}}}}"
        ))?;
        self.wait("short", "Running")?;
        let sandbox = self.sandbox("short")?;
        let expires = sandbox["status"]["expiresAt"].as_str().context("no status.expiresAt")?.to_owned();
        self.kubectl(&["wait", "--for=delete", "pod/short", PATIENCE])?;
        let late = late(&expires)?;
        self.wait("short", "Expired")?;
        let sandbox = self.sandbox("short")?;
        let reason = sandbox["status"]["reason"].as_str().unwrap_or("?").to_owned();
        Ok(format!(
            "expired at   {expires}\npod gone     {late:.1} s later\nphase        Expired, reason {reason}"
        ))
    }

    fn fresh_namespace(&self) -> Result<()> {
        self.drop_namespace()?;
        install::run(
            self.installation.kubectl(&["create", "namespace", NAMESPACE])?,
            "kubectl create namespace",
        )?;
        Ok(())
    }

    fn drop_namespace(&self) -> Result<()> {
        let arguments = ["delete", "namespace", NAMESPACE, "--ignore-not-found", PATIENCE];
        install::run(self.installation.kubectl(&arguments)?, "kubectl delete namespace")?;
        Ok(())
    }

    fn apply(&self, text: &str) -> Result<()> {
        let command = self.installation.kubectl(&["--namespace", NAMESPACE, "apply", "--filename", "-"])?;
        install::feed(command, text, "kubectl apply")
    }

    fn wait(&self, name: &str, phase: &str) -> Result<()> {
        let waited = self.kubectl(&[
            "wait",
            &format!("--for=jsonpath={{.status.phase}}={phase}"),
            &format!("agentsandbox/{name}"),
            PATIENCE,
        ]);
        waited.map(|_| ()).with_context(|| {
            let story = self.kubectl(&["describe", "agentsandbox", name]).unwrap_or_default();
            format!("sandbox {name} did not become {phase}:\n{story}")
        })
    }

    fn sandbox(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&["get", "agentsandbox", name, "--output", "json"])?)?)
    }

    fn log(&self, name: &str) -> Result<String> {
        Ok(self.kubectl(&["logs", name, "--container", "workload"])?.trim_end().to_owned())
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", NAMESPACE];
        all.extend(arguments);
        install::run(self.installation.kubectl(&all)?, &format!("kubectl {}", arguments.join(" ")))
    }

    fn invite(target: &TargetArgs) {
        let (kubectl, down) = match (&target.kubeconfig, target.cluster.as_str()) {
            (Some(file), _) => (format!("kubectl --kubeconfig {}", file.display()), None),
            (None, "default") => {
                ("cargo xtask cluster kubectl".into(), Some("cargo xtask cluster down".into()))
            }
            (None, name) => (
                format!("cargo xtask cluster --name {name} kubectl"),
                Some(format!("cargo xtask cluster --name {name} down")),
            ),
        };
        println!("\n== the cluster stays; try\n{kubectl} -n {NAMESPACE} get asb -o wide");
        println!("{kubectl} -n {NAMESPACE} exec -it idle -- bash");
        println!("{kubectl} -n {NAMESPACE} describe asb poisoned");
        println!("{kubectl} explain agentsandbox.spec");
        if let Some(down) = down {
            println!("{down}");
        }
    }
}

/// Seconds since a point in time that the cluster named.
fn late(expires: &str) -> Result<f64> {
    let then: Timestamp =
        expires.parse().with_context(|| format!("status.expiresAt {expires:?} is no time"))?;
    Ok(Timestamp::now().duration_since(then).as_secs_f64())
}

struct Example {
    name: String,
    expect: String,
    text: String,
}

/// Every example, with what its first lines promise.
fn examples() -> Result<Vec<Example>> {
    let dir = paths::checkout().join("examples");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    if files.is_empty() {
        bail!("there are no examples in {}", dir.display());
    }
    files.iter().map(|file| example(file)).collect()
}

fn example(file: &Path) -> Result<Example> {
    let text = fs::read_to_string(file)?;
    let expect = text
        .lines()
        .find_map(|line| line.strip_prefix("# expect: "))
        .with_context(|| format!("{} says not what to expect", file.display()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Example { name, expect: expect.trim().to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_says_what_to_expect() {
        assert!(examples().unwrap().len() >= 6);
    }
}
