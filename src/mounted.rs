//! Files that the kubelet keeps current: taken again whenever they change.
//!
//! What can't be read or used leaves what was, and is said once. The words of an error are of files' names and shapes: must never
//! hold what is in them.

use std::time::Duration;

use tokio::time::MissedTickBehavior;

/// Looks for ever. `known` is what was taken before; `stays` tells what goes on when something is wrong.
pub(crate) async fn follow<T: PartialEq>(
    look: Duration,
    mut known: Option<T>,
    stays: &str,
    mut read: impl FnMut() -> anyhow::Result<T>,
    mut take: impl FnMut(&T) -> anyhow::Result<()>,
) {
    let mut every = tokio::time::interval(look);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = None;
    loop {
        every.tick().await;
        let taken = match read() {
            Ok(read) if known.as_ref() == Some(&read) => Ok(read),
            Ok(read) => take(&read).map(|()| read),
            Err(error) => Err(error),
        };
        match taken {
            Ok(read) => (known, said) = (Some(read), None),
            Err(error) => {
                let error = format!("{error:#}");
                if said.as_ref() != Some(&error) {
                    tracing::error!(error, "{stays}");
                    said = Some(error);
                }
            }
        }
    }
}
