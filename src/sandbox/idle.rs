//! When a sandbox that nobody uses ends. Calls, files and bytes of egress through the gateway are uses; what a workload computes,
//! and the proof of its fence, is none. Pure.

use jiff::Timestamp;

use super::{Refusal, lifecycle::after, world::World};
use crate::api::{IdleBounds, Reason, Span};

/// What is known of a sandbox's last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// When that was, as far as anybody has said.
    pub at: Option<Timestamp>,
    /// Whether everybody who may know was asked just now, and answered. Nothing ends on less.
    pub asked: bool,
}

/// How long it may be unused.
///
/// # Errors
/// When it asks for more than its class allows.
pub(super) fn settle(asked: Option<Span>, class: &IdleBounds) -> Result<Span, Refusal> {
    match asked {
        Some(asked) if asked > class.max => {
            let message = format!("spec.idleTimeout is {asked}, the class allows at most {}", class.max);
            Err(Refusal::accepted(Reason::ExceedsClass, message))
        }
        Some(asked) => Ok(asked),
        None => Ok(class.default),
    }
}

/// How long this sandbox may be unused: what it asks for, or its class's default where that may not be. Unknown without a class.
#[must_use]
pub fn timeout(world: &World) -> Option<Span> {
    let class = &world.class.as_ref().ok()?.spec.idle_timeout;
    Some(settle(world.sandbox.spec.idle_timeout, class).unwrap_or(class.default))
}

/// When a workload that runs since `since` has been unused for too long, as far as its last use is known.
#[must_use]
pub fn due(world: &World, since: Timestamp, last: Option<Timestamp>) -> Option<Timestamp> {
    timeout(world).map(|timeout| after(last.map_or(since, |last| last.max(since)), timeout))
}
