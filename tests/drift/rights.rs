//! The chart grants what the controller uses, and little more.

use std::collections::BTreeSet;

use glovebox::testkit::{
    Driver, caches,
    calls::{Permission, permissions},
    fixtures::SYSTEM_NAMESPACE,
    kinds::Kind,
    scenarios,
};
use serde_json::Value;

use crate::{documents, file, is_yaml, names};

const TEMPLATES: &str = "charts/glovebox/templates";

/// What is granted without being seen in any story, and why it is needed nonetheless.
const UNSEEN: &[(&str, &str, &[&str])] = &[
    // The right to read one goes with the right to list them all: it gives away nothing more.
    ("glovebox.dev", "agentsandboxes", &["get"]),
    ("glovebox.dev", "sandboxclasses", &["get"]),
    ("glovebox.dev", "egresspolicies", &["get"]),
    // Replicas of the gateway, which tell what sandboxes want, are not in these stories.
    ("glovebox.dev", "egressapprovals", &["get", "create"]),
    ("glovebox.dev", "egressapprovals/status", &["get", "patch"]),
    ("glovebox.dev", "agentsandboxes/status", &["get"]),
    ("glovebox.dev", "sandboxclasses/status", &["get"]),
    // A pod whose creation was answered with "already exists" is looked at.
    ("", "pods", &["get"]),
    // A class that loses its quota or changes its priority.
    ("", "resourcequotas", &["get", "delete"]),
    ("scheduling.k8s.io", "priorityclasses", &["get", "delete"]),
    ("networking.k8s.io", "networkpolicies", &["get"]),
    ("node.k8s.io", "runtimeclasses", &["get"]),
    ("", "nodes", &["get"]),
    ("", "namespaces", &["get"]),
    // Asked by the API server itself of whoever writes a Role that says more than he may, or binds one.
    ("rbac.authorization.k8s.io", "roles", &["get", "bind", "escalate"]),
    ("rbac.authorization.k8s.io", "rolebindings", &["get", "create"]),
    ("rbac.authorization.k8s.io", "roles", &["create"]),
    // Asked by the API server itself, where OwnerReferencesPermissionEnforcement is on.
    ("glovebox.dev", "agentsandboxes/finalizers", &["update"]),
    ("glovebox.dev", "sandboxclasses/finalizers", &["update"]),
    // Repeated Events are folded; the group depends on the API server's version.
    ("events.k8s.io", "events", &["patch"]),
    ("", "events", &["create", "patch"]),
    // The Lease, and the use of a class by its canary, which admission asks for.
    ("coordination.k8s.io", "leases", &["get", "update", "patch", "create"]),
    ("glovebox.dev", "sandboxclasses", &["use"]),
];

/// The roles of a template: lines that only Helm understands are left out, since the rules are plain.
fn roles(template: &str) -> Vec<Value> {
    let text = file(&format!("{TEMPLATES}/{template}"));
    let kept: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("{{")).collect();
    let text = kept.join("\n");
    let is_role = |part: &&str| part.lines().any(|line| matches!(line, "kind: Role" | "kind: ClusterRole"));
    let parts =
        text.split("\n---").filter(is_role).map(|part| part.replace("{{", "'{{").replace("}}", "}}'"));
    parts.flat_map(|part| documents(template, &part)).collect()
}

fn granted(role: &Value) -> BTreeSet<Permission> {
    let list = |field: &Value| {
        field
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .map(|item| item.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                all.extend(
                    list(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)),
                );
            }
        }
    }
    all
}

/// What the controller's service account may do everywhere, and in its own namespace besides.
fn controllers() -> (BTreeSet<Permission>, BTreeSet<Permission>) {
    let everywhere = roles("clusterrole.yaml");
    let at_home = roles("role.yaml");
    assert_eq!((everywhere.len(), at_home.len()), (1, 1));
    (granted(&everywhere[0]), granted(&at_home[0]))
}

/// What is used: every call of every story, and the watches.
fn used() -> (BTreeSet<Permission>, BTreeSet<Permission>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let calls: Vec<_> = scenarios::all()
        .flat_map(|scenario| runtime.block_on(async { scenario.play(Driver::new()).await.driver.calls() }))
        .collect();
    let (at_home, everywhere) =
        calls.into_iter().partition::<Vec<_>, _>(|call| call.target.namespace == SYSTEM_NAMESPACE);
    let (mut everywhere, mut at_home) = (permissions(&everywhere), permissions(&at_home));
    for kind in caches::watched().map(Kind::named) {
        // Of Services the gateway's alone is watched, in the controller's own namespace.
        let place = if kind.kind == "Service" { &mut at_home } else { &mut everywhere };
        place.extend(
            ["list", "watch"].map(|verb| (kind.group.to_owned(), kind.plural.to_owned(), verb.to_owned())),
        );
    }
    (everywhere, at_home)
}

#[test]
fn what_is_used_is_granted_and_little_more() {
    let (may, may_at_home) = controllers();
    let (does, does_at_home) = used();
    assert!(does.len() > 20, "{does:?}");
    assert_eq!(does.difference(&may).collect::<Vec<_>>(), Vec::<&Permission>::new(), "used, but not granted");
    let home: BTreeSet<_> = may.union(&may_at_home).cloned().collect();
    assert_eq!(
        does_at_home.difference(&home).collect::<Vec<_>>(),
        Vec::<&Permission>::new(),
        "used at home, but not granted"
    );
    let unseen = |(group, resource, verb): &&Permission| {
        !UNSEEN.iter().any(|(g, r, verbs)| g == group && r == resource && verbs.contains(&verb.as_str()))
    };
    let seen: BTreeSet<_> = does.union(&does_at_home).cloned().collect();
    assert_eq!(
        home.difference(&seen).filter(unseen).collect::<Vec<_>>(),
        Vec::<&Permission>::new(),
        "granted, but never used: say why, or take it away"
    );
}

/// Nobody of ours reads a Secret, runs something in a pod, or becomes somebody else.
#[test]
fn no_role_is_dangerous() {
    let mut rules = 0;
    for template in names(TEMPLATES).into_iter().filter(|name| is_yaml(name)) {
        for role in roles(&template) {
            for (group, resource, verb) in granted(&role) {
                rules += 1;
                let said = format!("{template}: {verb} {resource}.{group}");
                assert!(
                    !matches!(
                        resource.as_str(),
                        "*" | "secrets"
                            | "serviceaccounts/token"
                            | "nodes/proxy"
                            | "pods/ephemeralcontainers"
                    ),
                    "{said}"
                );
                assert!(!resource.starts_with("pods/"), "{said}");
                assert!(verb != "*" && group != "*", "{said}");
                let grants = (template == "clusterrole.yaml" || template == "hook-cleanup.yaml")
                    && matches!(resource.as_str(), "roles" | "rolebindings");
                let hands_on = template == "clusterrole.yaml" && resource == "roles";
                assert!(!matches!(verb.as_str(), "escalate" | "bind") || hands_on, "{said}");
                assert!(verb != "impersonate", "{said}");
                assert!(group != "rbac.authorization.k8s.io" || grants, "{said}");
                assert!(!(group == "admissionregistration.k8s.io" && verb != "get"), "{said}");
            }
        }
    }
    assert!(rules > 30, "only {rules} rules were looked at");
}

/// The controller may write Roles that say more than it may itself. What holds it to one shape stands whatever the values are.
#[test]
fn what_holds_the_grants_can_not_be_switched_off() {
    let text = file(&format!("{TEMPLATES}/admission/credentials.yaml"));
    let (grants, _) = text.split_once("glovebox-credential-use").unwrap();
    assert!(grants.contains("(list $ \"glovebox-credential-grants\" \"Deny\")"), "{grants}");
    assert!(!grants.contains("{{- if") && !grants.contains("{{- with"), "{grants}");
}
