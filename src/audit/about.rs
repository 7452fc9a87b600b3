//! Which sandbox a record is about, as its object says it. Pure.

use kube::ResourceExt as _;

use super::record::{Subject, printable};
use crate::api::{AgentSandbox, REQUESTER_ANNOTATION};

/// Longest of its texts, in characters: users' names are the longest.
const MOST_CHARS: usize = 256;

/// What there is to say of it.
#[must_use]
pub fn subject(sandbox: &AgentSandbox) -> Subject {
    let status = sandbox.status.as_ref();
    let cut = |text: &String| printable(text, MOST_CHARS);
    Subject {
        uid: sandbox.uid().unwrap_or_default(),
        namespace: sandbox.namespace().unwrap_or_default(),
        name: sandbox.name_any(),
        class: status
            .and_then(|status| status.class_name.as_ref())
            .or(sandbox.spec.class_name.as_ref())
            .map(cut),
        requester: sandbox.annotations().get(REQUESTER_ANNOTATION).map(cut),
        runtime: status.and_then(|status| status.runtime_class_name.as_ref()).map(cut),
        kernel: status
            .and_then(|status| status.enforcement.as_ref())
            .map(|enforcement| cut(&enforcement.kernel_isolation.mechanism)),
        exception: None,
        policy_generation: None,
    }
}
