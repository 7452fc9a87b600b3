//! The gateway's Service: the chart writes the ports that the controller tells sandboxes and fences, and keeps a sandbox where
//! its limits are counted.

use glovebox::sandbox::names::ports::{self, Port};
use serde_json::{Value, json};

use super::{documents, file};

/// Of the chart, of which Helm changes nothing here.
const TEMPLATES: &str = "charts/glovebox/templates/gateway";

#[test]
fn the_chart_opens_the_ports_that_sandboxes_are_told() {
    let [service, deployment, policy] =
        ["service", "deployment", "networkpolicy"].map(|name| file(&format!("{TEMPLATES}/{name}.yaml")));
    let all = [
        ("dns", ports::DNS, "UDP"),
        ("dns-tcp", ports::DNS, "TCP"),
        ("proxy", ports::PROXY, "TCP"),
        ("tls", ports::TLS, "TCP"),
        ("http", ports::HTTP, "TCP"),
        ("tripwire", ports::TRIPWIRE, "TCP"),
    ];
    for (name, Port { service: outer, pod }, protocol) in all {
        for (text, line) in [
            (&service, format!("{{name: {name}, port: {outer}, targetPort: {name}")),
            (&deployment, format!("{{name: {name}, containerPort: {pod}")),
            (&policy, format!("{{port: {pod}, protocol: {protocol}")),
        ] {
            let ends = [",", "}"].map(|end| format!("{line}{end}"));
            assert!(ends.iter().any(|end| text.contains(end)), "{line}... is missing");
        }
    }
}

/// The agent's port, in the session's own policy; the fence and the pods have it from the same place as the session.
#[test]
fn the_chart_lets_the_session_reach_agents() {
    let policy = file("charts/glovebox/templates/session/networkpolicy.yaml");
    assert!(policy.contains(&format!("- {{port: {}, protocol: TCP}}", ports::CALLS)), "{policy}");
    assert!(!ports::NAMED.contains(&ports::CALLS));
}

/// Where replicas say when a sandbox was last used: the controller may ask, and gateway and session answer.
#[test]
fn the_chart_lets_the_controller_ask_when_a_sandbox_was_used() {
    for policy in ["networkpolicy.yaml", "gateway/networkpolicy.yaml", "session/networkpolicy.yaml"] {
        let text = file(&format!("charts/glovebox/templates/{policy}"));
        assert!(text.contains(&format!("- {{port: {}, protocol: TCP}}", ports::ADMIN)), "{policy}");
    }
}

/// The range of ports that stand for hosts, in the gateway's own policy; the fence has it from the same place as the controller.
#[test]
fn the_chart_opens_the_ports_that_stand_for_hosts() {
    let policy = file(&format!("{TEMPLATES}/networkpolicy.yaml"));
    let (first, last) = (ports::NAMED.start(), ports::NAMED.end());
    let line = format!("{{port: {first}, endPort: {last}, protocol: TCP}}");
    assert!(policy.contains(&line), "{line} is missing");
    let all = [ports::DNS, ports::PROXY, ports::TLS, ports::HTTP, ports::TRIPWIRE];
    assert!(all.iter().all(|port| !ports::NAMED.contains(&port.pod)));
    assert!(!ports::NAMED.contains(&9090), "metrics are not for sandboxes");
}

/// Whoever wants a sandbox's limits counted once says so by a value, and reads beside it what that costs.
#[test]
fn a_sandbox_can_be_kept_at_the_replica_that_counts_for_it() {
    let service = file(&format!("{TEMPLATES}/service.yaml"));
    let (data, metrics) = service.split_once("\n---\n").unwrap();
    assert!(data.contains("targetPort: proxy"), "the first Service is what sandboxes talk to");
    assert!(data.contains("  sessionAffinity: {{ .Values.gateway.sessionAffinity }}\n"));
    assert!(data.contains("      timeoutSeconds: 86400\n"));
    assert!(!metrics.contains("sessionAffinity"), "metrics are read of every replica");
    let schema: Value = serde_json::from_str(&file("charts/glovebox/values.schema.json")).unwrap();
    let allowed = &schema["properties"]["gateway"]["properties"]["sessionAffinity"]["enum"];
    assert_eq!(*allowed, json!(["None", "ClientIP"]));
    let [values] = &documents("values.yaml", &file("charts/glovebox/values.yaml"))[..] else {
        panic!("one document")
    };
    assert_eq!(values["gateway"]["sessionAffinity"], "None");
    assert!(
        file("docs/egress.md").contains("`gateway.sessionAffinity=ClientIP`"),
        "docs/egress.md tells of it"
    );
}
