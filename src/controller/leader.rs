//! One replica writes: whoever holds the Lease. Losing it ends the process, since a half-stopped leader is worse than none.

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use tokio::{sync::watch, task::JoinHandle};

/// Seconds that a Lease lives without renewal, and how long before its end it is renewed.
const LEASE_SECONDS: u64 = 15;
const GRACE_SECONDS: u64 = 10;

/// The Lease, held or waited for.
pub(super) struct Leadership {
    state: watch::Receiver<bool>,
    task: JoinHandle<kube_lease_manager::Result<LeaseManager>>,
}

impl Leadership {
    /// Starts to seek the Lease.
    ///
    /// # Errors
    /// When the Lease can be neither read nor made.
    pub(super) async fn seek(
        client: Client,
        namespace: &str,
        lease: &str,
        identity: &str,
    ) -> anyhow::Result<Self> {
        let manager = LeaseManagerBuilder::new(client, lease)
            .with_namespace(namespace)
            .with_identity(identity)
            .with_duration(LEASE_SECONDS)
            .with_grace(GRACE_SECONDS)
            .with_field_manager(crate::sandbox::names::FIELD_MANAGER)
            .build()
            .await?;
        let (state, task) = manager.watch().await;
        Ok(Self { state, task })
    }

    /// Returns when the Lease is held.
    ///
    /// # Errors
    /// When nobody seeks it any more.
    pub(super) async fn held(&mut self) -> anyhow::Result<()> {
        self.state.wait_for(|held| *held).await?;
        Ok(())
    }

    /// Returns when the Lease is not held any more.
    pub(super) async fn lost(&mut self) {
        let _ = self.state.wait_for(|held| !*held).await;
    }

    /// Gives the Lease back, so that the next replica need not wait for its end.
    pub(super) async fn release(self) {
        drop(self.state);
        match self.task.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "lease not given back"),
            Err(error) => tracing::warn!(%error, "lease task ended"),
        }
    }
}
