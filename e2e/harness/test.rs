//! One test under way: its namespace, what it made besides, and what is skipped for want of a power.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{
    ClusterResourceScope,
    api::core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use glovebox::{api::AgentSandbox, sandbox::names};

use super::{
    cluster::{Cluster, Controller},
    local::Local,
    random, wait,
    world::World,
};

/// Label of every namespace that the suite makes.
pub(crate) const NAMESPACE_LABEL: &str = "glovebox-e2e";

/// Why a test was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Skipped(pub(crate) String);

/// Ends a test as skipped.
pub(crate) fn skip(why: impl Into<String>) -> anyhow::Error {
    Skipped(why.into()).into()
}

type Removal = Box<dyn FnOnce(Client) -> BoxFuture<'static, ()> + Send>;

/// What a test works with.
pub(crate) struct Test {
    /// What all tests share.
    pub(crate) cluster: &'static Cluster,
    /// The administrator's client.
    pub(crate) client: Client,
    /// A namespace of its own.
    pub(crate) namespace: String,
    /// Random, for names that must be unique in the cluster.
    pub(crate) suffix: String,
    namespaces: Mutex<Vec<String>>,
    removals: Mutex<Vec<Removal>>,
}

impl Test {
    /// Starts a test of that name.
    pub(crate) async fn start(cluster: &'static Cluster, name: &str) -> Result<Self> {
        let suffix = random()?;
        let readable: String =
            name.rsplit("::").next().unwrap_or(name).replace('_', "-").chars().take(40).collect();
        let test = Self {
            cluster,
            client: cluster.client.clone(),
            namespace: format!("e2e-{}-{suffix}", readable.trim_end_matches('-')),
            suffix,
            namespaces: Mutex::default(),
            removals: Mutex::default(),
        };
        test.make_namespace(&test.namespace, "restricted").await?;
        Ok(test)
    }

    /// Another namespace that holds pods to the Pod Security Standard `level`.
    pub(crate) async fn another_namespace(&self, level: &str) -> Result<String> {
        let name = format!("e2e-{}-{}", random()?, self.suffix);
        self.make_namespace(&name, level).await?;
        Ok(name)
    }

    async fn make_namespace(&self, name: &str, level: &str) -> Result<()> {
        let labels = json!({NAMESPACE_LABEL: "", "pod-security.kubernetes.io/enforce": level});
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        lock(&self.namespaces).push(name.to_owned());
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.context("a namespace for the test")?;
        Ok(())
    }

    /// All namespaces of the test.
    pub(crate) fn all_namespaces(&self) -> Vec<String> {
        lock(&self.namespaces).clone()
    }

    /// An API of the test's namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Has a cluster-wide object deleted at the end, whether or not it is made.
    pub(crate) fn forget_later<K>(&self, name: &str)
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + 'static,
    {
        let name = name.to_owned();
        let removal = move |client: Client| {
            async move {
                let api: Api<K> = Api::all(client);
                // What is gone already needs no removal; what can't be removed shows in the last test.
                let _ = api.delete(&name, &DeleteParams::default()).await;
            }
            .boxed()
        };
        lock(&self.removals).push(Box::new(removal));
    }

    /// Removes all that the test made, and waits until its pods are gone: the next test wants their room. Namespaces go on
    /// going after this; the last test looks whether they went.
    pub(crate) async fn finish(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in self.all_namespaces() {
            // A namespace that is deleted takes some seconds before it begins with what is in it.
            let sandboxes: Api<AgentSandbox> = Api::namespaced(self.client.clone(), &name);
            let _ = sandboxes.delete_collection(&DeleteParams::default(), &ListParams::default()).await;
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &name);
            let others = ListParams::default().labels(&format!("!{}", names::SANDBOX_LABEL));
            let _ = pods.delete_collection(&DeleteParams::default().grace_period(1), &others).await;
            let _ = namespaces.delete(&name, &DeleteParams::default()).await;
        }
        for name in self.all_namespaces() {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &name);
            let gone = wait::poll("pods go", async || {
                Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
            });
            let _ = gone.await;
        }
        let removals = std::mem::take(&mut *lock(&self.removals));
        for removal in removals.into_iter().rev() {
            removal(self.client.clone()).await;
        }
    }

    /// Powers over the local cluster.
    pub(crate) fn local(&self) -> Result<&'static Local> {
        self.cluster
            .local
            .as_ref()
            .ok_or_else(|| skip("needs powers that only a local cluster gives (`cargo xtask cluster`)"))
    }

    /// The pretended internet.
    pub(crate) async fn world(&self) -> Result<&'static World> {
        self.local()?;
        let world = self.cluster.world.as_ref().ok_or_else(|| skip("needs the world of a local cluster"))?;
        world.open().await?;
        Ok(world)
    }

    /// The controller as the chart installed it.
    pub(crate) fn controller(&self) -> Result<&'static Controller> {
        self.cluster.controller.as_ref().ok_or_else(|| skip("needs a controller that the chart installed"))
    }
}

/// No test panics while it holds one of these for longer than a push.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
