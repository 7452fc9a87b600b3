//! Which calls go wrong, and how.

use std::collections::BTreeMap;

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 409, nothing done.
    Conflict,
    /// 429, nothing done.
    Throttled,
    /// 500, nothing done.
    ServerError,
    /// The connection breaks before the call arrives.
    Unsent,
    /// The call is carried out, but the connection breaks before the answer.
    ReplyLost,
    /// No answer ever; nothing done.
    Silence,
    /// No answer ever, but the call is carried out.
    SilentlyDone,
    /// The controller dies before the call arrives.
    DeathBefore,
    /// The controller dies before it reads the answer.
    DeathAfter,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Conflict,
        Self::Throttled,
        Self::ServerError,
        Self::Unsent,
        Self::ReplyLost,
        Self::Silence,
        Self::SilentlyDone,
        Self::DeathBefore,
        Self::DeathAfter,
    ];

    /// Whether the call is carried out nonetheless.
    #[must_use]
    pub fn is_done(self) -> bool {
        matches!(self, Self::ReplyLost | Self::SilentlyDone | Self::DeathAfter)
    }
}

/// Faults by the number of the call, from 0.
#[derive(Clone, Debug, Default)]
pub struct Plan(BTreeMap<usize, Fault>);

impl Plan {
    /// One fault.
    #[must_use]
    pub fn one(call: usize, fault: Fault) -> Self {
        Self(BTreeMap::from([(call, fault)]))
    }

    /// Several.
    #[must_use]
    pub fn many(faults: impl IntoIterator<Item = (usize, Fault)>) -> Self {
        Self(faults.into_iter().collect())
    }

    /// The fault of one call.
    #[must_use]
    pub fn at(&self, call: usize) -> Option<Fault> {
        self.0.get(&call).copied()
    }
}
