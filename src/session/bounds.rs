//! How long a call may take and how much it may say: what was asked, within what is allowed. Pure.
//!
//! What a sandbox's calls are held to is settled by the controller from sandbox and class, and read here from its status.

use std::time::Duration;

use super::problem::Problem;
use crate::api::{ExecutionStatus, Quantity, Span};

/// What calls are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// For a call that does not say it.
    pub(super) default_timeout: Duration,
    /// At most.
    pub(super) max_timeout: Duration,
    /// For a call that does not say it, in bytes.
    pub(super) default_output: u64,
    /// At most, in bytes.
    pub(super) max_output: u64,
    /// Calls at once in one sandbox, of all sessions.
    pub(super) max_concurrent: u16,
}

/// What one call is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// From the start until its tree is killed. Never zero.
    pub(super) timeout: Duration,
    /// Bytes of output that are handed over.
    pub(super) output: u64,
}

impl Bounds {
    /// What holds where no sandbox says more: a request can be read by it, and no call is made.
    pub(super) const WIDEST: Self = Self {
        default_timeout: Duration::from_secs(30),
        max_timeout: Duration::MAX,
        default_output: 1 << 20,
        max_output: u64::MAX,
        max_concurrent: u16::MAX,
    };

    /// What a sandbox's status says. Nothing, if it can't be read: then it takes no calls.
    pub(super) fn of(held: &ExecutionStatus) -> Option<Self> {
        Some(Self {
            default_timeout: held.timeout.duration(),
            max_timeout: held.max_timeout.duration(),
            default_output: held.output_bytes.units().ok()?,
            max_output: held.max_output_bytes.units().ok()?,
            max_concurrent: held.max_concurrent,
        })
    }

    /// The same, with no more output than a replica hands over of any call.
    pub(super) fn within(self, max_output: u64) -> Self {
        let least = |bytes: u64| bytes.min(max_output);
        Self { default_output: least(self.default_output), max_output: least(self.max_output), ..self }
    }

    /// What a call is held to that asked for this.
    /// The same of a call that gets the most where it does not say it.
    pub(super) fn most(&self, timeout: Option<Span>, output: Option<&Quantity>) -> Result<Held, Problem> {
        let widest = Self { default_timeout: self.max_timeout, default_output: self.max_output, ..*self };
        widest.settle(timeout, output)
    }

    pub(super) fn settle(&self, timeout: Option<Span>, output: Option<&Quantity>) -> Result<Held, Problem> {
        let timeout = timeout.map_or(self.default_timeout, Span::duration);
        if timeout.is_zero() || timeout > self.max_timeout {
            let most = Span::from(self.max_timeout);
            return Err(Problem::field("timeout", format!("ask for more than 0s and at most {most}")));
        }
        let output = match output {
            None => self.default_output,
            Some(asked) => {
                asked.units().map_err(|error| Problem::field("maxOutputBytes", error.to_string()))?
            }
        };
        if output > self.max_output {
            let most = Quantity::from_bytes(self.max_output);
            return Err(Problem::field("maxOutputBytes", format!("ask for at most {most}")));
        }
        Ok(Held { timeout, output })
    }
}

/// What the status of a sandbox says of which nothing else is said.
#[cfg(test)]
pub(super) fn usual() -> serde_json::Value {
    serde_json::json!({"timeout": "30s", "maxTimeout": "10m", "outputBytes": "1Mi", "maxOutputBytes": "64Mi", "maxConcurrent": 8})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_given_within_bounds() {
        let bounds = Bounds {
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(600),
            default_output: 1 << 20,
            max_output: 1 << 26,
            max_concurrent: 8,
        };
        let settle = |timeout: Option<&str>, output: Option<&str>| {
            bounds.settle(timeout.map(|text| text.parse().unwrap()), output.map(Quantity::new).as_ref())
        };
        let held = |seconds, output| Held { timeout: Duration::from_secs(seconds), output };
        assert_eq!(settle(None, None), Ok(held(30, 1 << 20)));
        assert_eq!(settle(Some("10m"), Some("64Mi")), Ok(held(600, 1 << 26)));
        assert_eq!(settle(Some("1s"), Some("0")), Ok(held(1, 0)));
        for (timeout, output, field, word) in [
            (Some("0s"), None, "timeout", "more than 0s"),
            (Some("601s"), None, "timeout", "at most 10m"),
            (None, Some("65Mi"), "maxOutputBytes", "at most 64Mi"),
            (None, Some("lots"), "maxOutputBytes", "quantity"),
        ] {
            let problem = settle(timeout, output).unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field));
            assert!(problem.message.contains(word), "{problem:?}");
        }
    }
}
