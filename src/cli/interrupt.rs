//! Signals that tell this program to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::fault::Fault;

/// Those that are caught. What they do by themselves is left undone from then on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(super) fn catch() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one, as the error to end with.
    pub(super) async fn next(&mut self) -> anyhow::Error {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Fault::signal(u8::try_from(kind.as_raw_value()).unwrap_or(1))
    }

    /// Does something, unless a signal comes before it is done.
    pub(super) async fn unless<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            signal = self.next() => Err(signal),
            done = work => done,
        }
    }
}
