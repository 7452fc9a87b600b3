//! The API group `glovebox.dev`: custom resource types with their defaults, bounds and CEL rules.
//!
//! Owns the promise to users. Pure: no client, no clock, no IO; what needs the cluster to be judged belongs in
//! [`crate::sandbox`].

mod approval;
mod class;
mod class_egress;
mod class_status;
mod credential;
mod detection;
mod egress;
mod execution;
mod isolation;
mod quantity;
mod reason;
mod sandbox;
mod sandbox_status;
mod span;

pub use approval::*;
pub use class::*;
pub use class_egress::*;
pub use class_status::*;
pub use credential::*;
pub use detection::*;
pub use egress::*;
pub use execution::*;
pub use isolation::*;
pub use quantity::{Quantity, QuantityError};
pub use reason::{ConditionType, Reason};
pub use sandbox::*;
pub use sandbox_status::*;
pub use span::Span;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The API group of every kind here.
pub const GROUP: &str = "glovebox.dev";

/// Annotation that makes a [`SandboxClass`] the one used by sandboxes which name none.
pub const DEFAULT_CLASS_ANNOTATION: &str = "glovebox.dev/is-default-class";

/// Annotation of an [`AgentSandbox`] in which the API server says who made it.
pub const REQUESTER_ANNOTATION: &str = "glovebox.dev/requester";

/// Every custom resource definition of this version, in the order in which they are written to `crds/`.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![AgentSandbox::crd(), SandboxClass::crd(), EgressPolicy::crd(), EgressApproval::crd()]
}
