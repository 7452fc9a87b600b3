//! A node that runs pods: init reports a kernel, the workload runs, ends or does not start, deadlines hold, what is
//! deleted goes. Each step takes its time on the virtual clock.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    clock,
    store::{Key, Store},
};
use crate::report::{self, ExitRecord, FenceProof, KernelReport, VERSION};

/// The node's name.
pub const NODE: &str = "node-1";
/// Its boot id.
pub const BOOT_ID: &str = "11111111-2222-4333-8444-555555555555";
const OTHER_BOOT_ID: &str = "99999999-2222-4333-8444-555555555555";

/// Whose kernel pods meet on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The node's.
    Node,
    /// gVisor's.
    Gvisor,
    /// Their own.
    Own,
}

/// What becomes of workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// They run until they are ended.
    Runs,
    /// They end by themselves with this code; without the record of their supervisor, if they killed it.
    Ends {
        /// How long they run.
        after: Duration,
        /// Exit code.
        code: u8,
        /// Whether the supervisor recorded it.
        recorded: bool,
    },
    /// They never start, for this reason.
    Waits(&'static str),
}

/// The node.
#[derive(Debug)]
pub struct Kubelet {
    /// The kernel below.
    pub kernel: Kernel,
    /// What workloads do.
    pub workload: Workload,
    /// Whether pods that are deleted do not go.
    pub stuck: bool,
    pods: BTreeMap<String, (Stage, Timestamp)>,
}

/// What comes next for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Schedule,
    Init,
    Start,
    End,
    Never,
    Stop,
    Go,
}

impl Stage {
    fn takes(self, workload: &Workload) -> Duration {
        match (self, workload) {
            (Self::Schedule, _) => Duration::from_millis(50),
            (Self::Init, _) => Duration::from_millis(400),
            (Self::Start, _) => Duration::from_millis(150),
            (Self::End, Workload::Ends { after, .. }) => *after,
            (Self::Stop | Self::Go, _) => Duration::from_millis(200),
            (Self::End | Self::Never, _) => Duration::from_secs(1 << 40),
        }
    }
}

impl Default for Kubelet {
    fn default() -> Self {
        Self { kernel: Kernel::Gvisor, workload: Workload::Runs, stuck: false, pods: BTreeMap::new() }
    }
}

impl Kubelet {
    /// Does what is due.
    pub fn step(&mut self, store: &mut Store) {
        let now = store.clock.now();
        let pods: Vec<(Key, String)> =
            store.list("Pod", "").map(|(key, pod)| (key.clone(), uid(pod).to_owned())).collect();
        self.pods.retain(|known, _| pods.iter().any(|(_, uid)| uid == known));
        for (key, uid) in pods {
            let pod = store.get(&key).unwrap();
            let (mut stage, mut due) = *self
                .pods
                .entry(uid.clone())
                .or_insert_with(|| (Stage::Schedule, now + Stage::Schedule.takes(&self.workload)));
            if pod["metadata"]["deletionTimestamp"].is_string() && stage < Stage::Stop {
                (stage, due) = (Stage::Stop, now + Stage::Stop.takes(&self.workload));
            }
            let late = !self.stuck && outlived(pod, now) && stage < Stage::Stop;
            if late {
                store.edit(&key, deadline_exceeded);
                (stage, due) = (Stage::Never, Timestamp::MAX);
            }
            if now >= due && !(self.stuck && stage >= Stage::Stop) {
                let pod = store.get(&key).unwrap().clone();
                stage = self.advance(store, &key, &pod, stage);
                due = now
                    .checked_add(SignedDuration::try_from(stage.takes(&self.workload)).unwrap())
                    .unwrap_or(Timestamp::MAX);
            }
            self.pods.insert(uid, (stage, due));
        }
    }

    /// When something is due next.
    #[must_use]
    pub fn next(&self, store: &Store) -> Option<Timestamp> {
        let stage = |pod: &Value| self.pods.get(uid(pod)).map(|(stage, _)| *stage);
        let ends =
            |pod: &Value| !self.stuck && lives(pod) && stage(pod).is_some_and(|stage| stage < Stage::Stop);
        let deadlines = store.list("Pod", "").filter_map(|(_, pod)| deadline(pod).filter(|_| ends(pod)));
        let stages = self
            .pods
            .values()
            .filter(|(stage, _)| !(self.stuck && *stage >= Stage::Stop))
            .map(|(_, due)| *due);
        deadlines.chain(stages).min()
    }

    fn advance(&self, store: &mut Store, key: &Key, pod: &Value, stage: Stage) -> Stage {
        let stamp = store.clock.stamp();
        match stage {
            Stage::Schedule => schedule(store, key, pod),
            Stage::Init => {
                let (code, message) = self.init(pod);
                let ended = json!({"name": "glovebox-init", "state": {"terminated": {"exitCode": code, "message": message, "finishedAt": stamp, "reason": if code == 0 { "Completed" } else { "Error" }}}});
                store.edit(key, |pod| {
                    pod["status"]["initContainerStatuses"] = json!([ended]);
                    if code != 0 {
                        pod["status"]["phase"] = json!("Failed");
                    }
                });
                if code == 0 { Stage::Start } else { Stage::Never }
            }
            Stage::Start => {
                let running = json!({"name": "workload", "state": {"running": {"startedAt": stamp}}});
                let waiting = |reason| json!({"name": "workload", "state": {"waiting": {"reason": reason, "message": "as told"}}});
                let (phase, container, next) = match &self.workload {
                    Workload::Waits(reason) => ("Pending", waiting(reason), Stage::Never),
                    Workload::Runs => ("Running", running, Stage::Never),
                    Workload::Ends { .. } => ("Running", running, Stage::End),
                };
                store.edit(key, |pod| {
                    pod["status"]["phase"] = json!(phase);
                    pod["status"]["podIP"] = json!("10.244.0.7");
                    pod["status"]["containerStatuses"] = json!([container]);
                });
                next
            }
            Stage::End => {
                let Workload::Ends { code, recorded, .. } = self.workload else { return Stage::Never };
                let record = ExitRecord {
                    v: VERSION,
                    exit_code: Some(code),
                    signal: None,
                    spawn_error: None,
                    oom: Some(false),
                    fence_open: None,
                };
                let message = if recorded { report::encode(&record).unwrap() } else { String::new() };
                store.edit(key, |pod| {
                    pod["status"]["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
                    pod["status"]["containerStatuses"] = terminated(pod, code.into(), &message, &stamp);
                });
                Stage::Never
            }
            Stage::Stop => {
                if pod["status"]["containerStatuses"][0]["state"]["running"].is_object() {
                    store.edit(key, |pod| {
                        pod["status"]["containerStatuses"] = terminated(pod, 137, "", &stamp);
                    });
                }
                Stage::Go
            }
            Stage::Go => {
                store.remove(key);
                Stage::Never
            }
            Stage::Never => Stage::Never,
        }
    }

    /// What the init container does: it reports, and ends with 78 where it sees less than was promised.
    fn init(&self, pod: &Value) -> (i32, String) {
        let report = KernelReport {
            v: VERSION,
            boot_id: if self.kernel == Kernel::Node { BOOT_ID.into() } else { OTHER_BOOT_ID.into() },
            kernel: "Linux version 6.18.0".into(),
            gvisor: self.kernel == Kernel::Gvisor,
            seccomp: if self.kernel == Kernel::Node { 2 } else { 0 },
            no_new_privs: true,
            cap_eff: "0000000000000000".into(),
            user_namespace: false,
            fence: Some(FenceProof { rounds: 3, open: None, missing: None }),
        };
        let command = pod["spec"]["initContainers"][0]["command"].as_array().cloned().unwrap_or_default();
        let promised =
            command.iter().position(|part| part == "--isolation").and_then(|at| command.get(at + 1));
        let weaker =
            self.kernel == Kernel::Gvisor && promised.is_some_and(|promised| promised == "VirtualMachine");
        let accepted = command.iter().any(|part| part == "--accept-weaker");
        (if weaker && !accepted { 78 } else { 0 }, report::encode(&report).unwrap())
    }
}

fn schedule(store: &mut Store, key: &Key, pod: &Value) -> Stage {
    let wanted = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
    let fits = |node: &Value| wanted.iter().all(|(label, value)| node["metadata"]["labels"][label] == *value);
    let found = store.list("Node", "").find(|(_, node)| fits(node)).map(|(key, _)| key.name.clone());
    let stamp = store.clock.stamp();
    let Some(node) = found else {
        let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}]);
        store.edit(key, |pod| pod["status"]["conditions"] = condition);
        return Stage::Schedule;
    };
    store.edit(key, |pod| {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True"}]);
        pod["status"]["startTime"] = json!(stamp);
    });
    Stage::Init
}

fn terminated(pod: &Value, code: i32, message: &str, at: &str) -> Value {
    let since = &pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"];
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!([{"name": "workload", "state": {"terminated": {"exitCode": code, "message": message, "startedAt": since, "finishedAt": at, "reason": reason}}}])
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap()
}

fn lives(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// When the pod's own deadline ends it: the kubelet looks every second.
fn deadline(pod: &Value) -> Option<Timestamp> {
    let start = clock::read(pod["status"]["startTime"].as_str()?);
    let seconds = pod["spec"]["activeDeadlineSeconds"].as_i64()?.checked_add(1)?;
    start.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn outlived(pod: &Value, now: Timestamp) -> bool {
    lives(pod) && deadline(pod).is_some_and(|deadline| now >= deadline)
}

fn deadline_exceeded(pod: &mut Value) {
    pod["status"]["phase"] = json!("Failed");
    pod["status"]["reason"] = json!("DeadlineExceeded");
    pod["status"]["message"] = json!("Pod was active on the node longer than the specified deadline");
}
