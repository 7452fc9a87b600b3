//! `top`: what sandboxes use of CPU and memory now, beside what they may, as the cluster's metrics API says it.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::api::resource::Quantity as ApiQuantity};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    cluster::{Cluster, explained},
    fault::{Fault, Outcome},
    options::{ClusterOptions, Format},
    print,
    progress::say,
    text::{self, Cell},
};
use crate::{
    api::{AgentSandbox, Quantity},
    sandbox::names::{SANDBOX_LABEL, WORKLOAD_CONTAINER},
};

/// Shows how much CPU and memory sandboxes use, beside how much they may.
///
/// It is what the cluster's metrics API says, which a metrics-server brings; it may be a minute old.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox top
  glovebox top review-42 -o json
  glovebox top --all-namespaces

You need `list` on pods.metrics.k8s.io, and on agentsandboxes.")]
pub struct Options {
    /// Of this sandbox alone.
    name: Option<String>,
    /// Of every namespace.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    all_namespaces: bool,
    /// How it is shown.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// What one uses.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Use {
    namespace: String,
    name: String,
    /// Thousandths of a core; none if the metrics API does not know it yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    /// The most that it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit: Option<String>,
}

/// Carries it out.
pub(super) async fn top(options: Options) -> Outcome {
    if matches!(options.output, Format::Wide | Format::Name) {
        return Err(Fault::usage("top has no such output; use -o table, json or yaml"));
    }
    let cluster = Cluster::open(&options.cluster).await?;
    let sandboxes: Api<AgentSandbox> =
        if options.all_namespaces { Api::all(cluster.client.clone()) } else { cluster.here() };
    let found = if let Some(name) = &options.name {
        vec![super::wait::by_name(&sandboxes, name).await?]
    } else {
        let all = sandboxes.list(&ListParams::default()).await;
        all.map_err(|error| explained(error, "sandboxes"))?.items
    };
    let running = found
        .into_iter()
        .filter(|sandbox| sandbox.status.as_ref().is_some_and(|status| status.pod_ip.is_some()));
    let known = metrics(&cluster, options.all_namespaces).await?;
    let limits = limits(&cluster, options.all_namespaces).await;
    let found: Vec<Use> = running.map(|sandbox| used_by(&sandbox, &known, &limits)).collect();
    match options.output {
        Format::Json => print::json(&found)?,
        Format::Yaml => print::yaml(&found)?,
        Format::Table | Format::Wide | Format::Name if found.is_empty() => say("no sandbox runs"),
        Format::Table | Format::Wide | Format::Name => {
            print::words(&table(&found, options.all_namespaces, print::colours()))?;
        }
    }
    Ok(0)
}

/// Namespace and name of a sandbox.
type Place = (String, String);

/// What a pod's metrics say: thousandths of a core, and bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    cpu_millis: Option<u64>,
    memory_bytes: Option<u64>,
}

/// What sandboxes use.
type Metrics = HashMap<Place, Used>;

async fn metrics(cluster: &Cluster, everywhere: bool) -> anyhow::Result<Metrics> {
    let kind = ApiResource {
        group: "metrics.k8s.io".into(),
        version: "v1beta1".into(),
        api_version: "metrics.k8s.io/v1beta1".into(),
        kind: "PodMetrics".into(),
        plural: "pods".into(),
    };
    let client = cluster.client.clone();
    let api: Api<DynamicObject> = if everywhere {
        Api::all_with(client, &kind)
    } else {
        Api::namespaced_with(client, &cluster.namespace, &kind)
    };
    let found =
        api.list(&ListParams::default().labels(SANDBOX_LABEL)).await.map_err(|error| match &error {
            kube::Error::Api(status) if matches!(status.code, 404 | 503) => {
                anyhow::anyhow!("this cluster has no metrics API that answers; a metrics-server brings it")
            }
            _ => explained(error, "metrics of pods"),
        })?;
    Ok(found.into_iter().filter_map(|pod| read(&pod)).collect())
}

/// The limits of sandboxes' workloads.
type Limits = HashMap<Place, BTreeMap<String, ApiQuantity>>;

/// What the pods may use; whoever may not see them is shown what is used alone.
async fn limits(cluster: &Cluster, everywhere: bool) -> Limits {
    let api: Api<Pod> = if everywhere { Api::all(cluster.client.clone()) } else { cluster.here() };
    let found = api.list(&ListParams::default().labels(SANDBOX_LABEL)).await;
    found.into_iter().flatten().filter_map(|pod| limited(&pod)).collect()
}

fn limited(pod: &Pod) -> Option<(Place, BTreeMap<String, ApiQuantity>)> {
    let name = pod.labels().get(SANDBOX_LABEL)?.clone();
    let workload =
        pod.spec.as_ref()?.containers.iter().find(|container| container.name == WORKLOAD_CONTAINER)?;
    Some(((pod.namespace()?, name), workload.resources.as_ref()?.limits.clone()?))
}

fn read(pod: &DynamicObject) -> Option<(Place, Used)> {
    let name = pod.labels().get(SANDBOX_LABEL)?.clone();
    let containers = pod.data["containers"].as_array()?;
    let usage = &containers.iter().find(|container| container["name"] == WORKLOAD_CONTAINER)?["usage"];
    let used =
        Used { cpu_millis: usage["cpu"].as_str().and_then(millis), memory_bytes: bytes(&usage["memory"]) };
    Some(((pod.namespace()?, name), used))
}

/// Thousandths of a core: metrics come in billionths, which no limit has.
fn millis(text: &str) -> Option<u64> {
    let parts = |suffix: &str, each: u64| -> Option<u64> {
        Some(text.strip_suffix(suffix)?.parse::<u64>().ok()?.div_ceil(each))
    };
    let cores =
        || Some((text.parse::<f64>().ok().filter(|cores| *cores >= 0.0 && *cores < 1e6)? * 1000.0).ceil());
    parts("n", 1_000_000).or_else(|| parts("u", 1000)).or_else(|| parts("m", 1)).or_else(|| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded above")]
        cores().map(|millis| millis as u64)
    })
}

fn bytes(quantity: &Value) -> Option<u64> {
    Quantity::new(quantity.as_str()?).units().ok()
}

fn used_by(sandbox: &AgentSandbox, all: &Metrics, limits: &Limits) -> Use {
    let place = (sandbox.namespace().unwrap_or_default(), sandbox.name_any());
    let Used { cpu_millis, memory_bytes } = all.get(&place).copied().unwrap_or_default();
    let limit = |what: &str| limits.get(&place)?.get(what).map(|most| most.0.clone());
    let (cpu_limit, memory_limit) = (limit("cpu"), limit("memory"));
    let (namespace, name) = place;
    Use { namespace, name, cpu_millis, memory_bytes, cpu_limit, memory_limit }
}

fn table(uses: &[Use], namespaces: bool, colours: text::Colours) -> String {
    let mut heads = vec!["NAME", "CPU", "OF", "MEMORY", "OF"];
    if namespaces {
        heads.insert(0, "NAMESPACE");
    }
    let rows: Vec<Vec<Cell>> = uses
        .iter()
        .map(|one| {
            let mut row: Vec<Cell> = vec![
                one.name.clone().into(),
                one.cpu_millis.map(|millis| format!("{millis}m")).unwrap_or_default().into(),
                one.cpu_limit.clone().unwrap_or_default().into(),
                one.memory_bytes
                    .map(|bytes| format!("{}Mi", bytes.div_ceil(1 << 20)))
                    .unwrap_or_default()
                    .into(),
                one.memory_limit.clone().unwrap_or_default().into(),
            ];
            if namespaces {
                row.insert(0, one.namespace.clone().into());
            }
            row
        })
        .collect();
    text::table(&heads, &rows, colours)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_metrics_api_says_is_read() {
        for (text, want) in [
            ("1234567n", Some(2)),
            ("0", Some(0)),
            ("250m", Some(250)),
            ("2", Some(2000)),
            ("15u", Some(1)),
            ("x", None),
            ("-1", None),
        ] {
            assert_eq!(millis(text), want, "{text}");
        }
        let pod = |containers: Value| -> DynamicObject {
            serde_json::from_value(json!({
                "apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
                "metadata": {"name": "p", "namespace": "n", "labels": {SANDBOX_LABEL: "a"}}, "containers": containers,
            }))
            .unwrap()
        };
        let workload = json!([{"name": "other", "usage": {"cpu": "9", "memory": "9Gi"}}, {"name": "workload", "usage": {"cpu": "5m", "memory": "1500Ki"}}]);
        assert_eq!(
            read(&pod(workload)),
            Some((("n".into(), "a".into()), Used { cpu_millis: Some(5), memory_bytes: Some(1_536_000) }))
        );
        assert_eq!(read(&pod(json!([]))), None);
    }

    #[test]
    fn rows_say_how_much_of_how_much() {
        let sandbox: AgentSandbox = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"image": "i"},
        }))
        .unwrap();
        let all = HashMap::from([(
            ("n".to_owned(), "a".to_owned()),
            Used { cpu_millis: Some(5), memory_bytes: Some(1 << 20) },
        )]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {SANDBOX_LABEL: "a"}},
            "spec": {"containers": [{"name": "workload", "resources": {"limits": {"cpu": "500m"}}}]},
        }))
        .unwrap();
        let limits = HashMap::from([limited(&pod).unwrap()]);
        let rows = [used_by(&sandbox, &all, &limits), used_by(&sandbox, &HashMap::new(), &HashMap::new())];
        let shown = table(&rows, true, text::Colours(false));
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["n", "a", "5m", "500m", "1Mi", "-"]);
        assert_eq!(rows[2], ["n", "a", "-", "-", "-", "-"]);
    }
}
