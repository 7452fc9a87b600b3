//! Whether a sandbox is suspected of an attack, and what becomes of it. Pure.
//!
//! What was once known stays, whatever replicas and classes say later: a sandbox is ephemeral, and one that was suspected is replaced.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::world::World;
use crate::api::{Reason, Suspicion, SuspicionAction};

/// Most signs that a status holds.
const MOST_SIGNS: usize = 16;
/// By so many points a score must have grown to be worth a write.
const WORTH: i32 = 10;

/// What replicas of the gateway and the session saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Different acts that no honest client does.
    pub severe: u32,
    /// All points.
    pub score: u32,
    /// The acts in words, the worst first.
    pub signs: Vec<String>,
}

/// What to say of it now: what the status says already, unless there is more to say. Nothing of a sandbox that did nothing of the kind.
#[must_use]
pub fn judge(world: &World, now: Timestamp) -> Option<Suspicion> {
    let old = world.sandbox.status.as_ref().and_then(|status| status.suspicion.clone());
    let Some(seen) = &world.seen else { return old };
    // What is enough, and what becomes of it, is the class's word alone.
    let Ok(class) = &world.class else { return old };
    let bounds = &class.spec.detection;
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let severe_acts = old.as_ref().map_or(0, |old| old.severe_acts).max(number(seen.severe));
    let score = old.as_ref().map_or(0, |old| old.score).max(number(seen.score));
    let enough = severe_acts >= bounds.severe_acts || score >= bounds.score;
    let was = old.as_ref().and_then(|old| old.action);
    let action = was.max(enough.then_some(bounds.action));
    if let Some(old) = &old
        && action == was
        && severe_acts == old.severe_acts
        && score < old.score.saturating_add(WORTH)
    {
        return Some(old.clone());
    }
    let since = old.and_then(|old| old.since).or_else(|| action.map(|_| Time(now)));
    let signs = seen.signs.iter().take(MOST_SIGNS).cloned().collect();
    Some(Suspicion { severe_acts, score, signs, action, since })
}

/// Which of the bounds it met.
#[must_use]
pub fn reason(world: &World, suspicion: &Suspicion) -> Reason {
    let bound = world.class.as_ref().map_or(i32::MAX, |class| class.spec.detection.severe_acts);
    if suspicion.severe_acts >= bound { Reason::SevereActs } else { Reason::ScoreReached }
}

/// The same for a person: what it did, and what became of it.
#[must_use]
pub fn message(suspicion: &Suspicion) -> String {
    let done = match suspicion.action {
        None | Some(SuspicionAction::Report) => "it runs on",
        Some(SuspicionAction::Throttle) => "it gets one connection and 8 KiB to the outside a second",
        Some(SuspicionAction::DenyAll) => "it reaches nothing any more; a new sandbox begins anew",
        Some(SuspicionAction::Terminate) => "it is ended",
    };
    format!(
        "{} acts that no honest client does, {} points in all: {}; {done}",
        suspicion.severe_acts,
        suspicion.score,
        suspicion.signs.join(", ")
    )
}
