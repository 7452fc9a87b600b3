//! `cluster status`: what runs, under which process ids, and whether Kubernetes says it is well.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::plan::Name;
use super::wire::{NodeStatus, PartStatus};
use super::{Cluster, client};

/// The whole report.
#[derive(Serialize)]
struct Report {
    name: String,
    healthy: bool,
    /// Why not, if it is not.
    complaints: Vec<String>,
    run_dir: PathBuf,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    versions: BTreeMap<String, String>,
    nodes: Vec<NodeReport>,
    parts: Vec<PartReport>,
}

#[derive(Serialize)]
struct NodeReport {
    name: String,
    address: String,
    running: bool,
    joined: bool,
    ready: bool,
}

#[derive(Serialize)]
struct PartReport {
    name: String,
    state: String,
    /// The process id as the caller of `status` sees it.
    pid: Option<i32>,
    uptime_seconds: Option<u64>,
    restarts: u32,
}

/// Prints the state and says whether the cluster is healthy.
pub(super) fn print(cluster: &Cluster, json: bool) -> Result<bool> {
    let report = report(cluster);
    let text = if json { serde_json::to_string_pretty(&report)? } else { table(&report) };
    writeln!(io::stdout(), "{}", text.trim_end()).context("nobody reads the status")?;
    Ok(report.healthy)
}

fn report(cluster: &Cluster) -> Report {
    let mut report = Report {
        name: cluster.name.as_str().to_owned(),
        healthy: false,
        complaints: Vec::new(),
        run_dir: cluster.run.clone(),
        kubeconfig: cluster.kubeconfig(),
        audit_log: cluster.audit_log(),
        versions: BTreeMap::new(),
        nodes: Vec::new(),
        parts: Vec::new(),
    };
    let state = cluster.plan().and_then(|plan| Ok((plan, client::status(&cluster.run)?)));
    let (plan, state) = match state {
        Ok(state) => state,
        Err(error) => {
            report.complaints.push(format!("down: {error:#}"));
            return report;
        }
    };
    report.versions = plan.versions;
    if !state.complete {
        report.complaints.push("`up` is still at work, or was interrupted".to_owned());
    }
    let ready = ready(cluster).unwrap_or_else(|error| {
        report.complaints.push(format!("the API server does not answer: {error:#}"));
        BTreeMap::new()
    });
    report.nodes = state.nodes.iter().map(|node| node_report(node, &ready)).collect();
    let pids = own_pids(&cluster.name);
    report.parts = state.parts.into_iter().map(|part| part_report(part, &pids)).collect();
    for node in report.nodes.iter().filter(|node| !node.ready) {
        report.complaints.push(format!("{} is not Ready", node.name));
    }
    for part in report.parts.iter().filter(|part| part.state != "running") {
        report.complaints.push(format!("{} is {}", part.name, part.state));
    }
    report.healthy = report.complaints.is_empty();
    report
}

fn node_report(node: &NodeStatus, ready: &BTreeMap<String, bool>) -> NodeReport {
    let name = node.node.to_string();
    NodeReport {
        address: node.node.address().to_string(),
        running: node.running,
        joined: node.joined,
        ready: ready.get(&name).copied().unwrap_or(false),
        name,
    }
}

fn part_report(part: PartStatus, pids: &BTreeMap<i32, i32>) -> PartReport {
    PartReport {
        name: part.id.to_string(),
        state: part.state,
        pid: part.pid.and_then(|pid| pids.get(&pid).copied()),
        uptime_seconds: part.uptime_seconds,
        restarts: part.restarts,
    }
}

/// Which nodes are Ready, by the API server's word.
fn ready(cluster: &Cluster) -> Result<BTreeMap<String, bool>> {
    let arguments = ["get", "nodes", "--output=json", "--request-timeout=5s"];
    let output =
        cluster.kubectl(&arguments).stdin(Stdio::null()).output().context("kubectl does not start")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("{}", text.lines().last().unwrap_or_default());
    }
    let list: Value = serde_json::from_slice(&output.stdout).context("kubectl's answer")?;
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(items
        .iter()
        .map(|node| (node["metadata"]["name"].as_str().unwrap_or_default().to_owned(), is_ready(node)))
        .collect())
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The cluster's processes: process id in the world, and the one seen from here.
fn own_pids(name: &Name) -> BTreeMap<i32, i32> {
    let group = format!(":/{}/", name.group());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = entries.filter_map(|entry| {
        let folder = entry.path();
        let groups = fs::read_to_string(folder.join("cgroup")).ok()?;
        if !groups.contains(&group) {
            return None;
        }
        in_the_world(&fs::read_to_string(folder.join("status")).ok()?)
    });
    ours.collect()
}

/// From a process's status: its id one PID namespace further in, and the one in ours.
fn in_the_world(status: &str) -> Option<(i32, i32)> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = line.split_whitespace().map_while(|id| id.parse().ok());
    let here = ids.next()?;
    Some((ids.next()?, here))
}

fn table(report: &Report) -> String {
    let mut lines = vec![format!(
        "cluster {:?}: {}",
        report.name,
        if report.healthy { "healthy" } else { "not healthy" }
    )];
    lines.extend(report.complaints.iter().map(|complaint| format!("  {complaint}")));
    lines.push(format!("run folder  {}", report.run_dir.display()));
    if report.parts.is_empty() {
        return lines.join("\n");
    }
    lines.push(format!("kubeconfig  {}", report.kubeconfig.display()));
    lines.push(format!("audit log   {}", report.audit_log.display()));
    let versions: Vec<_> =
        report.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    lines.push(format!("versions    {}", versions.join(", ")));
    lines.push(format!("\n{:24}{:14}{:9}{:10}{}", "NODE", "ADDRESS", "READY", "RUNNING", "CABLE"));
    let word = |yes, a: &'static str, b| if yes { a } else { b };
    lines.extend(report.nodes.iter().map(|node| {
        let (ready, running) = (word(node.ready, "yes", "no"), word(node.running, "yes", "no"));
        format!("{:24}{:14}{ready:9}{running:10}{}", node.name, node.address, word(node.joined, "in", "out"))
    }));
    lines.push(format!("\n{:24}{:14}{:9}{:10}{}", "PART", "STATE", "PID", "UPTIME", "RESTARTS"));
    lines.extend(report.parts.iter().map(|part| {
        let pid = part.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let uptime = part.uptime_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds}s"));
        format!("{:24}{:14}{pid:9}{uptime:10}{}", part.name, part.state, part.restarts)
    }));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_number_in_the_world() {
        assert_eq!(in_the_world("Name:\tetcd\nNSpid:\t4711\t23\t5\n"), Some((23, 4711)));
        assert_eq!(in_the_world("NSpid:\t4711\n"), None);
    }
}
