//! Time as the tests have it: tokio's paused clock, shown as a date. Nothing here looks at the wall.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A date that moves with tokio's clock, and can jump as a wall clock does.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    base: Timestamp,
}

impl Clock {
    /// Starts at 2027-01-01T00:00:00Z.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now(), base: Timestamp::constant(1_798_761_600, 0) }
    }

    /// The date.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.origin.elapsed()).unwrap();
        self.base.checked_add(elapsed).unwrap()
    }

    /// The date in whole seconds, as the API server writes it.
    #[must_use]
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }

    /// Sets the date forward or back; what waits for tokio's clock is not moved.
    pub fn jump(&mut self, by: SignedDuration) {
        self.base = self.base.checked_add(by).unwrap();
    }

    /// When tokio's clock will show the date.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        Instant::now() + ahead
    }
}

/// A date in whole seconds, cut rather than rounded, as the API server does.
#[must_use]
pub fn stamp(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap().to_string()
}

/// The date that an API server wrote.
#[must_use]
pub fn read(text: &str) -> Timestamp {
    text.parse().unwrap()
}
