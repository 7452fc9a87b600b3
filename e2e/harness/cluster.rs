//! The cluster under test: a client, the controller's Deployment, and what the suite may use of the nodes.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
};
use kube::{Api, Client, Config, ResourceExt, api::ListParams};

use glovebox::api::{AgentSandbox, Quantity};

use super::{local::Local, world::World};

/// Labels of the controller's Deployment and pods, as the chart sets them.
pub(crate) const CONTROLLER: &str = "app.kubernetes.io/name=glovebox,app.kubernetes.io/component=controller";
/// The image with a shell, Python and the fixtures.
const TOOLS_IMAGE: &str = "glovebox.dev/tools:1";
/// Thousandths of a core that are left to what is not the suite's.
const SPARE_CPU: u64 = 100;

/// What all tests share.
pub(crate) struct Cluster {
    /// The administrator's client.
    pub(crate) client: Client,
    /// The image that sandboxes run.
    pub(crate) image: String,
    /// Thousandths of a core that the tests may request at one time.
    pub(crate) cpu: u64,
    /// The controller, if the chart installed it.
    pub(crate) controller: Option<Controller>,
    /// Powers over the local cluster; none over a user's own.
    pub(crate) local: Option<Local>,
    /// The pretended internet around it.
    pub(crate) world: Option<World>,
}

/// Who works on sandboxes.
pub(crate) struct Controller {
    /// Namespace of its Deployment.
    pub(crate) namespace: String,
    /// Name of its Deployment.
    pub(crate) name: String,
    /// Its user name, as the audit log has it.
    pub(crate) user: String,
    /// Replicas wanted.
    pub(crate) replicas: i32,
}

impl Cluster {
    /// Connects to the cluster that KUBECONFIG names.
    pub(crate) async fn connect() -> Result<Self> {
        let config =
            Config::infer().await.context("no cluster: set KUBECONFIG, or run `cargo xtask test e2e`")?;
        let client = Client::try_from(config)?;
        let sandboxes: Api<AgentSandbox> = Api::all(client.clone());
        sandboxes
            .list(&ListParams::default().limit(1))
            .await
            .context("the API server knows no AgentSandbox: install the chart first")?;
        let local = Local::from_environment();
        Ok(Self {
            image: std::env::var("GLOVEBOX_E2E_IMAGE").unwrap_or_else(|_| TOOLS_IMAGE.into()),
            cpu: free_cpu(&client).await?,
            controller: controller(&client).await?,
            world: local.as_ref().map(World::new),
            local,
            client,
        })
    }
}

impl Cluster {
    /// The names of the nodes that can be scheduled on.
    pub(crate) async fn node_names(&self) -> Result<Vec<String>> {
        Ok(schedulable(&self.client).await?.iter().map(ResourceExt::name_any).collect())
    }
}

async fn schedulable(client: &Client) -> Result<Vec<Node>> {
    let mut nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items;
    nodes.retain(|node| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true)));
    if nodes.is_empty() {
        bail!("the cluster has no node to run a sandbox on");
    }
    Ok(nodes)
}

/// What the node with the most of it has left, in thousandths of a core: tests that together request more would wait for
/// each other.
async fn free_cpu(client: &Client) -> Result<u64> {
    let pods = Api::<Pod>::all(client.clone()).list(&ListParams::default()).await?.items;
    let milli = |amounts: Option<&std::collections::BTreeMap<String, _>>| {
        amounts
            .and_then(|amounts| amounts.get("cpu"))
            .and_then(|cpu| Quantity::from(cpu).milli().ok())
            .unwrap_or(0)
    };
    let free = schedulable(client).await?.into_iter().map(|node| {
        let name = node.name_any();
        let has = milli(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        let on_node = pods
            .iter()
            .filter_map(|pod| pod.spec.as_ref())
            .filter(|spec| spec.node_name.as_deref() == Some(&name));
        let containers = on_node.flat_map(|spec| &spec.containers);
        let used: u64 =
            containers.map(|c| milli(c.resources.as_ref().and_then(|r| r.requests.as_ref()))).sum();
        has.saturating_sub(used + SPARE_CPU)
    });
    let most = free.max().unwrap_or(0);
    if most < 500 {
        bail!("only {most}m of CPU can be requested on any node; the suite needs 500m");
    }
    Ok(most)
}

async fn controller(client: &Client) -> Result<Option<Controller>> {
    let found =
        Api::<Deployment>::all(client.clone()).list(&ListParams::default().labels(CONTROLLER)).await?;
    let Some(deployment) = found.items.into_iter().next() else { return Ok(None) };
    let namespace = deployment.namespace().unwrap_or_default();
    let spec = deployment.spec.as_ref();
    let account =
        spec.and_then(|spec| spec.template.spec.as_ref()?.service_account_name.clone()).unwrap_or_default();
    Ok(Some(Controller {
        user: format!("system:serviceaccount:{namespace}:{account}"),
        name: deployment.name_any(),
        replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        namespace,
    }))
}
