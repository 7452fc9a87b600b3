//! What a plan becomes. A total function: it can't fail, and it looks at nothing but the plan.
//!
//! [`Desired`] is destructured without `..` where it is applied, so that a new kind of object that nobody applies does
//! not compile.

use std::marker::PhantomData;

use k8s_openapi::api::{
    core::v1::{Pod, ResourceQuota},
    networking::v1::NetworkPolicy,
    rbac::v1::{Role, RoleBinding},
    scheduling::v1::PriorityClass,
};

use super::{credentials, fence, names, plan::Plan, pod, quota};

/// Not applied yet.
#[derive(Clone, Copy, Debug)]
pub enum Planned {}
/// Stands in the cluster.
#[derive(Clone, Copy, Debug)]
pub enum Applied {}

/// An object that should stand as it is, or should not exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted<K> {
    /// It should stand.
    Present(Box<K>),
    /// Nothing of this name should.
    Absent(String),
}

impl<K> Wanted<K> {
    fn new(object: Option<K>, name: String) -> Self {
        object.map_or(Self::Absent(name), |object| Self::Present(Box::new(object)))
    }
}

/// All objects of one sandbox, in the order in which they must stand.
#[derive(Clone, Debug)]
pub struct Desired<State> {
    /// The fence: before any pod.
    pub fence: NetworkPolicy,
    /// The class's PriorityClass: before the quota that hangs on it.
    pub priority_class: PriorityClass,
    /// The class's quota: before any pod that it counts.
    pub quota: Wanted<ResourceQuota>,
    /// The address rules.
    pub cidr_policy: Wanted<NetworkPolicy>,
    /// What of its credentials the gateway may have.
    pub credential_role: Wanted<Role>,
    /// That it is the gateway who may.
    pub credential_binding: Wanted<RoleBinding>,
    /// The pod: last. Created once, never patched.
    pub pod: Pod,
    state: PhantomData<State>,
}

/// Renders the plan. `deadline_seconds` is what remains of the time to live.
#[must_use]
pub fn desired(plan: &Plan, deadline_seconds: i64) -> Desired<Planned> {
    Desired {
        fence: fence::fence(&plan.namespace, &plan.fence.namespace),
        priority_class: quota::priority_class(&plan.class),
        quota: Wanted::new(quota::desired(plan), names::class_object(&plan.class.name)),
        cidr_policy: Wanted::new(fence::cidr_policy(plan), names::cidr_policy(&plan.name)),
        credential_role: Wanted::new(credentials::role(plan), names::credentials(&plan.name)),
        credential_binding: Wanted::new(credentials::binding(plan), names::credentials(&plan.name)),
        pod: pod::desired(plan, deadline_seconds),
        state: PhantomData,
    }
}

#[cfg(feature = "controller")]
impl Desired<Planned> {
    /// Says that every object was seen to stand. Only `apply` may call it.
    pub(crate) fn applied(
        fence: NetworkPolicy,
        priority_class: PriorityClass,
        quota: Wanted<ResourceQuota>,
        cidr_policy: Wanted<NetworkPolicy>,
        (credential_role, credential_binding): (Wanted<Role>, Wanted<RoleBinding>),
        pod: Pod,
    ) -> Desired<Applied> {
        let state = PhantomData;
        Desired { fence, priority_class, quota, cidr_policy, credential_role, credential_binding, pod, state }
    }
}
