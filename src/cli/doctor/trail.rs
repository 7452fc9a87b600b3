//! Whether what is done is on the record.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Api, ResourceExt as _, api::ListParams, core::Selector};

use super::{Finding, Patient, State};
use crate::{cli::cluster::explained, sandbox::names};

const CHECK: &str = "audit";

/// Whether the trail's writer runs. Without one, sandboxes run all the same, and nobody can say what they did.
pub(super) async fn trail(patient: &Patient<'_>) -> Finding {
    let client = patient.cluster.client.clone();
    let api: Api<StatefulSet> = match &patient.session.glovebox_namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let wanted = ListParams::default().labels_from(&Selector::from_iter(names::audit_labels()));
    match api.list(&wanted).await {
        Ok(found) => judge(found.items.first()),
        Err(error) => {
            let message = format!("{:#}", explained(error, "the StatefulSet of the audit trail"));
            let fix = "name Glovebox's namespace by --glovebox-namespace, or ask somebody who may see StatefulSets there";
            Finding::bad(CHECK, State::Unknown, message, fix)
        }
    }
}

fn judge(found: Option<&StatefulSet>) -> Finding {
    let Some(set) = found else {
        let fix = "install the chart with audit.enabled=true";
        return Finding::bad(CHECK, State::Warning, "not installed: nothing that is done is recorded", fix);
    };
    if set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0) > 0 {
        return Finding::ok(
            CHECK,
            "the trail is written; glovebox audit verify holds it against its checkpoints",
        );
    }
    let namespace = set.namespace().unwrap_or_default();
    let message =
        "the trail is not written: what is done waits in memory, or is refused with audit.failClosed";
    Finding::bad(
        CHECK,
        State::Broken,
        message,
        format!("kubectl --namespace {namespace} describe pods -l app.kubernetes.io/component=audit"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trail_that_is_not_written_is_broken_and_none_is_a_warning() {
        let set = |ready: i32| {
            let status = json!({"replicas": 1, "readyReplicas": ready});
            serde_json::from_value::<StatefulSet>(
                json!({"metadata": {"name": "glovebox-audit"}, "status": status}),
            )
            .unwrap()
        };
        assert_eq!(judge(None).state, State::Warning);
        assert_eq!(judge(Some(&set(0))).state, State::Broken);
        assert_eq!(judge(Some(&set(1))).state, State::Ok);
    }
}
