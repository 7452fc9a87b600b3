//! The process: health, leadership, watches, and the two controllers, until it is told to stop.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use axum::Router;
use futures::{
    FutureExt, StreamExt,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod, ResourceQuota, Service},
    networking::v1::NetworkPolicy,
    node::v1::RuntimeClass,
    rbac::v1::{Role, RoleBinding},
    scheduling::v1::PriorityClass,
};
use kube::{
    Client, ResourceExt,
    runtime::{Controller, controller, reflector::store::Writer},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    changes, class,
    context::{Context, Guarded, Stores, Writers},
    files::Files,
    idle::Idle,
    leader::Leadership,
    named, reconcile,
    suspects::{self, Woken},
    watches::{self, Concerned},
};
use crate::{
    api::{AgentSandbox, EgressApproval, EgressPolicy, SandboxClass},
    audit::{AuditOptions, Recorder},
    kubernetes,
    policy::ClusterRanges,
    sandbox::world::Settings,
    telemetry::{
        self, LogFormat, Metrics,
        http::{self, Health},
    },
};

/// How long reconciles may finish after the stop signal; the pod's grace period is longer.
const DRAIN: Duration = Duration::from_secs(10);
/// The least time between passes over the Services of hosts, after one failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Run the controller: sandboxes and classes become pods, policies and quotas.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Image that carries glovebox-agent, for the init container of each sandbox.
    #[arg(long, env = "GLOVEBOX_AGENT_IMAGE")]
    pub agent_image: String,
    /// Namespace of the Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "glovebox-system")]
    pub namespace: String,
    /// The gateway's ServiceAccount in that namespace, which is granted the credentials that sandboxes name; without it, none are
    /// brokered.
    #[arg(long, env = "GLOVEBOX_GATEWAY_ACCOUNT")]
    pub gateway_account: Option<String>,
    /// Identity in the Lease and in Events; the host's name if absent.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Name of the Lease.
    #[arg(long, default_value = "glovebox-controller")]
    pub lease_name: String,
    /// Where it is said what was done.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// How log lines look.
    #[arg(long, value_enum, default_value = "json")]
    pub log_format: LogFormat,
    /// Range of pod, service or node addresses, which no sandbox may reach unless its class names it. Repeatable; what nodes
    /// say of themselves is added.
    #[arg(long = "cluster-cidr", value_name = "CIDR")]
    pub cluster_cidrs: Vec<IpNet>,
    /// Certificate of the installation's authority, as PEM, with which the gateway opens TLS: every sandbox is told to trust it.
    /// Read again when it changes.
    #[arg(long, env = "GLOVEBOX_EGRESS_CA", value_name = "FILE")]
    pub egress_ca: Option<PathBuf>,
    /// Certificate of the session's key, as PEM, whose calls the agents of sandboxes take; several while a key is replaced. Read
    /// again when it changes. Without it no sandbox takes calls.
    #[arg(long, env = "GLOVEBOX_CALL_KEYS", value_name = "FILE")]
    pub call_keys: Option<PathBuf>,
    /// How many sandboxes are looked at at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,
}

/// Runs until SIGTERM or SIGINT, or until the Lease is lost.
///
/// # Errors
/// When it can't start, or must stop.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let client = kubernetes::client().await?;
    let files = Files::read(&options)?;
    let recorder = Recorder::start(&options.audit, &client)?;
    let metrics = Arc::new(Metrics::default());
    let health = Health::default();
    let stop = CancellationToken::new();
    telemetry::stop_on_signal(stop.clone())?;
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("can't listen on {}", options.listen))?;
    let (counted, said) = (metrics.clone(), recorder.clone());
    let server = tokio::spawn(http::serve(
        listener,
        health.clone(),
        move || said.measured(counted.render()),
        Router::new(),
        stop.clone(),
    ));
    let identity = options
        .pod_name
        .clone()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| format!("glovebox-{}", std::process::id()));
    let mut leadership = Leadership::seek(client.clone(), &options.namespace, &options.lease_name, &identity)
        .await
        .with_context(|| format!("can't use the Lease {}/{}", options.namespace, options.lease_name))?;
    let followed = files.clone().follow(&options);
    // A replica that waits for its turn is ready: it can take over.
    health.ready(true);
    let ended = tokio::select! {
        held = leadership.held() => match held {
            Ok(()) => lead(&options, client, identity, (files, recorder.clone()), &metrics, &mut leadership, &stop).await,
            Err(error) => Err(error),
        },
        () = stop.cancelled() => Ok(()),
        () = followed => Ok(()),
        ended = server => match ended {
            Ok(Err(error)) => Err(error).with_context(|| format!("can't serve on {}", options.listen)),
            _ => Ok(()),
        },
    };
    health.ready(false);
    leadership.release().await;
    recorder.finish().await;
    ended
}

async fn lead(
    options: &Options,
    client: Client,
    identity: String,
    (files, recorder): (Files, Recorder),
    metrics: &Arc<Metrics>,
    leadership: &mut Leadership,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    tracing::info!(identity, "leading");
    metrics.leads(true);
    let (stores, writers) = Stores::new();
    let settings = Settings {
        agent_image: options.agent_image.clone(),
        namespace: options.namespace.clone(),
        api_server: api_server(),
        gateway_account: options.gateway_account.clone(),
    };
    let cluster = ClusterRanges::new(options.cluster_cidrs.iter().copied());
    let mut context = Context::new(client, stores, settings, cluster, metrics.clone(), Some(identity));
    context.authority = files.authority;
    context.call_keys = files.call_keys;
    context.idle = Idle::asking();
    context.recorder = recorder;
    let context = Arc::new(context);
    let controllers = controllers(&context, writers, options.concurrency, stop);
    tokio::pin!(controllers);
    let ended = tokio::select! {
        () = &mut controllers => if stop.is_cancelled() { Ok(()) } else { bail!("a watch ended for good") },
        () = leadership.lost() => bail!("the Lease was lost to another replica"),
        () = stop.cancelled() => Ok(()),
    };
    if ended.is_ok() && tokio::time::timeout(DRAIN, controllers).await.is_err() {
        tracing::warn!(?DRAIN, "stopped with reconciles under way");
    }
    metrics.leads(false);
    ended
}

/// Where this pod finds the API server, which is where a sandbox would look for it, too.
fn api_server() -> Option<SocketAddr> {
    let host: IpAddr = std::env::var("KUBERNETES_SERVICE_HOST").ok()?.parse().ok()?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").ok()?.parse().ok()?;
    Some(SocketAddr::new(host, port))
}

/// Both controllers and every watch, until `stop`.
async fn controllers(context: &Arc<Context>, writers: Writers, concurrency: u16, stop: &CancellationToken) {
    // Classes have a controller of their own; this second trigger wakes the sandboxes.
    let (class_sender, class_events) = futures::channel::mpsc::unbounded();
    let Writers {
        sandboxes,
        classes,
        pods,
        policies,
        egress_policies,
        approvals,
        roles,
        role_bindings,
        quotas,
        priority_classes,
        runtime_classes,
        nodes,
        namespaces,
        services,
    } = writers;
    let around = Around {
        pods,
        policies,
        egress_policies,
        approvals,
        roles,
        role_bindings,
        quotas,
        priority_classes,
        runtime_classes,
        namespaces,
        services,
    };
    let (wake, woken) = futures::channel::mpsc::unbounded();
    let events = (class_events, woken);
    let of_sandboxes = sandbox_controller(context, sandboxes, around, events, concurrency, stop);
    let of_classes = class_controller(context, classes, nodes, class_sender, stop);
    let suspects = suspects::follow(context.clone(), wake, stop.clone());
    futures::join!(of_sandboxes.boxed(), of_classes.boxed(), named_services(context, stop), suspects.boxed());
}

/// What is watched around sandboxes.
struct Around {
    pods: Writer<Guarded<Pod>>,
    policies: Writer<Guarded<NetworkPolicy>>,
    egress_policies: Writer<Guarded<EgressPolicy>>,
    approvals: Writer<Guarded<EgressApproval>>,
    roles: Writer<Guarded<Role>>,
    role_bindings: Writer<Guarded<RoleBinding>>,
    quotas: Writer<Guarded<ResourceQuota>>,
    priority_classes: Writer<Guarded<PriorityClass>>,
    runtime_classes: Writer<Guarded<RuntimeClass>>,
    namespaces: Writer<Guarded<Namespace>>,
    services: Writer<Guarded<Service>>,
}

fn sandbox_controller(
    context: &Arc<Context>,
    sandboxes: Writer<Guarded<AgentSandbox>>,
    around: Around,
    (classes, woken): (UnboundedReceiver<Guarded<SandboxClass>>, UnboundedReceiver<Woken>),
    concurrency: u16,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let all = Concerned::new(context.stores.clone());
    let concerned = || all.clone();
    let (by_policy, by_quota, by_runtime) = (concerned(), concerned(), concerned());
    let (by_priority, by_namespace, by_class) = (concerned(), concerned(), concerned());
    let (by_rules, by_service, told) = (concerned(), concerned(), context.clone());
    let main = watches::stream::<AgentSandbox>(context, kubernetes::all(), sandboxes);
    Controller::for_stream(main, context.stores.sandboxes.clone())
        .with_config(controller::Config::default().concurrency(concurrency))
        .watches_stream(watches::stream(context, kubernetes::pods(), around.pods), |pod| Concerned::pod(&pod))
        .watches_stream(watches::stream(context, kubernetes::all(), around.policies), move |policy| {
            by_policy.policy(&policy)
        })
        .watches_stream(watches::stream(context, kubernetes::all(), around.egress_policies), move |policy| {
            changes::policy(&told, &policy);
            by_rules.egress_policy(&policy)
        })
        .watches_stream(watches::stream(context, kubernetes::all(), around.approvals), |approval| {
            Concerned::approval(&approval)
        })
        .watches_stream(watches::stream(context, watches::ours(), around.roles), |role| Concerned::pod(&role))
        .watches_stream(watches::stream(context, watches::ours(), around.role_bindings), |binding| {
            Concerned::pod(&binding)
        })
        .watches_stream(watches::stream(context, watches::ours(), around.quotas), move |quota| {
            by_quota.quota(&quota)
        })
        .watches_stream(watches::stream(context, watches::ours(), around.priority_classes), move |_| {
            by_priority.any()
        })
        .watches_stream(watches::stream(context, kubernetes::all(), around.runtime_classes), move |_| {
            by_runtime.any()
        })
        .watches_stream(watches::stream(context, kubernetes::all(), around.namespaces), move |namespace| {
            by_namespace.namespace(&namespace.name_any())
        })
        .watches_stream(watches::services(context, around.services), move |service| {
            by_service.service(&service.name_any())
        })
        .reconcile_on(woken)
        .reconcile_on(classes.flat_map(move |class| futures::stream::iter(by_class.class(&class))))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            reconcile_now,
            |sandbox, error, context| {
                controller::Action::requeue(reconcile::failed(&sandbox, error, &context))
            },
            context.clone(),
        )
        .for_each(|_| async {})
}

fn class_controller(
    context: &Arc<Context>,
    classes: Writer<Guarded<SandboxClass>>,
    nodes: Writer<Guarded<Node>>,
    also: UnboundedSender<Guarded<SandboxClass>>,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let told = context.clone();
    let main = watches::stream::<SandboxClass>(context, kubernetes::all(), classes).inspect(move |class| {
        if let Ok(class) = class {
            changes::class(&told, class);
            // The receiver lives as long as the controllers: there is nobody to tell after that.
            let _ = also.unbounded_send(class.clone());
        }
    });
    let nodes = watches::stream::<Node>(context, kubernetes::all(), nodes);
    Controller::for_stream(main, context.stores.classes.clone())
        .with_config(controller::Config::default().concurrency(1).debounce(Duration::from_millis(200)))
        .reconcile_all_on(nodes.filter_map(|node| async move { node.ok().map(|_| ()) }))
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            class_now,
            |class, error, context| controller::Action::requeue(class::failed(&class, error, &context)),
            context.clone(),
        )
        .for_each(|_| async {})
}

/// One pass over the Services of hosts after the other.
async fn named_services(context: &Context, stop: &CancellationToken) {
    tokio::select! {
        () = context.stores.ready() => {}
        () = stop.cancelled() => return,
    }
    while !stop.is_cancelled() {
        let done = named::reconcile(context, Timestamp::now()).await;
        // After a failure others need not wait for as long as it does, and yet not hurry.
        let least = if done.is_ok() { Duration::ZERO } else { AFTER_FAILURE };
        let wait = done.unwrap_or_else(|error| named::failed(&error, context));
        let woken = async {
            tokio::time::sleep(least.min(wait)).await;
            context.named.woken().await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = woken => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Measures a reconcile and gives it the time. No reconcile runs before every store was filled.
async fn reconcile_now(
    sandbox: Arc<Guarded<AgentSandbox>>,
    context: Arc<Context>,
) -> Result<controller::Action, super::ApplyError> {
    context.stores.ready().await;
    let started = std::time::Instant::now();
    let done = Box::pin(reconcile::reconcile(sandbox, context.clone(), Timestamp::now())).await;
    context.metrics.reconciled(started.elapsed());
    done.map(controller::Action::requeue)
}

async fn class_now(
    class: Arc<Guarded<SandboxClass>>,
    context: Arc<Context>,
) -> Result<controller::Action, super::ApplyError> {
    context.stores.ready().await;
    class::reconcile(class, context, Timestamp::now()).await.map(controller::Action::requeue)
}
