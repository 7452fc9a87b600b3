//! Which pods are replicas of gateway and session, and where each is asked what it knows of sandboxes.

use std::net::{IpAddr, SocketAddr};

use k8s_openapi::api::core::v1::Pod;

use crate::sandbox::names::{MANAGER, ports};

/// The labels of all of them.
pub(super) fn selector() -> String {
    format!("app.kubernetes.io/name={MANAGER},app.kubernetes.io/component in (gateway, session)")
}

/// Where one that runs is asked.
pub(super) fn address(pod: &Pod) -> Option<SocketAddr> {
    let status = pod.status.as_ref()?;
    let address: IpAddr = status.pod_ip.as_deref()?.parse().ok()?;
    (status.phase.as_deref() == Some("Running")).then_some(SocketAddr::new(address, ports::ADMIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_run_are_asked() {
        let pod = |phase: &str, ip: Option<&str>| -> Pod {
            serde_json::from_value(serde_json::json!({"status": {"phase": phase, "podIP": ip}})).unwrap()
        };
        assert_eq!(address(&pod("Running", Some("10.244.0.7"))), Some("10.244.0.7:9090".parse().unwrap()));
        assert!(
            address(&pod("Pending", Some("10.244.0.7"))).is_none()
                && address(&pod("Running", None)).is_none()
        );
    }
}
