//! The gateway that the chart installed: its address, its pods, and how a replica is taken away.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{Api, ResourceExt};

use super::{
    Test,
    replicas::{self, Replicas},
    skip,
};

/// Name of its Service and its Deployment.
const NAME: &str = "glovebox-gateway";
/// Labels of its pods, as the chart sets them.
const LABELS: &str = "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=gateway";

/// Where all that leaves a sandbox passes through.
pub(crate) struct Gateway {
    /// Address of its Service: what each sandbox has as its name server.
    pub(crate) address: String,
    /// Its Deployment.
    pub(crate) replicas: Replicas,
}

impl Test {
    /// The gateway beside the controller.
    pub(crate) async fn gateway(&self) -> Result<Gateway> {
        let namespace = &self.controller()?.namespace;
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let found = services.get_opt(NAME).await?.and_then(|service| service.spec?.cluster_ip);
        let address = found.ok_or_else(|| skip("needs a gateway that the chart installed"))?;
        Ok(Gateway { address, replicas: Replicas::of(&self.client, namespace, NAME, LABELS) })
    }
}

impl Gateway {
    /// Its pods that are not going.
    pub(crate) async fn pods(&self) -> Result<Vec<Pod>> {
        let mut pods = self.replicas.pods().await?;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Their addresses.
    pub(crate) async fn addresses(&self) -> Result<Vec<String>> {
        let pods = self.pods().await?;
        Ok(pods.into_iter().filter_map(|pod| pod.status?.pod_ip).collect())
    }

    /// Kills one replica at once, as `kill -9` does; says which. The kubelet starts it again.
    pub(crate) async fn kill_one(&self, test: &Test) -> Result<String> {
        let pod = self.pods().await?.into_iter().next().context("there is no gateway to kill")?;
        let killed = replicas::kill(test.local()?, &pod).await?;
        ensure!(killed > 0, "nothing of the gateway {} was killed", pod.name_any());
        Ok(pod.name_any())
    }
}
