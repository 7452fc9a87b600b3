//! What those who own an installation change: classes and policies, each on the record with the hash of what it says from then on.
//!
//! Who did it is in the API server's own audit log; a watch does not tell. What was changed while no controller watched is noticed of
//! classes, whose status says what was seen last, and not of policies.

use std::{
    any::type_name,
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::context::Context;
use crate::{
    api::{EgressPolicy, SandboxClass},
    audit::{Act, Record, now, printable},
    digest::hex,
    kubernetes::{Guarded, get},
};

/// Longest name in a record, in characters.
const MOST_CHARS: usize = 320;

/// Generations, by kind and uid.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<HashMap<(Act, String), i64>>);

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Made,
    Changed,
    Deleted,
}

impl Change {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Made => "Created",
            Self::Changed => "Changed",
            Self::Deleted => "Deleted",
        }
    }
}

impl Changes {
    /// Takes in how an object stands: its generation, none if it is gone. `observed` is what was seen of it before, as far as that is
    /// written down; `first` says that everything there is is being read.
    fn see(
        &self,
        act: Act,
        uid: String,
        generation: Option<i64>,
        observed: Option<i64>,
        first: bool,
    ) -> Option<Change> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(generation) = generation else {
            return known.remove(&(act, uid)).map(|_| Change::Deleted);
        };
        let before = known.insert((act, uid), generation);
        match before.or(observed) {
            Some(before) => (before != generation).then_some(Change::Changed),
            None => (!first).then_some(Change::Made),
        }
    }
}

/// A class was touched.
pub(super) fn class(context: &Context, touched: &Guarded<SandboxClass>) {
    let Some(seen) = touched.0.as_ref().ok() else { return };
    let there = get(&context.stores.classes, &touched.name_any(), None);
    let observed = seen.status.as_ref().and_then(|status| status.observed_generation);
    tell(context, Act::ClassChanged, seen, there.is_some(), observed, &seen.spec);
}

/// A policy was touched.
pub(super) fn policy(context: &Context, touched: &Guarded<EgressPolicy>) {
    let Some(seen) = touched.0.as_ref().ok() else { return };
    let namespace = touched.namespace();
    let there = get(&context.stores.egress_policies, &touched.name_any(), namespace.as_deref());
    tell(context, Act::PolicyChanged, seen, there.is_some(), None, &seen.spec);
}

fn tell<K: Resource<DynamicType = ()>>(
    context: &Context,
    act: Act,
    object: &K,
    there: bool,
    observed: Option<i64>,
    spec: &impl Serialize,
) {
    let meta = object.meta();
    // While all that there is is read, the store shows none of it yet.
    let first = !context.stores.filled.has(type_name::<K>());
    let generation = meta.generation.filter(|_| first || there);
    let uid = meta.uid.clone().unwrap_or_default();
    let Some(change) = context.changes.see(act, uid, generation, observed, first) else { return };
    context.recorder.say(|| {
        let name = match &meta.namespace {
            Some(namespace) => format!("{namespace}/{}", object.name_any()),
            None => object.name_any(),
        };
        let hash = hex(&Sha256::digest(serde_json::to_vec(spec).unwrap_or_default()));
        let generation = meta.generation.unwrap_or_default();
        let message = format!("{} {name}, generation {generation}, spec sha256:{hash}", K::kind(&()));
        Record {
            message: Some(printable(&message, MOST_CHARS)),
            status_detail: Some(change.as_str().to_owned()),
            ..Record::new(act, now())
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once_and_what_was_there_is_none() {
        let changes = Changes::default();
        let see = |uid: &str, generation, observed, first| {
            changes.see(Act::ClassChanged, uid.into(), generation, observed, first)
        };
        assert_eq!(see("a", Some(1), Some(1), true), None);
        assert_eq!(see("b", Some(3), Some(2), true), Some(Change::Changed), "while nobody watched");
        assert_eq!(see("c", Some(1), None, true), None, "it was there before");
        assert_eq!(see("d", Some(1), None, false), Some(Change::Made));
        // Its status is written: nothing new.
        assert_eq!(see("d", Some(1), Some(1), false), None);
        assert_eq!(see("d", Some(2), Some(1), false), Some(Change::Changed));
        assert_eq!(see("d", None, Some(2), false), Some(Change::Deleted));
        assert_eq!(see("d", None, Some(2), false), None);
    }
}
