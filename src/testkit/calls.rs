//! The record of what the controller asked of the API server.

use std::collections::BTreeSet;

use super::{faults::Fault, kinds::Target};

/// What a call does, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many.
    List,
    /// Adds one.
    Create,
    /// Changes one.
    Patch,
    /// Takes one away.
    Delete,
}

impl Verb {
    /// As RBAC spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it does.
    pub verb: Verb,
    /// To what.
    pub target: Target,
    /// HTTP status that was, or would have been, answered; 0 if the call did not arrive.
    pub code: u16,
    /// How it went wrong.
    pub fault: Option<Fault>,
    /// Whether a patch made the object, which RBAC asks `create` for.
    pub made: bool,
}

impl Call {
    /// Whether it is a write, refused or not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List)
    }

    /// Whether it publishes an Event.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.target.kind.kind == "Event"
    }

    /// Such as `create Pod` or `patch AgentSandbox/status`.
    #[must_use]
    pub fn label(&self) -> String {
        let slash = if self.target.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.verb.as_str(), self.target.kind.kind, self.target.subresource)
    }

    /// The permissions that it needs: API group, resource, verb.
    pub fn permissions(&self) -> impl Iterator<Item = Permission> {
        let Target { kind, subresource, .. } = &self.target;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{subresource}", kind.plural);
        let verbs = [Some(self.verb), self.made.then_some(Verb::Create)];
        verbs
            .into_iter()
            .flatten()
            .map(move |verb| (kind.group.to_owned(), resource.clone(), verb.as_str().to_owned()))
    }
}

/// API group, resource, verb.
pub type Permission = (String, String, String);

/// The permissions of many calls.
#[must_use]
pub fn permissions(calls: &[Call]) -> BTreeSet<Permission> {
    calls.iter().flat_map(Call::permissions).collect()
}
