//! `glovebox cleanup`: takes away everything that the controller made, sandboxes first and the fence last, so that nothing
//! ever runs unfenced. Run before an uninstall, while the controller still lives.

use std::fmt::Debug;

use anyhow::{Context as _, bail};
use futures::TryStreamExt;
use k8s_openapi::api::{
    core::v1::{Pod, ResourceQuota},
    networking::v1::NetworkPolicy,
    rbac::v1::{Role, RoleBinding},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    api::{AgentSandbox, SandboxClass, Span},
    sandbox::names,
};

/// Delete all sandboxes and whatever the controller made for them; definitions stay.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// How long to wait for the sandboxes' pods to go.
    #[arg(long, default_value = "120s", value_parser = |text: &str| text.parse::<Span>())]
    pub timeout: Span,
}

/// Carries out the command.
///
/// # Errors
/// Names what is still there when the time is over.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let client = crate::kubernetes::client().await?;
    let deadline = Instant::now() + options.timeout.duration();
    let sandboxes: Api<AgentSandbox> = Api::all(client.clone());
    // Without classes nothing new can start, so that after them the last sandboxes are the last.
    delete_each(&sandboxes, &client, &ListParams::default()).await?;
    delete_each::<SandboxClass>(&Api::all(client.clone()), &client, &ListParams::default()).await?;
    delete_each(&sandboxes, &client, &ListParams::default()).await?;
    let pods: Api<Pod> = Api::all(client.clone());
    until_none(&sandboxes, watcher::Config::default(), deadline).await?;
    until_none(&pods, watcher::Config::default().labels(names::SANDBOX_LABEL), deadline).await?;
    let ours = ListParams::default().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGER));
    // Anybody may have given our label to a Role of his own, which we may not touch.
    let grant = |name: &str| name.starts_with(names::CREDENTIALS);
    delete_some::<RoleBinding>(&Api::all(client.clone()), &client, &ours, grant).await?;
    delete_some::<Role>(&Api::all(client.clone()), &client, &ours, grant).await?;
    delete_each::<NetworkPolicy>(&Api::all(client.clone()), &client, &ours).await?;
    delete_each::<ResourceQuota>(&Api::all(client.clone()), &client, &ours).await?;
    delete_each::<PriorityClass>(&Api::all(client.clone()), &client, &ours).await
}

/// What deletion needs of a kind, namespaced or not.
trait Kind: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static> Kind for K {}

async fn delete_each<K: Kind>(all: &Api<K>, client: &Client, params: &ListParams) -> anyhow::Result<()> {
    delete_some(all, client, params, |_| true).await
}

async fn delete_some<K: Kind>(
    all: &Api<K>,
    client: &Client,
    params: &ListParams,
    which: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let kind = K::kind(&());
    let found = match all.list_metadata(params).await {
        // Not even the definition is there: nothing to delete.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        found => found.with_context(|| format!("can't list {kind}"))?,
    };
    let mut count = 0;
    for object in found.items.iter().filter(|object| which(&object.name_any())) {
        let name = object.name_any();
        count += 1;
        let request = kube::core::Request::new(K::url_path(&(), object.namespace().as_deref()))
            .delete(&name, &DeleteParams::background())
            .with_context(|| format!("can't delete {kind} {name}"))?;
        match client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.with_context(|| format!("can't delete {kind} {name}"))?),
        }
    }
    if count > 0 {
        tracing::info!(%kind, count, "deleted");
    }
    Ok(())
}

/// Waits until a watch has seen the last one go.
async fn until_none<K: Kind>(api: &Api<K>, config: watcher::Config, deadline: Instant) -> anyhow::Result<()> {
    let (reader, writer) = kube::runtime::reflector::store();
    let params = ListParams { label_selector: config.label_selector.clone(), ..ListParams::default() };
    let empty = async {
        let mut events = std::pin::pin!(watcher(api.clone(), config).default_backoff().reflect(writer));
        while let Some(event) = events.try_next().await? {
            let settled = !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_));
            if settled && reader.is_empty() {
                return Ok::<_, watcher::Error>(());
            }
        }
        Ok(())
    };
    if let Ok(done) = tokio::time::timeout_at(deadline, empty).await {
        return Ok(done?);
    }
    let left = api.list_metadata(&params).await?;
    let names: Vec<String> = left
        .items
        .iter()
        .take(10)
        .map(|object| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()))
        .collect();
    bail!(
        "{} of kind {} still there, such as {names:?}; see why they do not go, then run it again",
        left.items.len(),
        K::kind(&())
    )
}
