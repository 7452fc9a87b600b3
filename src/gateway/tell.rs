//! Events on sandboxes, and records: what was refused, folded, so that `kubectl describe` says why a connection failed and what to do.
//!
//! What a sandbox wrote gets in as a host that was made printable and capped, and nowhere else. Bounded in number: a flood of
//! refusals is a few Events.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio_util::sync::CancellationToken;

use super::{
    directory::Directory,
    entry::Entry,
    evidence,
    reason::{Reason, Trouble},
    refusals::{Folded, Key},
    tenant::Identity,
};
use crate::{
    api::AgentSandbox,
    audit,
    kubernetes::{self, NOTE_BYTES, cut},
};

/// How often refusals are told.
const EVERY: Duration = Duration::from_secs(3);
/// Most Events at a time for one sandbox, and for all together.
const MOST_EACH: usize = 8;
const MOST_ALL: usize = 64;
/// How long the API server may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest action of an Event, in bytes: the API's limit.
const ACTION_BYTES: usize = 128;

/// Tells until `stop`.
pub(super) async fn tell(
    client: Client,
    instance: Option<String>,
    directory: Arc<Directory>,
    records: audit::Recorder,
    stop: CancellationToken,
) {
    let recorder = Recorder::new(client, Reporter { controller: "glovebox-gateway".into(), instance });
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! { _ = every.tick() => {} () = stop.cancelled() => return record(&directory, &records) }
        let mut left = MOST_ALL;
        for tenant in directory.tenants().into_iter().chain(directory.take_left()) {
            tenant.look(&directory);
            let mut refused = tenant.refusals.take();
            for (key, folded) in &refused {
                records.say(|| evidence::refused(&tenant, key, folded));
            }
            // The severe first, then the frequent.
            refused.sort_by_key(|(key, folded)| (key.reason.severity(), std::cmp::Reverse(folded.count)));
            for (key, folded) in refused.iter().take(MOST_EACH.min(left)) {
                left -= 1;
                let about = reference(&tenant.identity);
                kubernetes::publish(&recorder, &event(key, folded), &about, CALL_TIMEOUT).await;
            }
        }
    }
}

/// The last of them, when the replica stops.
fn record(directory: &Directory, records: &audit::Recorder) {
    for tenant in directory.tenants().into_iter().chain(directory.take_left()) {
        for (key, folded) in tenant.refusals.take() {
            records.say(|| evidence::refused(&tenant, &key, &folded));
        }
    }
}

fn reference(who: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(AgentSandbox::api_version(&()).into_owned()),
        kind: Some(AgentSandbox::kind(&()).into_owned()),
        namespace: Some(who.namespace.to_string()),
        name: Some(who.name.to_string()),
        uid: Some(who.uid.to_string()),
        ..ObjectReference::default()
    }
}

fn event(key: &Key, folded: &Folded) -> Event {
    let open = key.reason == Reason::Gateway(Trouble::Tripwire);
    let target = match (key.host.as_str(), key.port) {
        ("", _) => "something".to_owned(),
        (host, 0) => host.to_owned(),
        (host, port) => format!("{host}:{port}"),
    };
    let said = folded.words.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
    let words = folded.words.as_deref().unwrap_or_else(|| key.reason.words());
    let times = if folded.count == 1 { String::new() } else { format!(" ({} times)", folded.count) };
    let rule = folded.rule.as_ref().map(|rule| format!(", rule {rule:?}")).unwrap_or_default();
    let note = if open {
        "the tripwire was reached: the network does not enforce NetworkPolicy for this sandbox".to_owned()
    } else {
        let way = if key.entry == Entry::Dns { "was not resolved" } else { "was not reached" };
        format!("{target} {way}{times}: {words} ({}{rule}); {}", key.reason.as_str(), key.reason.how_to_ask())
    };
    Event {
        type_: EventType::Warning,
        reason: if open { "FenceOpen".into() } else { "EgressRefused".into() },
        note: Some(cut(note, NOTE_BYTES)),
        // Events are folded by all but their note: the target, and what is said beyond the reason, keep two of them apart.
        action: cut(format!("{} {target}{said}", key.entry.as_str()), ACTION_BYTES),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DenyReason;
    use jiff::Timestamp;

    fn folded(count: u64) -> Folded {
        Folded { count, first: Timestamp::UNIX_EPOCH, last: Timestamp::UNIX_EPOCH, rule: None, words: None }
    }

    #[test]
    fn says_what_was_refused_why_and_what_to_do() {
        let key = Key {
            entry: Entry::Dns,
            reason: Reason::Policy(DenyReason::NoRule),
            host: "evil.example".into(),
            port: 0,
        };
        let event = event(&key, &folded(3));
        let note = event.note.unwrap();
        for part in ["evil.example was not resolved (3 times)", "NoRule", "spec.egress"] {
            assert!(note.contains(part), "{part:?} is not in {note:?}");
        }
        assert_eq!((event.reason.as_str(), event.action.as_str()), ("EgressRefused", "dns evil.example"));
    }

    #[test]
    fn what_comes_to_be_wrong_for_another_reason_is_another_event() {
        let reason = Reason::Gateway(Trouble::CredentialUnavailable);
        let key = Key { entry: Entry::Tls, reason, host: "api.example".into(), port: 443 };
        let with = |words: &str| event(&key, &Folded { words: Some(words.into()), ..folded(1) });
        let (one, other) = (with("Secret \"a\" is not there"), with("Secret \"a\" has no key \"k\""));
        assert_ne!(one.action, other.action);
        assert!(one.note.unwrap().contains("is not there") && other.note.unwrap().contains("no key"));
    }

    #[test]
    fn is_never_longer_than_the_api_takes() {
        let reasons = Trouble::ALL.iter().map(|trouble| Reason::Gateway(*trouble));
        for reason in reasons {
            let key = Key { entry: Entry::Connect, reason, host: "ä".repeat(600), port: 65535 };
            let event = event(&key, &folded(u64::MAX));
            assert!(event.note.unwrap().len() <= 1000 && event.action.len() <= 128);
        }
    }
}
