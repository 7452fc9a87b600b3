//! What can be done and is recorded, under OCSF's numbers, and who may say that it was. Pure.

use serde::{Deserialize, Serialize};

macro_rules! acts {
    ($($(#[doc = $doc:literal])+ $name:ident = ($class:literal, $activity:literal, $role:ident),)+) => {
        /// What was done. Closed.
        #[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Act { $($(#[doc = $doc])+ $name,)+ }

        impl Act {
            /// Every act.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The spelling in records and queries.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// OCSF's number of the class of event.
            #[must_use]
            pub const fn class_uid(self) -> u32 {
                match self { $(Self::$name => $class,)+ }
            }

            /// OCSF's number of the activity within its class; 99 is "other".
            #[must_use]
            pub const fn activity_id(self) -> u32 {
                match self { $(Self::$name => $activity,)+ }
            }

            /// Who may say that it was done.
            #[must_use]
            pub const fn role(self) -> Role {
                match self { $(Self::$name => Role::$role,)+ }
            }
        }
    };
}

acts! {
    /// A sandbox's pod was made, by the rules of its class.
    SandboxCreated = (6002, 1, Controller),
    /// Its workload runs.
    SandboxStarted = (6002, 3, Controller),
    /// It ended.
    SandboxEnded = (6002, 4, Controller),
    /// It is not made: what is asked for is not valid, or not within its class.
    SandboxRefused = (6002, 99, Controller),
    /// What it did looks like an attack.
    SandboxSuspected = (2004, 1, Controller),
    /// A class was made, changed or deleted.
    ClassChanged = (3004, 3, Controller),
    /// An EgressPolicy was made, changed or deleted.
    PolicyChanged = (3004, 3, Controller),
    /// What a sandbox asks for was changed while it lived.
    SandboxChanged = (3004, 3, Controller),
    /// A person is asked whether a destination may be reached.
    EgressAsked = (6003, 1, Controller),
    /// What a person said of it, or that it is over.
    EgressDecided = (6003, 3, Controller),
    /// A connection to the outside was dialled.
    EgressOpened = (4001, 1, Gateway),
    /// It ended.
    EgressClosed = (4001, 2, Gateway),
    /// One was refused.
    EgressRefused = (4001, 5, Gateway),
    /// A name was not resolved.
    NameRefused = (4003, 99, Gateway),
    /// A credential was added to a request.
    CredentialUsed = (3002, 99, Gateway),
    /// A command began.
    CallStarted = (1007, 1, Session),
    /// It ended.
    CallEnded = (1007, 2, Session),
    /// A file, or what is below a directory, was read through the session.
    FileRead = (1001, 2, Session),
    /// The same was written.
    FileWritten = (1001, 3, Session),
    /// The same was removed.
    FileDeleted = (1001, 4, Session),
    /// What the workload wrote to its output was read.
    LogsRead = (6003, 2, Session),
    /// Somebody asked for what they may not.
    AccessDenied = (6003, 99, Session),
    /// A producer could not hand over so many records.
    RecordsLost = (6008, 1, Anybody),
    /// The trail began, or goes on after its writer was started again.
    TrailStarted = (6002, 3, Trail),
    /// What a write that was cut off had left at the end was taken away.
    TrailRepaired = (6002, 99, Trail),
    /// The oldest records were removed; their hashes stay.
    TrailPruned = (6002, 2, Trail),
    /// A producer said what is no record, or is not its to say.
    RecordRefused = (6008, 99, Trail),
}

/// Who produces records.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The controller.
    Controller,
    /// The gateway.
    Gateway,
    /// The session.
    Session,
    /// The trail itself.
    Trail,
    /// Each of them; no role of its own.
    #[serde(skip)]
    Anybody,
}

impl Role {
    /// The spelling in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Gateway => "gateway",
            Self::Session => "session",
            Self::Trail => "trail",
            Self::Anybody => "anybody",
        }
    }

    /// Whether it may say that this was done.
    #[must_use]
    pub fn may_say(self, act: Act) -> bool {
        act.role() == self || act.role() == Self::Anybody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_its_own() {
        assert!(Role::Gateway.may_say(Act::EgressOpened) && Role::Gateway.may_say(Act::RecordsLost));
        assert!(!Role::Gateway.may_say(Act::CallStarted) && !Role::Session.may_say(Act::TrailStarted));
        let names: std::collections::BTreeSet<_> = Act::ALL.iter().map(|act| act.as_str()).collect();
        assert_eq!(names.len(), Act::ALL.len());
    }
}
