//! What one sandbox uses of one rule.

use std::sync::{Arc, Mutex};

use super::{
    limit::{Budget, Count, Rate, Shared},
    names::Names,
};
use crate::policy;

/// What one rule is used by one sandbox. It outlives a change of the policy: a budget is for a life.
#[derive(Debug)]
pub struct RuleUse {
    pub(super) connections: Arc<Count>,
    pub(super) new_connections: Shared,
    pub(super) upload: Arc<Shared>,
    pub(super) budget: Arc<Budget>,
    pub(super) names: Mutex<Names>,
}

impl RuleUse {
    pub(super) fn new(limits: &policy::Limits, at: u64) -> Self {
        Self {
            connections: Arc::default(),
            new_connections: Shared::new(new_connections(limits), at),
            upload: Shared::new(upload(limits), at).into(),
            budget: Budget::new(limits.upload_budget).into(),
            names: Mutex::default(),
        }
    }

    pub(super) fn set(&self, limits: &policy::Limits, at: u64) {
        self.new_connections.with(|bucket| bucket.set(new_connections(limits), at));
        self.upload.with(|bucket| bucket.set(upload(limits), at));
        self.budget.set(limits.upload_budget);
    }
}

fn new_connections(limits: &policy::Limits) -> Option<Rate> {
    let rate = limits.connections_per_second?;
    Some(Rate::new(rate.into(), limits.burst.unwrap_or(rate).into()))
}

/// A second's worth may go at once.
fn upload(limits: &policy::Limits) -> Option<Rate> {
    limits.upload_bytes_per_second.map(|rate| Rate::new(rate, rate))
}
