//! The process's time: a monotonic one for limits, the wall's for rules that end.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::limit::Nanos;

/// Nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock {
    /// Now, for limits.
    #[must_use]
    pub fn now(&self) -> Nanos {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment, to sleep until.
    #[must_use]
    pub fn at(&self, nanos: Nanos) -> Instant {
        self.0 + Duration::from_nanos(nanos)
    }

    /// Now, for rules.
    #[must_use]
    pub fn wall() -> Timestamp {
        Timestamp::now()
    }
}
