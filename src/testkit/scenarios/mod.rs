//! Stories of sandboxes from apply to gone. Each says what must be true at its stops, whatever goes wrong in between.

use serde_json::{Value, json};

use super::{
    fixtures::{sandbox, with},
    stage::Scenario,
};

mod changes;
mod classes;
mod endings;
mod named;
mod waits;

macro_rules! scenarios {
    ($($(#[doc = $doc:literal])+ async fn $name:ident($stage:ident) $body:block)+) => {
        pub(super) const ALL: &[$crate::testkit::stage::Scenario] =
            &[$($crate::testkit::stage::Scenario { name: stringify!($name), play: |stage| Box::pin($name(stage)) },)+];

        $($(#[doc = $doc])+ async fn $name($stage: &mut Stage) $body)+
    };
}
use scenarios;

/// All stories.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    [endings::ALL, waits::ALL, changes::ALL, classes::ALL, named::ALL].into_iter().flatten()
}

/// A sandbox that lives 20 minutes and is kept for five.
fn gvisor(name: &str) -> Value {
    with(sandbox(name, "gvisor"), &[("/spec/ttl", json!("20m")), ("/spec/ttlAfterFinished", json!("5m"))])
}
