//! Secrets that are added to requests on their way out: had when they are needed, kept for seconds, put where they belong, and taken out
//! of what comes back.
//!
//! A secret is in no log, no record, no refusal and no metric. What can't be had, or is not fit to be sent, is not sent without.

mod foreign;
mod forms;
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

use tokio::time::timeout;

use super::{clock::Clock, limit::Nanos, tenant::Identity};
use crate::policy::Credential;

/// How long a secret that was had is used while its source can't be asked: as long as the rest of what is known stays. So long, too, one
/// is kept that nobody uses.
const STALE: Duration = Duration::from_secs(300);
/// How long a source has to answer where what was had before is still good.
const QUICK: Duration = Duration::from_millis(300);
/// How long nobody is asked again who did not answer.
const SILENT: Duration = Duration::from_secs(5);
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
    /// When it was last asked for.
    used: Nanos,
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
        let began = clock.now();
        if let Some(had) = slot.as_mut().filter(|had| began < had.fresh) {
            had.used = began;
            return had.secret.clone();
        }
        let again = slot.as_ref().is_some_and(|had| had.secret.is_ok() && began < had.good);
        let fetch = source.fetch(who, credential, again);
        let fetched = if again {
            let silent = |_| Err(Lack::Away("its source does not answer".into()));
            timeout(QUICK, fetch).await.unwrap_or_else(silent)
        } else {
            fetch.await
        };
        let now = clock.now();
        let after = |time: Duration| after(now, time);
        let next = match (fetched, slot.take()) {
            (Ok(Fetched { secret, fresh, good }), _) => {
                let good = after(good.unwrap_or(STALE).max(fresh));
                Had { secret: Ok(secret.into()), fresh: after(fresh), good, used: now }
            }
            // Nobody says that it is not what it was.
            (Err(Lack::Away(_)), Some(had)) if had.secret.is_ok() && now < had.good => {
                Had { fresh: after(SILENT).min(had.good), used: now, ..had }
            }
            (Err(Lack::Away(why) | Lack::Gone(why)), _) => {
                Had { secret: Err(why), fresh: after(REFUSED), good: now, used: now }
            }
        };
        slot.insert(next).secret.clone()
    }

    /// Forgets what nobody has used for a while.
    pub(super) fn sweep(&self, now: Nanos) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| {
            // Whoever has it uses it.
            let Ok(slot) = slot.try_lock() else { return true };
            slot.as_ref().is_some_and(|had| now < after(had.used, STALE))
        });
    }

    /// Forgets what is not among these any more.
    pub(super) fn keep(&self, credentials: &[Credential]) {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|name, _| credentials.iter().any(|credential| credential.name == *name));
    }
}

fn after(now: Nanos, time: Duration) -> Nanos {
    now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
