//! `extend`: another time to live. What the class does not let happen is told before anything is changed where it can be seen, and
//! taken back where it is refused later.

use std::time::Duration;

use anyhow::bail;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;

use super::{
    cluster::{Cluster, explained},
    fault::Outcome,
    interrupt::Signals,
    options::ClusterOptions,
    print, text, wait,
};
use crate::api::{AgentSandbox, ConditionType, Phase, SandboxClass, SandboxClassSpec, Span};

/// How long the controller may take to say what it makes of a change.
const ANSWERED: Duration = Duration::from_secs(20);

/// Changes how long a sandbox lives, counted from when it was made.
///
/// Every class lets it be shortened. A class lets it be raised only if it says `ttl.extendable: true`, and at most to `ttl.max`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox extend review-42 2h
  glovebox extend review-42 10m --namespace team-a")]
pub struct Options {
    /// The sandbox.
    name: String,
    /// How long it lives in all, from when it was made: 30m, 2h.
    #[arg(value_name = "TTL")]
    ttl: Span,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Carries it out.
pub(super) async fn extend(options: Options) -> Outcome {
    let cluster = Cluster::open(&options.cluster).await?;
    let api: Api<AgentSandbox> = cluster.here();
    let before = wait::by_name(&api, &options.name).await?;
    let class = class(&cluster, &before).await;
    if let Err(why) = judge(&before, class.as_ref(), options.ttl, Timestamp::now()) {
        bail!("sandbox {}: {why}", options.name);
    }
    let after = set(&api, &before, Some(options.ttl)).await?;
    let told = Signals::catch()?.unless(answered(&api, &after)).await?;
    if let Some(why) = refusal(&told) {
        set(&api, &told, before.spec.ttl).await?;
        bail!("sandbox {}: the controller refuses: {why}; its time to live is as before", options.name);
    }
    let ends = told.status.and_then(|status| status.expires_at).map(|time| time.0);
    let words = ends.map_or_else(
        || "the controller has not said yet when it ends".to_owned(),
        |at| format!("ends {} ({at:.0})", text::until(at, Timestamp::now())),
    );
    print::words(&format!("sandbox {} {words}\n", text::line(&options.name)))?;
    Ok(0)
}

/// The class of a sandbox, if it can be seen.
async fn class(cluster: &Cluster, sandbox: &AgentSandbox) -> Option<SandboxClassSpec> {
    let used = sandbox.status.as_ref().and_then(|status| status.class_name.clone());
    let name = used.or_else(|| sandbox.spec.class_name.clone())?;
    let classes: Api<SandboxClass> = Api::all(cluster.client.clone());
    classes.get(&name).await.ok().map(|class| class.spec)
}

/// Whether it can be, as far as it can be seen here. The controller's word counts.
fn judge(
    sandbox: &AgentSandbox,
    class: Option<&SandboxClassSpec>,
    ttl: Span,
    now: Timestamp,
) -> Result<(), String> {
    let status = sandbox.status.as_ref();
    if status.and_then(|status| status.phase).is_some_and(Phase::is_terminal) {
        return Err("it ended already; make another one".into());
    }
    let made = sandbox.creation_timestamp().map_or(now, |time| time.0);
    let end = made.checked_add(ttl.duration()).map_err(|_| format!("{ttl} is too long"))?;
    if end <= now {
        let age = text::ago(made, now);
        return Err(format!(
            "it has lived {age} already, so that it would end at once; `glovebox delete` is for that"
        ));
    }
    let Some(class) = class else { return Ok(()) };
    if ttl > class.ttl.max {
        return Err(format!("its class allows at most {}", class.ttl.max));
    }
    let known = status.and_then(|status| status.expires_at.as_ref()).map(|time| time.0);
    match known {
        Some(known) if end.duration_since(known).as_secs() > 0 && !class.ttl.extendable => Err(format!(
            "it ends {} ({known:.0}), and its class lets that only come earlier; a class with ttl.extendable lets it come later",
            text::until(known, now)
        )),
        _ => Ok(()),
    }
}

async fn set(
    api: &Api<AgentSandbox>,
    sandbox: &AgentSandbox,
    ttl: Option<Span>,
) -> anyhow::Result<AgentSandbox> {
    let name = sandbox.name_any();
    // Of this sandbox, and no other of its name.
    let patch = json!({"metadata": {"uid": sandbox.metadata.uid}, "spec": {"ttl": ttl}});
    let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| explained(error, &format!("sandbox {name}")))
}

/// It, once the controller has looked at the change; as it is, when that takes too long.
async fn answered(api: &Api<AgentSandbox>, changed: &AgentSandbox) -> anyhow::Result<AgentSandbox> {
    let (name, generation) = (changed.name_any(), changed.metadata.generation);
    let looked = async {
        let mut states = std::pin::pin!(watcher::watch_object(api.clone(), &name).default_backoff());
        while let Some(state) = states.next().await {
            let Ok(Some(sandbox)) = state else { continue };
            if sandbox.status.as_ref().and_then(|status| status.observed_generation) >= generation {
                return Some(sandbox);
            }
        }
        None
    };
    match tokio::time::timeout(ANSWERED, looked).await {
        Ok(Some(sandbox)) => Ok(sandbox),
        _ => bail!(
            "sandbox {name}: the change is made, and the controller says nothing of it; `glovebox doctor` says whether it runs"
        ),
    }
}

fn refusal(sandbox: &AgentSandbox) -> Option<String> {
    let conditions = sandbox.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let accepted = conditions.iter().find(|one| one.type_ == ConditionType::Accepted.as_str())?;
    (accepted.status == "False").then(|| accepted.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(phase: &str) -> AgentSandbox {
        serde_json::from_value(json!({
            "metadata": {"name": "s", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"image": "i"},
            "status": {"phase": phase, "expiresAt": "2026-01-01T01:00:00Z"},
        }))
        .unwrap()
    }

    fn class(extendable: bool) -> SandboxClassSpec {
        serde_json::from_value(json!({
            "trust": "Trusted", "runtime": {"isolation": "SharedKernel"},
            "ttl": {"default": "1h", "max": "3h", "extendable": extendable},
        }))
        .unwrap()
    }

    #[test]
    fn what_the_class_does_not_let_happen_is_told_before() {
        let now: Timestamp = "2026-01-01T00:20:00Z".parse().unwrap();
        let told = |phase: &str, class: Option<SandboxClassSpec>, ttl: &str| {
            judge(&sandbox(phase), class.as_ref(), ttl.parse().unwrap(), now)
        };
        for (phase, class, ttl, word) in [
            ("Running", Some(class(false)), "30m", None),
            ("Running", Some(class(false)), "1h", None),
            ("Running", Some(class(true)), "3h", None),
            ("Running", None, "9h", None),
            ("Running", Some(class(false)), "2h", Some("only come earlier")),
            ("Running", Some(class(true)), "4h", Some("at most 3h")),
            ("Running", Some(class(true)), "20m", Some("has lived 20m already")),
            ("Expired", Some(class(true)), "2h", Some("ended already")),
        ] {
            let is = told(phase, class, ttl);
            assert_eq!(is.is_err(), word.is_some(), "{phase} {ttl}: {is:?}");
            assert!(word.is_none_or(|word| is.clone().unwrap_err().contains(word)), "{is:?}");
        }
    }
}
