//! What the caller may do, and whether the session answers them.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use super::{Finding, Patient, State};
use crate::{
    api::GROUP,
    cli::session::{Refused, Session},
};

/// A sandbox that nobody has: how the session answers for it tells whether it knows the caller.
const NOBODYS: &str = "glovebox-doctor-looks-for-nothing";

/// A right that commands need.
struct Needed {
    group: &'static str,
    resource: &'static str,
    subresource: Option<&'static str>,
    verbs: &'static [&'static str],
    /// What does not work without it.
    lost: &'static str,
    /// Whether sandboxes can't be used at all without it.
    vital: bool,
}

const NEEDED: [Needed; 7] = [
    Needed {
        group: GROUP,
        resource: "agentsandboxes",
        subresource: None,
        verbs: &["create", "get", "list", "watch", "delete"],
        lost: "run, create, list and delete",
        vital: true,
    },
    Needed {
        group: GROUP,
        resource: "agentsandboxes",
        subresource: Some("exec"),
        verbs: &["create"],
        lost: "run and exec",
        vital: true,
    },
    Needed {
        group: GROUP,
        resource: "agentsandboxes",
        subresource: Some("files"),
        verbs: &["get", "update"],
        lost: "cp",
        vital: false,
    },
    Needed {
        group: GROUP,
        resource: "agentsandboxes",
        subresource: Some("logs"),
        verbs: &["get"],
        lost: "logs",
        vital: false,
    },
    Needed {
        group: GROUP,
        resource: "agentsandboxes",
        subresource: None,
        verbs: &["patch"],
        lost: "extend",
        vital: false,
    },
    Needed {
        group: GROUP,
        resource: "egresspolicies",
        subresource: None,
        verbs: &["get"],
        lost: "what a sandbox may reach by policies, in describe",
        vital: false,
    },
    Needed {
        group: "",
        resource: "events",
        subresource: None,
        verbs: &["list"],
        lost: "what was refused, in describe",
        vital: false,
    },
];

/// What the caller may do in the namespace, with the default class, and to reach the session.
pub(super) async fn rights(
    patient: &Patient<'_>,
    class: Option<&str>,
    glovebox: Option<&str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let namespace = patient.cluster.namespace.as_str();
    for needed in &NEEDED {
        let mut missing = Vec::new();
        for verb in needed.verbs {
            match may(patient, &attributes(needed, verb, namespace)).await {
                Ok(true) => {}
                Ok(false) => missing.push(*verb),
                Err(error) => {
                    return vec![Finding::bad("rights", State::Unknown, error, "look again in a moment")];
                }
            }
        }
        findings.extend(judge(needed, &missing, namespace));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("rights", format!("you may use sandboxes in namespace {namespace}")));
    }
    findings.extend(use_of_class(patient, class).await);
    if patient.session.session.is_none() {
        findings.extend(port_forward(patient, glovebox).await);
    }
    findings
}

fn judge(needed: &Needed, missing: &[&str], namespace: &str) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    let Needed { group, resource, subresource, lost, vital, .. } = needed;
    let below = subresource.map(|name| format!("/{name}")).unwrap_or_default();
    let verbs = missing.join(", ");
    let state = if *vital { State::Broken } else { State::Warning };
    let message =
        format!("you may not {verbs} {resource}{below} in namespace {namespace}, which is needed for {lost}");
    let fix = format!(
        "have somebody bind the ClusterRole glovebox-user to you there, or a Role with the rule {{apiGroups: [\"{group}\"], resources: [{resource}{below}], verbs: [{verbs}]}}"
    );
    Some(Finding::bad("rights", state, message, fix))
}

async fn use_of_class(patient: &Patient<'_>, class: Option<&str>) -> Option<Finding> {
    let class = class?;
    let wanted = ResourceAttributes {
        group: Some(GROUP.into()),
        resource: Some("sandboxclasses".into()),
        verb: Some("use".into()),
        name: Some(class.to_owned()),
        namespace: Some(patient.cluster.namespace.clone()),
        ..ResourceAttributes::default()
    };
    match may(patient, &wanted).await {
        Ok(true) => Some(Finding::ok("rights", format!("you may use the default class {class}"))),
        Ok(false) => {
            let fix = format!(
                "have the ClusterRole glovebox-use-{class} bound to you, or name another class by --class"
            );
            Some(Finding::bad(
                "rights",
                State::Broken,
                format!("you may not use the default class {class}"),
                fix,
            ))
        }
        Err(error) => Some(Finding::bad("rights", State::Unknown, error, "look again in a moment")),
    }
}

/// Without an address of the session, its pods are reached through the API server.
async fn port_forward(patient: &Patient<'_>, glovebox: Option<&str>) -> Option<Finding> {
    let namespace = glovebox?;
    let wanted = ResourceAttributes {
        resource: Some("pods".into()),
        subresource: Some("portforward".into()),
        verb: Some("create".into()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    let allowed = may(patient, &wanted).await.unwrap_or(true);
    let message = format!("you may not port-forward to pods in namespace {namespace}");
    let fix = "name the session's address by --session or GLOVEBOX_SESSION, and what vouches for it by --session-ca";
    (!allowed).then(|| Finding::bad("rights", State::Warning, message, fix))
}

fn attributes(needed: &Needed, verb: &str, namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(needed.group.into()),
        resource: Some(needed.resource.into()),
        subresource: needed.subresource.map(Into::into),
        verb: Some(verb.into()),
        namespace: Some(namespace.into()),
        ..ResourceAttributes::default()
    }
}

async fn may(patient: &Patient<'_>, wanted: &ResourceAttributes) -> Result<bool, String> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(wanted.clone()),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(patient.cluster.client.clone());
    let answer = api.create(&PostParams::default(), &review).await;
    answer
        .map(|review| review.status.is_some_and(|status| status.allowed))
        .map_err(|error| format!("what you may do can't be asked: {error}"))
}

/// Whether the session is reached, and knows the caller.
pub(super) async fn session(patient: &Patient<'_>) -> Finding {
    let asked = async {
        let mut session = Session::open(patient.cluster, patient.session).await?;
        session.status(&patient.cluster.namespace, NOBODYS).await
    };
    judge_session(asked.await.map(|_| ()))
}

fn judge_session(asked: anyhow::Result<()>) -> Finding {
    let good = || Finding::ok("session-api", "the session answers, and knows who you are");
    let error = match asked {
        Ok(()) => return good(),
        Err(error) => error,
    };
    let bad = |message: String, fix: &str| Finding::bad("session-api", State::Broken, message, fix);
    let Some(Refused { problem }) = error.downcast_ref::<Refused>() else {
        return bad(
            format!("{error:#}"),
            "do as it says; `kubectl logs` of the session's pods tells its side",
        );
    };
    let said = problem.message.clone();
    match problem.reason.as_str() {
        "NotFound" => good(),
        "Unauthenticated" => bad(
            said,
            "the session takes tokens for session.audiences of the chart, or for the API server where there are none (--session-token-file), and client certificates if session.clientCertificates is set",
        ),
        "Forbidden" => bad(said, "have somebody bind the ClusterRole glovebox-user to you in that namespace"),
        _ => bad(format!("{} ({})", said, problem.reason), "look again in a moment"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::lines::Problem;

    #[test]
    fn a_missing_right_says_what_it_costs_and_which_rule() {
        let found = judge(&NEEDED[1], &["create"], "team-a").unwrap();
        assert_eq!(found.state, State::Broken);
        assert!(
            found.message.contains("create agentsandboxes/exec in namespace team-a")
                && found.message.contains("run and exec")
        );
        assert!(found.fix.unwrap().contains("resources: [agentsandboxes/exec], verbs: [create]"));
        assert_eq!(judge(&NEEDED[4], &["list"], "a").unwrap().state, State::Warning);
        assert_eq!(judge(&NEEDED[0], &[], "a"), None);
    }

    #[test]
    fn the_session_is_judged_by_its_answer() {
        let refused = |reason: &str| {
            let problem = Problem { reason: reason.into(), message: "m".into() };
            let error = anyhow::Error::new(Refused { problem });
            judge_session(Err(error.context("around it"))).state
        };
        assert_eq!(judge_session(Ok(())).state, State::Ok);
        assert_eq!(refused("NotFound"), State::Ok);
        for reason in ["Unauthenticated", "Forbidden", "ApiUnavailable"] {
            assert_eq!(refused(reason), State::Broken);
        }
        assert_eq!(judge_session(Err(anyhow::anyhow!("no TLS"))).state, State::Broken);
    }
}
