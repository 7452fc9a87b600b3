//! The one table of what a failed call means: which class it is, what the status says, and when it is tried again.

use std::time::Duration;

use crate::api::Reason;

/// How a failure is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The API server will not have the object as it is.
    Rejected,
    /// Something that is named does not exist, or its namespace is going.
    Unresolved,
    /// Somebody else wrote meanwhile, or has the name.
    Conflict,
    /// Passing fault of the network or the server.
    Transient,
    /// The server asks for less.
    Throttled,
    /// Not allowed: RBAC, admission or quota.
    Denied,
    /// An object that can't be read.
    Poisoned,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Metric label.
    pub label: &'static str,
    /// Reason of `Ready=False`; `None` where the status says nothing, since it will pass.
    pub reason: Option<Reason>,
    /// First wait, doubled with each failure in a row.
    pub first: Duration,
    /// Longest wait.
    pub most: Duration,
}

impl ErrorClass {
    /// All classes, for tests and metrics.
    pub const ALL: [Self; 7] = [
        Self::Rejected,
        Self::Unresolved,
        Self::Conflict,
        Self::Transient,
        Self::Throttled,
        Self::Denied,
        Self::Poisoned,
    ];

    /// The table.
    #[must_use]
    pub const fn policy(self) -> Policy {
        const fn row(label: &'static str, reason: Option<Reason>, first_ms: u64, most_s: u64) -> Policy {
            Policy {
                label,
                reason,
                first: Duration::from_millis(first_ms),
                most: Duration::from_secs(most_s),
            }
        }
        match self {
            Self::Rejected => row("rejected", Some(Reason::SandboxCreationFailed), 5_000, 300),
            Self::Unresolved => row("unresolved", None, 500, 30),
            Self::Conflict => row("conflict", None, 50, 5),
            Self::Transient => row("transient", None, 100, 30),
            Self::Throttled => row("throttled", None, 1_000, 30),
            Self::Denied => row("denied", Some(Reason::SandboxCreationFailed), 1_000, 60),
            Self::Poisoned => row("poisoned", Some(Reason::InvalidSpec), 60_000, 600),
        }
    }

    /// The class of a client error.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                401 | 403 if status.message.contains("status unknown for quota") => Self::Conflict,
                // A namespace that is going refuses new objects with 403 and this cause.
                403 if status.message.contains("because it is being terminated") => Self::Unresolved,
                401 | 403 => Self::Denied,
                404 | 410 => Self::Unresolved,
                409 => Self::Conflict,
                429 => Self::Throttled,
                400 | 405..=408 | 411..=428 => Self::Rejected,
                _ => Self::Transient,
            },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Poisoned,
            _ => Self::Transient,
        }
    }
}

impl Policy {
    /// The wait after so many failures in a row.
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(self.most)
    }
}

/// Why a reconcile did not reach its end.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A call failed.
    #[error("{what}: {source}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A call took too long; whether it was carried out is not known.
    #[error("{0}: no answer within {limit:?}", limit = super::context::CALL_TIMEOUT)]
    Timeout(&'static str),
    /// The quota has no room.
    #[error("{0}")]
    Quota(String),
    /// Another pod has the sandbox's name.
    #[error("{0}")]
    Taken(String),
    /// A former sandbox's pod still has the name.
    #[error("the pod of a former sandbox of this name has not gone yet")]
    Former,
    /// Nothing may be done that is not on the record, and the audit trail does not take it.
    #[error("the audit trail can't be reached, and nothing may be done that is not on the record")]
    NotRecorded,
    /// The object can't be read.
    #[error("the object can't be read: {0}")]
    Poisoned(String),
}

impl ApplyError {
    /// Its class.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Call { source, .. } => ErrorClass::of(source),
            Self::Timeout(_) | Self::NotRecorded => ErrorClass::Transient,
            Self::Quota(_) => ErrorClass::Denied,
            Self::Taken(_) | Self::Former => ErrorClass::Conflict,
            Self::Poisoned(_) => ErrorClass::Poisoned,
        }
    }

    /// What the status says of it, if it is worth saying.
    #[must_use]
    pub fn told(&self) -> Option<(Reason, String)> {
        match self {
            Self::Quota(message) => Some((Reason::QuotaExceeded, message.clone())),
            Self::NotRecorded => Some((Reason::SandboxCreationFailed, self.to_string())),
            Self::Taken(message) => Some((Reason::SandboxCreationFailed, message.clone())),
            Self::Call { source, .. } => {
                let reason = self.class().policy().reason?;
                let message = match source.as_ref() {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                Some((reason, message.chars().take(1000).collect()))
            }
            Self::Timeout(_) | Self::Former | Self::Poisoned(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: message.into(), ..Status::default() }))
    }

    #[test]
    fn every_code_has_a_class() {
        for (code, class) in [
            (400, ErrorClass::Rejected),
            (403, ErrorClass::Denied),
            (404, ErrorClass::Unresolved),
            (409, ErrorClass::Conflict),
            (422, ErrorClass::Rejected),
            (429, ErrorClass::Throttled),
            (500, ErrorClass::Transient),
            (503, ErrorClass::Transient),
        ] {
            assert_eq!(ErrorClass::of(&api(code, "")), class, "{code}");
        }
        assert_eq!(
            ErrorClass::of(&api(403, "status unknown for quota: q, resources: pods")),
            ErrorClass::Conflict
        );
    }

    #[test]
    fn waits_double_and_end() {
        for class in ErrorClass::ALL {
            let policy = class.policy();
            assert_eq!(policy.wait(1), policy.first.min(policy.most));
            assert!(policy.wait(2) >= policy.wait(1));
            assert_eq!(policy.wait(1000), policy.most, "{class:?}");
        }
    }
}
