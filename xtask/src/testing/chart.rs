//! The chart on a real cluster: it lints, installs, upgrades, uninstalls with a sandbox still running, and leaves nothing
//! behind but its custom resource definitions.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};

use super::suite::Suite;
use crate::install::{self, Installation, NAMESPACE};

/// A namespace with a sandbox in it, while the chart goes.
const TENANT: &str = "chart-tenant";
/// Kinds that come and go by themselves, with or without us.
const PASSING: [&str; 6] = [
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "endpointslices.discovery.k8s.io",
    "endpoints",
    "ipaddresses.networking.k8s.io",
];

/// Runs the suite. Whatever was installed before is gone afterwards.
pub(super) fn run(installation: &Installation) -> Result<Suite> {
    let mut suite = Suite::open("chart");
    let mut lint = installation.command("helm")?;
    lint.args(["lint", "--strict"]).arg(install::chart());
    suite.command("chart lint", lint);
    let mut lint = installation.command("helm")?;
    lint.args(["lint", "--strict", "--values"])
        .arg(install::chart().join("values-no-kvm.yaml"))
        .arg(install::chart());
    suite.command("chart lint without KVM", lint);
    let mut bad = installation.command("helm")?;
    bad.args(["template", "x", "--set", "controller.replicas=many"]).arg(install::chart());
    suite.judge("chart schema refuses a bad value", refused(install::run(bad, "helm template"), "replicas"));
    let mut bad = installation.command("helm")?;
    bad.args(["template", "x", "--set", "gateway.ca.trustKey=tls.key"]).arg(install::chart());
    suite.judge(
        "chart schema refuses a key for a certificate",
        refused(install::run(bad, "helm template"), "trustKey"),
    );
    suite.judge("chart gives the authority's key to the gateway alone", authority(installation));
    let _ = installation.uninstall();
    namespaces(installation, "delete")?;
    let before = everything(installation)?;
    suite.judge("chart install", installation.install());
    let authority = made(installation);
    suite.judge("chart upgrade", installation.install());
    suite.judge("chart upgrade keeps the authority", kept(authority, made(installation)));
    namespaces(installation, "create")?;
    suite.judge("chart sandbox before uninstall", sandbox(installation));
    suite.judge("chart uninstall", installation.uninstall());
    namespaces(installation, "delete")?;
    suite.judge("chart leaves nothing behind", same(&before, &everything(installation)?));
    suite.judge("chart reinstall", installation.install());
    suite.judge("chart sandbox after reinstall", after(installation));
    Ok(suite.close())
}

/// Who mounts what of the authority, in each way that the chart can be told to have one.
fn authority(installation: &Installation) -> Result<()> {
    for (values, controllers, gateways) in [
        ("gateway.ca.enabled=true", 1, 3),
        ("gateway.ca.existingSecret=mine", 1, 3),
        ("gateway.ca.enabled=false", 0, 0),
    ] {
        let mentions = |template: &str| -> Result<usize> {
            let mut command = installation.command("helm")?;
            command.args(["template", "x", "--set", values, "--show-only", template]).arg(install::chart());
            let text = install::run(command, "helm template")?;
            let is_controller = template == "templates/deployment.yaml";
            if is_controller && text.contains("tls.key") {
                bail!("{values}: the controller is given the key");
            }
            Ok(text.matches(if is_controller { "--egress-ca=" } else { "tls.key" }).count())
        };
        let found = (mentions("templates/deployment.yaml")?, mentions("templates/gateway/deployment.yaml")?);
        if found != (controllers, gateways) {
            bail!("{values}: controller and gateway have {found:?}, not {:?}", (controllers, gateways));
        }
    }
    Ok(())
}

/// The authority that the chart made.
fn made(installation: &Installation) -> Result<String> {
    let arguments =
        ["get", "secret", "glovebox-gateway-ca", "--namespace", NAMESPACE, "--output", "jsonpath={.data}"];
    install::run(installation.kubectl(&arguments)?, "kubectl get secret")
}

fn kept(before: Result<String>, after: Result<String>) -> Result<()> {
    if before? == after? { Ok(()) } else { bail!("it is another one") }
}

fn refused(outcome: Result<String>, word: &str) -> Result<()> {
    match outcome {
        Ok(_) => bail!("it was taken"),
        Err(error) if format!("{error:#}").contains(word) => Ok(()),
        Err(error) => Err(error.context(format!("refused without a word of {word}"))),
    }
}

fn namespaces(installation: &Installation, verb: &str) -> Result<()> {
    let arguments: &[&str] = match verb {
        "create" => &["create", "namespace", TENANT],
        _ => &["delete", "namespace", TENANT, NAMESPACE, "--ignore-not-found", "--timeout=120s"],
    };
    install::run(installation.kubectl(arguments)?, "kubectl").map(|_| ())
}

fn sandbox(installation: &Installation) -> Result<()> {
    let text = format!(
        "{{apiVersion: glovebox.dev/v1alpha1, kind: AgentSandbox, metadata: {{name: last, namespace: {TENANT}}}, spec: {{image: \"{}\", ttl: 10m, resources: {{cpu: 200m, memory: 512Mi}}}}}}",
        installation.tools
    );
    install::feed(installation.kubectl(&["apply", "--filename", "-"])?, &text, "kubectl apply")?;
    let wait = [
        "wait",
        "--namespace",
        TENANT,
        "--for=jsonpath={.status.phase}=Running",
        "agentsandbox/last",
        "--timeout=90s",
    ];
    install::run(installation.kubectl(&wait)?, "kubectl wait").map(|_| ())
}

fn after(installation: &Installation) -> Result<()> {
    namespaces(installation, "create")?;
    sandbox(installation)?;
    let arguments = ["delete", "namespace", TENANT, "--timeout=120s"];
    install::run(installation.kubectl(&arguments)?, "kubectl delete namespace").map(|_| ())
}

/// Every object of the cluster, by kind, namespace and name, but those that come and go by themselves.
fn everything(installation: &Installation) -> Result<BTreeSet<String>> {
    let kinds = install::run(
        installation.kubectl(&["api-resources", "--verbs=list", "--output", "name"])?,
        "kubectl api-resources",
    )?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !PASSING.contains(kind)).collect();
    let template = "{range .items[*]}{.kind}{' '}{.metadata.namespace}{'/'}{.metadata.name}{'\\n'}{end}";
    let output = format!("jsonpath={template}");
    let text = install::run(
        installation.kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output", &output])?,
        "kubectl get",
    )?;
    Ok(text.lines().map(ToOwned::to_owned).collect())
}

fn same(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Result<()> {
    let expected = |object: &&String| {
        !object.starts_with("CustomResourceDefinition ") && !object.starts_with("APIService ")
    };
    let left: Vec<&String> = after.difference(before).filter(expected).collect();
    let lost: Vec<&String> = before.difference(after).collect();
    if left.is_empty() && lost.is_empty() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("left behind: {left:?}; lost: {lost:?}")).context("not as before")
    }
}
