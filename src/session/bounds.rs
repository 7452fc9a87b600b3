//! How long a call may take and how much it may say: what was asked, within what is allowed. Pure.
//!
//! The one place for it: bounds of a class or of a sandbox come in here.

use std::time::Duration;

use super::problem::Problem;
use crate::api::{Quantity, Span};

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
    /// What a call is held to that asked for this.
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
