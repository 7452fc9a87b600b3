//! Shows, rather than assumes, that NetworkPolicy is enforced on each node and that the cluster's DNS answers.
//!
//! On every node two pods knock at a listener in the world again and again: `cut` until it got through and, after
//! that, until it no longer does; `free` without end. When both have come through, a policy that denies everything
//! is put on `cut`. The probe is passed when every `cut` has ended and every `free` still comes through.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::Cluster;
use super::config::File;
use super::plan::{Plan, SERVICE_API, SERVICE_DNS, WORLD_WEB, files};
use super::up::kubectl;
use crate::ui::Step;

const MANIFEST: &str = include_str!("../../cluster/manifests/probe.yaml");
const DENY: &str = include_str!("../../cluster/manifests/deny.yaml");
/// Where the world listens.
const PORTS: [(Pod, u16); 2] = [(Pod::Cut, 1001), (Pod::Free, 1002)];
/// How long pods may take to start, or rules to be written.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which of the two pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Pod {
    Cut,
    Free,
}

/// A pod of a node has come through.
type Knock = (Pod, u8);

/// The manifest of the pods, as a file of the run folder.
pub(super) fn manifest(plan: &Plan) -> File {
    let pod = |node, pod: Pod, port: u16| {
        let knock = format!("nc -w 1 {WORLD_WEB} {port} </dev/null");
        let (name, script) = match pod {
            Pod::Cut => {
                ("cut", format!("until {knock}; do usleep 50000; done; while {knock}; do usleep 50000; done"))
            }
            Pod::Free => ("free", format!("while true; do {knock}; usleep 100000; done")),
        };
        format!(
            "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}-{node}, namespace: cluster-probe, labels: {{probe: {name}}}}}
spec:
  nodeName: {node}
  serviceAccountName: probe
  tolerations: [{{operator: Exists}}]
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: knock
    image: glovebox.dev/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, \"{script}\"]
"
        )
    };
    let pods = plan.nodes().flat_map(|node| PORTS.map(|(kind, port)| pod(node, kind, port)));
    ("manifests/probe.yaml".to_owned(), MANIFEST.to_owned() + &pods.collect::<String>())
}

/// The listener in the world; gone when dropped.
pub(super) struct Listener {
    child: Child,
    knocks: Receiver<Knock>,
}

impl Listener {
    /// Starts listening, before any pod knocks.
    pub(super) fn start(cluster: &Cluster) -> Result<Self> {
        let mut command = cluster.world_command(cluster.run.join(files::XTASK));
        command.args(["cluster", "__listen"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the probe's listener does not start")?;
        let stdout = child.stdout.take().context("no pipe")?;
        let (tell, knocks) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for knock in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if tell.send(knock).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, knocks })
    }

    /// Waits until all of these have knocked; fails with those that have not.
    fn await_all(&self, mut missing: BTreeSet<Knock>) -> Result<(), BTreeSet<Knock>> {
        let deadline = Instant::now() + PATIENCE;
        while !missing.is_empty() {
            match self.knocks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(knock) => drop(missing.remove(&knock)),
                Err(_) => return Err(missing),
            }
        }
        Ok(())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Proves that a policy cuts what it says, and only that, on every node.
pub(super) fn policy(cluster: &Cluster, plan: &Plan, listener: &Listener) -> Result<()> {
    let step = Step::start("NetworkPolicy enforced");
    let all =
        |pods: &[Pod]| plan.nodes().flat_map(|node| pods.iter().map(move |pod| (*pod, node.0))).collect();
    if let Err(missing) = listener.await_all(all(&[Pod::Cut, Pod::Free])) {
        bail!("these probe pods never reached the world, before any policy: {missing:?}");
    }
    let deny = plan.file("deny.yaml");
    std::fs::write(&deny, DENY).with_context(|| deny.display().to_string())?;
    kubectl(cluster, &["apply", "-f", &deny.display().to_string()])?;
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    // The phase would follow a second later, when the pod's network is gone.
    let ended = "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0";
    kubectl(cluster, &["wait", "--namespace=cluster-probe", ended, "pod", "--selector=probe=cut", &timeout])
        .context("a NetworkPolicy that denies everything does not cut a pod off")?;
    while listener.knocks.try_recv().is_ok() {}
    if let Err(missing) = listener.await_all(all(&[Pod::Free])) {
        bail!("these probe pods are cut off though no policy selects them: {missing:?}");
    }
    kubectl(cluster, &["delete", "namespace", "cluster-probe", "--wait=false"])?;
    step.done("a pod was cut off by it, its neighbour not");
    Ok(())
}

/// Proves that the cluster's DNS answers, from a node and through the service's address.
pub(super) fn dns(cluster: &Cluster) -> Result<()> {
    let step = Step::start("DNS answers");
    let names = [("kubernetes.default.svc.cluster.local", SERVICE_API), ("allowed.example", WORLD_WEB)];
    for (name, address) in names {
        let mut command = cluster.node_command(cluster.run.join(files::XTASK));
        command.args(["cluster", "__resolve", name]).arg(address.to_string());
        let output = command.stdin(Stdio::null()).output().context("the resolver does not start")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    step.done("");
    Ok(())
}

/// Runs in the world: accepts whoever knocks and prints who it was, for ever.
pub(super) fn listen() -> Result<()> {
    let (tell, told) = mpsc::channel();
    for (pod, port) in PORTS {
        let listener =
            TcpListener::bind((WORLD_WEB, port)).with_context(|| format!("port {port} of the world"))?;
        let tell = tell.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Ok(SocketAddr::V4(peer)) = stream.peer_addr() {
                    let _ = tell.send((pod, peer.ip().octets()[2]));
                }
            }
        });
    }
    for knock in told {
        let knock: Knock = knock;
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&knock)?)
            .context("nobody listens to the listener")?;
    }
    Ok(())
}

/// Runs on a node: asks the cluster's DNS until it gives that address.
pub(super) fn resolve(name: &str, address: Ipv4Addr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let query = query(name);
    let mut last = "nothing".to_owned();
    while Instant::now() < deadline {
        match ask(&query) {
            Ok(answer) if answer == Some(address) => return Ok(()),
            Ok(answer) => last = answer.map_or_else(|| "no address".to_owned(), |found| found.to_string()),
            Err(error) => last = error.to_string(),
        }
        thread::sleep(Duration::from_millis(100));
    }
    bail!("the cluster's DNS at {SERVICE_DNS} gives {last} for {name} instead of {address}")
}

fn ask(query: &[u8]) -> std::io::Result<Option<Ipv4Addr>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((SERVICE_DNS, 53))?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    socket.send(query)?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    Ok(address(&answer[..length], query.len()))
}

/// A DNS query for one IPv4 address, recursion desired.
fn query(name: &str) -> Vec<u8> {
    let mut message = vec![0x67, 0x62, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// The address in the first answer, if it is one and belongs to a query of that length.
fn address(answer: &[u8], query: usize) -> Option<Ipv4Addr> {
    let ours = answer.first_chunk::<2>()? == &[0x67, 0x62];
    let fine = ours && answer.get(3)? % 16 == 0 && *answer.get(7)? > 0;
    // Behind the repeated question: name, type, class, TTL, length, data.
    let record = skip_name(answer.get(query..)?)?.first_chunk::<14>()?;
    let is_address = record[..4] == [0, 1, 0, 1] && record[8..10] == [0, 4];
    let data: &[u8; 4] = record.last_chunk()?;
    (fine && is_address).then(|| Ipv4Addr::from(*data))
}

/// What follows a name, which ends with an empty label or with a pointer to an earlier name.
fn skip_name(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        match *rest.first()? {
            0 => return rest.get(1..),
            length if length & 0xc0 == 0xc0 => return rest.get(2..),
            length => rest = rest.get(1 + usize::from(length)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u8, answers: u8, record: &[u8]) -> (Vec<u8>, usize) {
        let mut message = query("a.example");
        let length = message.len();
        message[2] = 0x81;
        message[3] = 0x80 | code;
        message[7] = answers;
        message.extend(record);
        (message, length)
    }

    #[test]
    fn an_address_is_read_from_an_answer_and_from_nothing_else() {
        let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 203, 0, 113, 7];
        let (good, length) = reply(0, 1, &record);
        assert_eq!(address(&good, length), Some(Ipv4Addr::new(203, 0, 113, 7)));
        let spelled_out = [b"\x01a\x07example\0", &record[2..]].concat();
        let (good, length) = reply(0, 1, &spelled_out);
        assert_eq!(address(&good, length), Some(Ipv4Addr::new(203, 0, 113, 7)));
        let (refused, length) = reply(3, 1, &record);
        assert_eq!(address(&refused, length), None);
        let (empty, length) = reply(0, 0, &record);
        assert_eq!(address(&empty, length), None);
        for cut in 0..good.len() {
            assert_eq!(address(&good[..cut], length), None, "{cut} bytes");
        }
    }

    #[test]
    fn each_node_gets_a_pod_to_cut_and_one_to_leave_alone() {
        let (_, text) = manifest(&Plan::sample(2));
        for pod in ["cut-node0", "free-node0", "cut-node1", "free-node1"] {
            assert!(text.contains(&format!("metadata: {{name: {pod},")), "{pod}");
        }
    }
}
