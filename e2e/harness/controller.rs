//! The controller's Deployment: stopped, started and killed.

use anyhow::Result;

use super::{
    Test,
    cluster::CONTROLLER,
    replicas::{self, Replicas},
};

impl Test {
    fn controllers(&self) -> Result<Replicas> {
        let controller = self.controller()?;
        Ok(Replicas::of(&self.client, &controller.namespace, &controller.name, CONTROLLER))
    }

    /// Wants so many replicas, and waits until they are there and work, or until the last is gone.
    pub(crate) async fn scale_controller(&self, replicas: i32) -> Result<()> {
        self.controllers()?.scale(replicas).await
    }

    /// New replicas in place of those that are there: the kubelet makes a container that was killed often wait for minutes.
    pub(crate) async fn renew_controller(&self) -> Result<()> {
        self.scale_controller(0).await?;
        self.scale_controller(self.controller()?.replicas).await
    }

    /// Kills every process of the controller at once, as `kill -9` does. The kubelet starts them again.
    pub(crate) async fn kill_controller(&self) -> Result<usize> {
        let local = self.local()?;
        let mut killed = 0;
        for pod in self.controllers()?.pods().await? {
            killed += replicas::kill(local, &pod).await?;
        }
        Ok(killed)
    }
}
