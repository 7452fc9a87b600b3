//! What the record costs a call: the session's CPU with its record and without, by turns, since a machine is not as fast at all times.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{ROLE, cluster::Bench, usage::Usage};

/// Turns of each kind.
const TURNS: usize = 3;
/// Calls in each, and those before it that do not count.
const CALLS: usize = 1500;
const WARM: usize = 200;
/// How long replicas have to change.
const PATIENCE: Duration = Duration::from_secs(180);

/// CPU of a call with the record and without, each turn's.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) on: Vec<Duration>,
    pub(super) off: Vec<Duration>,
}

impl Recorded {
    /// Measures both; nothing where the session records nothing, or is not on this machine. The session is left as it was.
    pub(super) async fn measure(bench: &Bench) -> Result<Self> {
        let (api, name) = bench.session();
        let arguments = arguments(&api.get(name).await?)?;
        let without: Vec<String> =
            arguments.iter().filter(|one| !one.starts_with("--audit")).cloned().collect();
        if without.len() == arguments.len() || Usage::read(ROLE).processes == 0 {
            return Ok(Self::default());
        }
        let mut all = Self::default();
        let measured = async {
            for _ in 0..TURNS {
                turn(bench, &api, name, &without).await.map(|cpu| all.off.push(cpu))?;
                turn(bench, &api, name, &arguments).await.map(|cpu| all.on.push(cpu))?;
            }
            Ok(())
        };
        let measured = measured.await;
        change(&api, name, &arguments).await?;
        measured.map(|()| all)
    }
}

fn arguments(session: &Deployment) -> Result<Vec<String>> {
    let pod = session.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let container = pod.and_then(|pod| pod.containers.first()).context("a session without a container")?;
    container.args.clone().context("a session without arguments")
}

async fn turn(bench: &Bench, api: &Api<Deployment>, name: &str, arguments: &[String]) -> Result<Duration> {
    change(api, name, arguments).await?;
    crate::session(bench, WARM).await?;
    let before = Usage::read(ROLE);
    crate::session(bench, CALLS).await?;
    let after = Usage::read(ROLE);
    ensure!(before.processes == after.processes, "replicas came or went meanwhile");
    Ok(after.since(&before).cpu / u32::try_from(CALLS)?)
}

/// Has all replicas run with these arguments, and waits until the others are gone.
async fn change(api: &Api<Deployment>, name: &str, arguments: &[String]) -> Result<()> {
    let pod = json!({"containers": [{"name": "session", "args": arguments}]});
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": pod}}}));
    api.patch(name, &PatchParams::default(), &patch).await?;
    let began = Instant::now();
    loop {
        let now = api.get(name).await?;
        let wanted = now.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = now.status.clone().unwrap_or_default();
        let settled = status.observed_generation == now.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(wanted); 3]
            && Usage::read(ROLE).processes == usize::try_from(wanted)?;
        if settled {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the session's replicas do not change");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
