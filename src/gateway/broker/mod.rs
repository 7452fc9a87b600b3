//! Secrets that are added to requests on their way out: had when they are needed, kept for seconds, put where they belong, and taken out
//! of what comes back.
//!
//! A secret is in no log, no record, no refusal and no metric. What can't be had, or is not fit to be sent, is not sent without.

mod foreign;
mod provider;
mod redact;
mod request;
mod secret;
mod source;

pub use provider::{ProviderOptions, Providers};
pub use redact::Redactor;
pub(super) use request::{add, examine, own};
pub use secret::{Secret, Unfit};
pub use source::{Fetched, Kubernetes, Lack, NoSource, Source};

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{clock::Clock, limit::Nanos, tenant::Identity};
use crate::policy::Credential;

/// How long a secret that was had is used while its source can't be asked: as long as the rest of what is known stays.
const STALE: Duration = Duration::from_secs(300);
/// How long a source that has none is not asked again: a sandbox that tries all the time must not become a load on it.
const REFUSED: Duration = Duration::from_secs(1);

/// What was had, or why there was none.
#[derive(Debug)]
struct Had {
    secret: Result<Arc<Secret>, String>,
    /// Until when that holds without asking again.
    fresh: Nanos,
    /// Until when a secret is used where nobody can be asked.
    good: Nanos,
}

type Slot = Arc<tokio::sync::Mutex<Option<Had>>>;

/// The secrets of one sandbox, which go with it.
#[derive(Debug, Default)]
pub struct Purse(Mutex<HashMap<Arc<str>, Slot>>);

impl Purse {
    /// The secret of a credential. Whoever asks while another does waits for the same answer.
    ///
    /// # Errors
    /// Why it can't be had, for a person.
    pub(super) async fn secret(
        &self,
        source: &dyn Source,
        who: &Identity,
        credential: &Credential,
        clock: Clock,
    ) -> Result<Arc<Secret>, String> {
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            slots.entry(credential.name.clone()).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(had) = slot.as_ref().filter(|had| clock.now() < had.fresh) {
            return had.secret.clone();
        }
        let fetched = source.fetch(who, credential).await;
        let now = clock.now();
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let next = match (fetched, slot.take()) {
            (Ok(Fetched { secret, fresh, good }), _) => {
                let good = after(good.unwrap_or(STALE).max(fresh));
                Had { secret: Ok(secret.into()), fresh: after(fresh), good }
            }
            // Nobody says that it is not what it was.
            (Err(Lack::Away(_)), Some(had)) if had.secret.is_ok() && now < had.good => {
                Had { fresh: after(REFUSED).min(had.good), ..had }
            }
            (Err(Lack::Away(why) | Lack::Gone(why)), _) => {
                Had { secret: Err(why), fresh: after(REFUSED), good: now }
            }
        };
        slot.insert(next).secret.clone()
    }

    /// Forgets what is not among these any more.
    pub(super) fn keep(&self, credentials: &[Credential]) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|name, _| credentials.iter().any(|credential| credential.name == *name));
    }
}

#[cfg(test)]
mod tests;
