//! What names an object, and answers about one that are errors.

use super::kinds::Kind;

/// What names an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind.
    pub kind: &'static Kind,
    /// Namespace; empty for what lives in none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key by the kind's name.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: Kind::named(kind), namespace: namespace.into(), name: name.into() }
    }

    pub(super) fn quoted(&self) -> String {
        format!("{} {:?}", self.kind.resource(), self.name)
    }
}

/// An answer that is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

impl Refused {
    /// An error.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    /// 404.
    #[must_use]
    pub fn not_found(key: &Key) -> Self {
        Self::new(404, "NotFound", format!("{} not found", key.quoted()))
    }

    /// 403 of an admission plugin.
    #[must_use]
    pub fn forbidden(key: &Key, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} is forbidden: {why}", key.quoted()))
    }

    /// 409 of a precondition or of another writer.
    #[must_use]
    pub fn conflict(key: &Key, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {}: {why}", key.quoted()))
    }

    /// 422.
    #[must_use]
    pub fn invalid(key: &Key, why: &str) -> Self {
        Self::new(422, "Invalid", format!("{} is invalid: {why}", key.quoted()))
    }
}
