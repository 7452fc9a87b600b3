//! The Events of a sandbox: what was refused to it, and what else happened.

use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, api::ListParams};
use serde::Serialize;

use super::cluster::{Cluster, explained};

/// What the gateway says of a connection that it refused.
const REFUSED: &str = "EgressRefused";

/// One Event, folded as the API server keeps it.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    /// In one word.
    pub(super) reason: String,
    /// In more.
    pub(super) message: String,
    /// Who says so.
    pub(super) source: String,
    /// How often.
    pub(super) count: i64,
    /// Last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<Time>,
}

impl Told {
    pub(super) fn is_refusal(&self) -> bool {
        self.reason == REFUSED
    }

    fn of(event: Event) -> Self {
        let series = event.series.as_ref();
        let source = event.reporting_component.filter(|name| !name.is_empty());
        let folded = series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
        let last = folded
            .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
            .or_else(|| event.event_time.as_ref().map(|time| time.0))
            .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
            .map(Time);
        Self {
            reason: event.reason.unwrap_or_default(),
            message: event.message.unwrap_or_default(),
            source: source.or_else(|| event.source.and_then(|source| source.component)).unwrap_or_default(),
            count: series.and_then(|series| series.count).or(event.count).unwrap_or(1).into(),
            last,
        }
    }
}

/// All of a sandbox, the latest first.
pub(super) async fn of(cluster: &Cluster, uid: &str) -> anyhow::Result<Vec<Told>> {
    let events: Api<Event> = cluster.here();
    let wanted = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let found = events.list(&wanted).await.map_err(|error| explained(error, "events"))?;
    let mut all: Vec<Told> = found.items.into_iter().map(Told::of).collect();
    all.sort_by_key(|told| std::cmp::Reverse(told.last.as_ref().map(|time| time.0)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_either_api_are_read() {
        let event = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "involvedObject": {},
            "reason": "EgressRefused", "message": "evil.example was not reached", "reportingComponent": "glovebox-gateway",
            "eventTime": "2026-01-01T00:00:01.000000Z", "series": {"count": 4, "lastObservedTime": "2026-01-01T00:00:09.000000Z"},
        });
        let told = Told::of(serde_json::from_value(event).unwrap());
        assert!(told.is_refusal() && told.count == 4 && told.source == "glovebox-gateway");
        assert_eq!(told.last, Some(Time("2026-01-01T00:00:09Z".parse().unwrap())));
        let event = json!({"metadata": {}, "involvedObject": {}, "source": {"component": "kubelet"}, "count": 2, "lastTimestamp": "2026-01-01T00:00:05Z"});
        let told = Told::of(serde_json::from_value(event).unwrap());
        assert_eq!((told.source.as_str(), told.count, told.is_refusal()), ("kubelet", 2, false));
    }
}
