//! What is installed: the API server, the custom resource definitions, and the Deployments of each role.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{Finding, Patient, State};
use crate::{
    api::{self, GROUP},
    cli::cluster::explained,
    sandbox::names::MANAGER,
};

/// The lowest minor version of Kubernetes 1 that is supported.
const LEAST_MINOR: u32 = 33;
/// The version that this program is of.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");
const UPGRADE: &str =
    "upgrade the chart: helm upgrade glovebox charts/glovebox --namespace NAMESPACE --reuse-values";

/// Whether the API server answers, and is new enough. Without an answer there is nothing else to look at.
pub(super) async fn api_server(patient: &Patient<'_>) -> anyhow::Result<Finding> {
    let version = patient.cluster.client.apiserver_version().await;
    let version = version
        .map_err(|error| explained(error, "the API server"))
        .context("the cluster can't be looked at")?;
    Ok(judge_version(&version.major, &version.minor, &version.git_version))
}

fn judge_version(major: &str, minor: &str, name: &str) -> Finding {
    let number =
        |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().unwrap_or(0);
    if (number(major), number(minor)) >= (1, LEAST_MINOR) {
        return Finding::ok("api-server", format!("Kubernetes {name}"));
    }
    Finding::bad(
        "api-server",
        State::Broken,
        format!("Kubernetes {name} is too old"),
        format!("upgrade the cluster to 1.{LEAST_MINOR} or newer"),
    )
}

/// Whether each definition is there, and of this version.
pub(super) async fn definitions(patient: &Patient<'_>) -> Vec<Finding> {
    let client = &patient.cluster.client;
    let served: BTreeSet<String> = match client.list_api_group_resources(&format!("{GROUP}/v1alpha1")).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(_) => BTreeSet::new(),
    };
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    for ours in api::crds() {
        let theirs = api.get(&ours.name_any()).await;
        findings.push(judge_definition(&ours, served.contains(&ours.spec.names.plural), theirs));
    }
    findings
}

fn judge_definition(
    ours: &CustomResourceDefinition,
    served: bool,
    theirs: kube::Result<CustomResourceDefinition>,
) -> Finding {
    let name = ours.name_any();
    let bad = |state, message: &str, fix: &str| {
        Finding::bad("definitions", state, format!("{name}: {message}"), fix)
    };
    if !served {
        return bad(
            State::Broken,
            "not served",
            "install the chart (docs/install.md), or apply the definitions: glovebox crds --apply",
        );
    }
    let schema = |of: &CustomResourceDefinition| {
        let version = of.spec.versions.iter().find(|version| version.name == "v1alpha1");
        version.and_then(|version| serde_json::to_value(&version.schema).ok())
    };
    match theirs {
        Ok(theirs) if schema(&theirs) == schema(ours) => Finding::ok("definitions", name),
        Ok(_) => bad(
            State::Warning,
            &format!("of another version than this program ({OWN_VERSION})"),
            &format!("use the program that is installed in the cluster, or {UPGRADE}"),
        ),
        Err(kube::Error::Api(status)) if status.code == 403 => Finding::ok(
            "definitions",
            format!("{name} is served; whether it is of this version, you may not see"),
        ),
        Err(error) => bad(State::Unknown, &format!("{error}"), "look again in a moment"),
    }
}

/// Whether each role runs; and where they are installed.
pub(super) async fn deployments(patient: &Patient<'_>) -> (Vec<Finding>, Option<String>) {
    let client = patient.cluster.client.clone();
    let api: Api<Deployment> = match &patient.session.glovebox_namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let wanted = ListParams::default().labels(&format!("app.kubernetes.io/name={MANAGER}"));
    match api.list(&wanted).await {
        Ok(found) => {
            let namespace = found.items.iter().find_map(kube::ResourceExt::namespace);
            let judged = ["controller", "gateway", "session"].map(|role| judge_role(role, &found.items));
            (judged.into_iter().flatten().collect(), namespace)
        }
        Err(error) => {
            let message = format!("{:#}", explained(error, "Deployments of Glovebox"));
            let fix = "name Glovebox's namespace by --glovebox-namespace, or ask somebody who may see Deployments there";
            (
                vec![Finding::bad("installation", State::Unknown, message, fix)],
                patient.session.glovebox_namespace.clone(),
            )
        }
    }
}

fn judge_role(role: &'static str, all: &[Deployment]) -> Vec<Finding> {
    let of_role = |deployment: &&Deployment| {
        deployment.labels().get("app.kubernetes.io/component").is_some_and(|one| one == role)
    };
    let Some(deployment) = all.iter().find(of_role) else {
        let fix = match role {
            "session" => "install the chart with session.enabled=true; without it no sandbox takes calls",
            _ => "install the chart (docs/install.md)",
        };
        return vec![Finding::bad(role, State::Broken, "not installed", fix)];
    };
    let (namespace, name) = (deployment.namespace().unwrap_or_default(), deployment.name_any());
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let told = format!("{ready} of {wanted} replicas are ready");
    let look = format!("kubectl --namespace {namespace} describe pods -l app.kubernetes.io/component={role}");
    let runs = match (ready, wanted) {
        (_, 0) => Finding::bad(
            role,
            State::Broken,
            format!("{name} is scaled to 0"),
            format!("kubectl --namespace {namespace} scale deployment {name} --replicas 2"),
        ),
        (0, _) => Finding::bad(role, State::Broken, told, look),
        (ready, wanted) if ready < wanted => Finding::bad(role, State::Warning, told, look),
        _ => Finding::ok(role, told),
    };
    let version =
        deployment.labels().get("app.kubernetes.io/version").filter(|version| *version != OWN_VERSION);
    let other = version.map(|version| {
        let message = format!("{name} is of version {version}, this program of {OWN_VERSION}");
        Finding::bad(
            role,
            State::Warning,
            message,
            format!("use the program of the same version, or {UPGRADE}"),
        )
    });
    std::iter::once(runs).chain(other).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (major, minor, state) in [
            ("1", "33", State::Ok),
            ("1", "37+", State::Ok),
            ("2", "0", State::Ok),
            ("1", "32", State::Broken),
            ("1", "9", State::Broken),
            ("", "", State::Broken),
        ] {
            assert_eq!(judge_version(major, minor, "v").state, state, "{major}.{minor}");
        }
    }

    fn api_error(code: u16) -> kube::Result<CustomResourceDefinition> {
        Err(kube::Error::Api(Box::new(kube::core::Status::failure("m", "R").with_code(code))))
    }

    #[test]
    fn definitions_are_there_and_of_this_version() {
        let ours = &api::crds()[0];
        // As an API server gives it back.
        let theirs: CustomResourceDefinition =
            serde_json::from_str(&serde_json::to_string(ours).unwrap()).unwrap();
        assert_eq!(judge_definition(ours, true, Ok(theirs.clone())).state, State::Ok);
        assert_eq!(judge_definition(ours, false, Ok(theirs.clone())).state, State::Broken);
        let mut other = theirs;
        other.spec.versions[0].schema = None;
        assert_eq!(judge_definition(ours, true, Ok(other)).state, State::Warning);
        assert_eq!(judge_definition(ours, true, api_error(403)).state, State::Ok);
        assert_eq!(judge_definition(ours, true, api_error(500)).state, State::Unknown);
    }

    fn deployment(role: &str, wanted: i32, ready: i32, version: &str) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": format!("glovebox-{role}"), "namespace": "g", "labels": {"app.kubernetes.io/component": role, "app.kubernetes.io/version": version}},
            "spec": {"replicas": wanted, "selector": {}, "template": {}}, "status": {"readyReplicas": ready},
        }))
        .unwrap()
    }

    #[test]
    fn roles_run() {
        let states = |all: &[Deployment]| {
            judge_role("session", all).iter().map(|finding| finding.state).collect::<Vec<_>>()
        };
        assert_eq!(states(&[deployment("session", 2, 2, OWN_VERSION)]), [State::Ok]);
        assert_eq!(states(&[deployment("session", 2, 1, OWN_VERSION)]), [State::Warning]);
        assert_eq!(states(&[deployment("session", 2, 0, OWN_VERSION)]), [State::Broken]);
        assert_eq!(states(&[deployment("session", 0, 0, OWN_VERSION)]), [State::Broken]);
        assert_eq!(states(&[deployment("session", 1, 1, "9.9.9")]), [State::Ok, State::Warning]);
        assert_eq!(states(&[deployment("gateway", 1, 1, OWN_VERSION)]), [State::Broken]);
    }
}
