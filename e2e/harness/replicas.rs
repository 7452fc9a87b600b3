//! The replicas of a Deployment that the chart installed: as many as wanted, working, or killed.

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{local::Local, wait};

/// A Deployment and its pods.
pub(crate) struct Replicas {
    deployments: Api<Deployment>,
    pods: Api<Pod>,
    name: String,
    labels: &'static str,
}

impl Replicas {
    /// Of this name, whose pods have these labels.
    pub(crate) fn of(client: &Client, namespace: &str, name: &str, labels: &'static str) -> Self {
        Self {
            deployments: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
            labels,
        }
    }

    /// Every pod, also one that is going.
    pub(crate) async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.pods.list(&ListParams::default().labels(self.labels)).await?.items)
    }

    /// Replicas wanted.
    pub(crate) async fn wanted(&self) -> Result<i32> {
        let spec = self.deployments.get(&self.name).await?.spec;
        Ok(spec.and_then(|spec| spec.replicas).unwrap_or(1))
    }

    /// Wants so many, and waits until they are there and work, or until the last is gone.
    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments.patch_scale(&self.name, &PatchParams::default(), &patch).await?;
        if replicas == 0 {
            let none = async || Ok(self.pods().await?.is_empty().then_some(()));
            return wait::poll(&format!("{} stops", self.name), none).await;
        }
        self.work().await
    }

    /// Waits until all that are wanted are ready.
    pub(crate) async fn work(&self) -> Result<()> {
        let ready = |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            let wanted = deployment.and_then(|deployment| deployment.spec.as_ref()?.replicas);
            wanted.is_some() && status.and_then(|status| status.ready_replicas) == wanted
        };
        let what = format!("{} is ready", self.name);
        wait::until(self.deployments.clone(), &self.name, &what, ready).await.map(|_| ())
    }
}

/// Kills every process of a pod that runs, as `kill -9` does; how many containers that were. The kubelet starts them again.
pub(crate) async fn kill(local: &Local, pod: &Pod) -> Result<usize> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("a pod on no node")?;
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let running = status
        .into_iter()
        .flatten()
        .filter(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()));
    let mut killed = 0;
    for id in running.filter_map(|container| container.container_id.as_deref()) {
        let id = id.trim_start_matches("containerd://");
        let kill = ["ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", id];
        // One that ended meanwhile can't be killed.
        if local.on_node(node, &kill).await.is_ok() {
            killed += 1;
        }
    }
    Ok(killed)
}
