//! The client for Python and the session's document, from outside: what stands between is a port on loopback that leads to a pod of
//! the session through the API server.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    process::Command,
    task::JoinSet,
    time::timeout,
};

use crate::{
    cli::Person,
    harness::{Cases, Outcome, Runtime, Test},
    session::{SESSION, authority, caller},
};

const PORT: u16 = 8444;
const EVERYTHING: &[&str] = &[
    "sandboxclasses",
    "agentsandboxes",
    "agentsandboxes/exec",
    "agentsandboxes/files",
    "agentsandboxes/logs",
];
const VERBS: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "use"];
/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn cases(cases: &mut Cases) {
    cases.add("client::python_makes_uses_and_deletes_sandboxes", 400, python);
    cases.add("client::the_document_holds_against_a_property_based_client", 300, document);
}

/// A port on loopback that leads to the session.
struct Way {
    at: SocketAddr,
    _serving: JoinSet<()>,
}

impl Way {
    async fn open(test: &Test) -> Result<Self> {
        let pods: Api<Pod> = Api::namespaced(test.client.clone(), &test.controller()?.namespace);
        let found = pods.list(&ListParams::default().labels(SESSION)).await?;
        let pod = found.items.first().context("no pod of the session")?.name_any();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (pods, pod) = (pods.clone(), pod.clone());
                carried.spawn(async move {
                    if let Err(error) = carry(client, &pods, &pod).await {
                        println!("a connection to the session: {error:#}");
                    }
                });
            }
        });
        Ok(Self { at, _serving: serving })
    }
}

async fn carry(mut client: TcpStream, pods: &Api<Pod>, pod: &str) -> Result<()> {
    let mut forward = pods.portforward(pod, &[PORT]).await?;
    let mut stream = forward.take_stream(PORT).context("no stream")?;
    // Either side may end it.
    let _ = copy_bidirectional(&mut client, &mut stream).await;
    Ok(())
}

/// A program of the client's, as somebody with this token.
struct Program<'a> {
    person: Person,
    way: Way,
    test: &'a Test,
    token: String,
    authority: String,
}

impl<'a> Program<'a> {
    async fn new(test: &'a Test) -> Result<Self> {
        let token = caller(test, "client", EVERYTHING, VERBS, None).await?;
        let person = Person::with_token(test, &token)?;
        let authority = authority(test).await?;
        let (token, authority) = (person.file("token", &token)?, person.file("ca.crt", &authority)?);
        Ok(Self { way: Way::open(test).await?, person, test, token, authority })
    }

    async fn runs(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String> {
        let python =
            std::env::var("GLOVEBOX_PYTHON").context("GLOVEBOX_PYTHON: run this by `cargo xtask test`")?;
        let checkout = std::env::var("GLOVEBOX_CHECKOUT").context("GLOVEBOX_CHECKOUT")?;
        let folder = PathBuf::from(checkout).join("clients/python");
        let namespace = &self.test.controller()?.namespace;
        let mut command = Command::new(python);
        command.args(arguments).current_dir(&folder).kill_on_drop(true).env("PYTHONPATH", folder.join("src"));
        command.envs(variables.iter().copied()).env("KUBECONFIG", self.person.kubeconfig());
        command.env("GLOVEBOX_SESSION", format!("https://{}", self.way.at));
        command.env("GLOVEBOX_SESSION_SERVER_NAME", format!("glovebox-session.{namespace}.svc"));
        command.env("GLOVEBOX_SESSION_CA", &self.authority).env("GLOVEBOX_SESSION_TOKEN_FILE", &self.token);
        command.env("GLOVEBOX_TEST_NAMESPACE", &self.test.namespace).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = timeout(PATIENCE, command.output()).await.context("it does not end")??;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let end: String = said.chars().rev().take(6000).collect::<Vec<_>>().into_iter().rev().collect();
        ensure!(output.status.success(), "it ended with {}:\n{end}", output.status);
        Ok(said)
    }
}

async fn python(test: Arc<Test>) -> Outcome {
    let program = Program::new(&test).await?;
    let variables = [
        ("GLOVEBOX_TEST_IMAGE", test.cluster.image.as_str()),
        ("GLOVEBOX_TEST_CLASS", Runtime::Runc.class()),
    ];
    let said =
        program.runs(&["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/real"], &variables).await?;
    ensure!(said.contains(" passed") && !said.contains(" skipped"), "{said}");
    Ok(())
}

async fn document(test: Arc<Test>) -> Outcome {
    let program = Program::new(&test).await?;
    let spec = json!({"ttl": "15m", "resources": {"cpu": "100m", "memory": "128Mi"}});
    let _sandbox = test.running(Runtime::Runc, "described", &spec).await?;
    let said = program.runs(&["schemathesis/run.py"], &[("GLOVEBOX_TEST_SANDBOX", "described")]).await?;
    println!(
        "{}",
        said.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    );
    Ok(())
}
