//! What lets the gateway have a sandbox's credentials: a Role that names its Secrets and ServiceAccounts and nothing else, for as long
//! as the sandbox lives. Pure.
//!
//! The controller itself reads none of them: it may hand on what it has not, and admission holds it to this shape.

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource as _;

use super::{
    lifecycle, names,
    plan::{Plan, Refusal},
    world::{Settings, World},
};
use crate::{
    api::Reason,
    policy::{Credential, Policy},
};

/// Whether what a sandbox asks for can be had at all.
pub(super) fn permitted(policy: &Policy, settings: &Settings) -> Result<(), Refusal> {
    if policy.credentials().is_empty() || settings.gateway_account.is_some() {
        return Ok(());
    }
    let message = "spec.credentials: this installation brokers none; whoever owns it sets credentials.enabled of its chart";
    Err(Refusal::accepted(Reason::InvalidSpec, message))
}

/// What may be done by name, ascending and each once.
fn rule(resource: &str, verb: &str, mut resource_names: Vec<String>) -> Option<PolicyRule> {
    resource_names.sort_unstable();
    resource_names.dedup();
    (!resource_names.is_empty()).then(|| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.into()]),
        verbs: vec![verb.into()],
        resource_names: Some(resource_names),
        non_resource_urls: None,
    })
}

fn rules(credentials: &[Credential]) -> Vec<PolicyRule> {
    let specs = || credentials.iter().map(|one| &one.spec);
    let secrets = specs().filter_map(|one| Some(one.secret_ref.as_ref()?.name.clone())).collect();
    let accounts = specs().filter_map(|one| Some(one.service_account_token.as_ref()?.name.clone())).collect();
    [rule("secrets", "get", secrets), rule("serviceaccounts/token", "create", accounts)]
        .into_iter()
        .flatten()
        .collect()
}

/// Whether what was granted has to go, whatever else is to be done: the sandbox has ended or goes, nothing is brokered any more, or it is
/// more than the sandbox names, and no plan will put it right.
#[must_use]
pub fn is_over(world: &World, planned: bool) -> bool {
    let sandbox = &world.sandbox;
    let ended = lifecycle::is_finished(sandbox) || sandbox.metadata.deletion_timestamp.is_some();
    let named = || Credential::of(sandbox).map(|all| rules(&all)).unwrap_or_default();
    let granted = world.credential_grant.0.as_ref().and_then(|role| role.rules.clone());
    let other = || !planned && granted.is_some_and(|granted| granted != named());
    ended || world.settings.gateway_account.is_none() || other()
}

fn meta(plan: &Plan) -> ObjectMeta {
    ObjectMeta {
        name: Some(names::credentials(&plan.name)),
        namespace: Some(plan.namespace.clone()),
        labels: Some(names::sandbox_labels(&plan.name, &plan.class.name)),
        owner_references: Some(vec![plan.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// What may be read; none where nothing has to be.
pub(super) fn role(plan: &Plan) -> Option<Role> {
    let rules = rules(&plan.credentials);
    (!rules.is_empty()).then(|| Role { metadata: meta(plan), rules: Some(rules) })
}

/// By whom.
pub(super) fn binding(plan: &Plan) -> Option<RoleBinding> {
    let account = plan.gateway_account.as_ref()?;
    (!rules(&plan.credentials).is_empty()).then(|| RoleBinding {
        metadata: meta(plan),
        role_ref: RoleRef {
            api_group: Role::group(&()).into_owned(),
            kind: Role::kind(&()).into_owned(),
            name: names::credentials(&plan.name),
        },
        subjects: Some(vec![Subject {
            api_group: None,
            kind: "ServiceAccount".into(),
            name: account.clone(),
            namespace: Some(plan.fence.namespace.clone()),
        }]),
    })
}

/// Whether two Roles say the same.
#[must_use]
pub fn same_role(have: &Role, want: &Role) -> bool {
    have.rules == want.rules
}

/// Whether two bindings do. The API server writes out what is left open.
#[must_use]
pub fn same_binding(have: &RoleBinding, want: &RoleBinding) -> bool {
    let plain = |binding: &RoleBinding| {
        let mut subjects = binding.subjects.clone().unwrap_or_default();
        for subject in &mut subjects {
            subject.api_group = subject.api_group.take().filter(|group| !group.is_empty());
        }
        (binding.role_ref.clone(), subjects)
    };
    plain(have) == plain(want)
}
