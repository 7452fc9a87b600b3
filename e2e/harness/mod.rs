//! What every test stands on: the cluster, a namespace of its own, sandboxes in it, and waiting for events.
//!
//! Nothing here knows what is tested. A test gets a [`Test`], makes what it needs through it, and leaves the tidying to the
//! runner, which also tells the story of a test that failed.

pub(crate) mod audit;
pub(crate) mod classes;
pub(crate) mod cluster;
pub(crate) mod controller;
pub(crate) mod gateway;
pub(crate) mod local;
pub(crate) mod pods;
pub(crate) mod program;
pub(crate) mod replicas;
pub(crate) mod runner;
pub(crate) mod sandbox;
mod site;
pub(crate) mod story;
pub(crate) mod test;
pub(crate) mod wait;
pub(crate) mod world;

pub(crate) use self::{
    classes::Runtime,
    runner::Cases,
    sandbox::Sandbox,
    test::{Test, skip},
};

/// What a test gives back.
pub(crate) type Outcome = anyhow::Result<()>;

/// Eight hexadecimal digits that no other test of this or another run has.
pub(crate) fn random() -> anyhow::Result<String> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    Ok(uuid.chars().take(8).collect())
}
