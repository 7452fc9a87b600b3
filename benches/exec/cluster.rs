//! The sandbox that calls go to, the pod that they come from, and the right to make them; all in a namespace that is gone afterwards.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use glovebox::api::{AgentSandbox, SandboxClass};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    core::v1::{ConfigMap, Namespace, Pod, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{AttachParams, DeleteParams, ListParams, PostParams},
    runtime::wait::await_condition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, time::timeout};

const NAME: &str = "glovebox-bench-exec";
const SANDBOX: &str = "warm";
const CLIENT: &str = "client";
const PATIENCE: Duration = Duration::from_secs(120);
/// Most that is read of what is printed inside.
const MOST: u64 = 1 << 20;

/// What is needed to make calls.
pub(super) struct Bench {
    client: Client,
    facts: Value,
}

impl Bench {
    /// Makes all of it, and waits until it is there.
    pub(super) async fn set_up() -> Result<Self> {
        let image =
            std::env::var("GLOVEBOX_E2E_IMAGE").context("GLOVEBOX_E2E_IMAGE names an image with Python")?;
        let client = Client::try_default().await?;
        let bench = Self { facts: session(&client).await?, client };
        let class = json!({
            "metadata": {"name": NAME}, "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}},
        });
        let known = "can't create it; did the last run end well?";
        create::<SandboxClass>(&Api::all(bench.client.clone()), class).await.context(known)?;
        let made = bench.fill(&image).await;
        match made {
            Ok(token) => Ok(Self { facts: with(&bench.facts, "token", &json!(token)), ..bench }),
            Err(error) => {
                bench.tear_down().await?;
                Err(error)
            }
        }
    }

    async fn fill(&self, image: &str) -> Result<String> {
        create::<Namespace>(&Api::all(self.client.clone()), json!({"metadata": {"name": NAME}})).await?;
        let there = |account: Option<&ServiceAccount>| account.is_some();
        timeout(PATIENCE, await_condition(self.api(), "default", there)).await??;
        let token = self.token().await?;
        create::<AgentSandbox>(
            &self.api(),
            json!({
                "metadata": {"name": SANDBOX},
                "spec": {"className": NAME, "image": image, "ttl": "30m", "workspace": {"size": "16Mi"},
                             "resources": {"cpu": "1", "memory": "256Mi"}},
            }),
        )
        .await?;
        create::<Pod>(
            &self.api(),
            json!({
                "metadata": {"name": CLIENT},
                "spec": {
                    "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
                                    "command": ["python3", "-c", "import time; time.sleep(3600)"]}],
                },
            }),
        )
        .await?;
        let ready = |sandbox: Option<&AgentSandbox>| {
            let status = sandbox.and_then(|sandbox| sandbox.status.as_ref());
            status.is_some_and(|status| {
                status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
            })
        };
        timeout(PATIENCE, await_condition(self.api(), SANDBOX, ready))
            .await
            .context("the sandbox is not ready")??;
        let runs = |pod: Option<&Pod>| {
            pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()).is_some_and(|phase| phase == "Running")
        };
        timeout(PATIENCE, await_condition(self.api(), CLIENT, runs))
            .await
            .context("the client does not run")??;
        Ok(token)
    }

    /// A token that may make calls here and nothing else.
    async fn token(&self) -> Result<String> {
        let account: Api<ServiceAccount> = self.api();
        create(&account, json!({"metadata": {"name": CLIENT}})).await?;
        create::<Role>(&self.api(), json!({
            "metadata": {"name": CLIENT},
            "rules": [{"apiGroups": ["glovebox.dev"], "resources": ["agentsandboxes/exec"], "verbs": ["create"]}],
        })).await?;
        create::<RoleBinding>(
            &self.api(),
            json!({
                "metadata": {"name": CLIENT},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": CLIENT},
                "subjects": [{"kind": "ServiceAccount", "name": CLIENT, "namespace": NAME}],
            }),
        )
        .await?;
        let request: TokenRequest = serde_json::from_value(
            json!({"metadata": {}, "spec": {"audiences": [], "expirationSeconds": 3600}}),
        )?;
        let made = account.create_token_request(CLIENT, &PostParams::default(), &request).await?;
        made.status.map(|status| status.token).context("no token was given")
    }

    /// Takes all of it away, and waits until it is gone.
    pub(super) async fn tear_down(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let gone = |namespace: Option<&Namespace>| namespace.is_none();
        if namespaces.get_opt(NAME).await?.is_some() {
            namespaces.delete(NAME, &DeleteParams::background()).await?;
            timeout(PATIENCE, await_condition(namespaces, NAME, gone)).await??;
        }
        Api::<SandboxClass>::all(self.client.clone()).delete(NAME, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Where the session is deployed, and its name there.
    pub(super) fn session(&self) -> (Api<Deployment>, &'static str) {
        let host = self.facts["host"].as_str().unwrap_or_default();
        (Api::namespaced(self.client.clone(), host.split('.').nth(1).unwrap_or_default()), "glovebox-session")
    }

    /// What the client has to know to make so many calls.
    pub(super) fn facts(&self, calls: usize) -> Value {
        with(&self.facts, "calls", &json!(calls))
    }

    /// Runs a command in the client, and gives what it printed.
    pub(super) async fn in_client(&self, command: &[&str]) -> Result<String> {
        self.exec(CLIENT, "main", command).await
    }

    /// The same in the sandbox, by the API server.
    pub(super) async fn in_sandbox(&self, command: &[&str]) -> Result<String> {
        self.exec(SANDBOX, "workload", command).await
    }

    async fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        let params = AttachParams::default().container(container).stderr(false);
        let run = async {
            let mut process = self.api::<Pod>().exec(pod, command.to_vec(), &params).await?;
            let status = process.take_status().context("a command without status")?;
            let stdout = process.stdout().context("a command without output")?;
            let mut printed = String::new();
            stdout.take(MOST).read_to_string(&mut printed).await?;
            let status = status.await.context("the connection ended before the command")?;
            ensure!(
                status.status.as_deref() == Some("Success"),
                "it failed: {status:?}, {}",
                output(&printed)
            );
            Ok(printed)
        };
        timeout(PATIENCE, run).await.context("a command did not end")?
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), NAME)
    }
}

/// The session's address, its authority and where calls go.
async fn session(client: &Client) -> Result<Value> {
    let selector =
        ListParams::default().labels("app.kubernetes.io/name=glovebox,app.kubernetes.io/component=session");
    let services = Api::<Service>::all(client.clone()).list(&selector).await?.items;
    let [service] = services.as_slice() else {
        bail!(
            "{} Services of a session in this cluster; install the chart once, with session.enabled",
            services.len()
        );
    };
    let namespace = service.namespace().unwrap_or_default();
    let name = service.name_any();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map = maps.get(&format!("{name}-ca")).await.context("the session's authority")?;
    let ca = map.data.and_then(|mut data| data.remove("ca.crt")).context("no ca.crt")?;
    let host = format!("{name}.{namespace}.svc");
    Ok(json!({"ca": ca, "host": host, "namespace": NAME, "sandbox": SANDBOX}))
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let object: K = serde_json::from_value(object)?;
    let kind = K::kind(&());
    let made = api.create(&PostParams::default(), &object).await;
    made.map(|_| ()).with_context(|| format!("{kind} {}", object.name_any()))
}

fn with(facts: &Value, key: &str, value: &Value) -> Value {
    let mut facts = facts.clone();
    if let Some(facts) = facts.as_object_mut() {
        facts.insert(key.into(), value.clone());
    }
    facts
}

/// Something that was printed inside, as far as it fits in an error.
pub(super) fn output(printed: &str) -> String {
    format!("it printed {:?}", printed.chars().take(200).collect::<String>())
}
