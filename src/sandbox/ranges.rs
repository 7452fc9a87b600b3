//! The cluster's own addresses: what the installation names, and what the nodes say of themselves and their pods.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use crate::policy::ClusterRanges;

/// All of them.
pub(crate) fn cluster<'a>(fixed: &ClusterRanges, nodes: impl IntoIterator<Item = &'a Node>) -> ClusterRanges {
    let of_nodes = nodes.into_iter().flat_map(|node| pods(node).chain(addresses(node)));
    ClusterRanges::new(fixed.ranges().iter().copied().chain(of_nodes))
}

fn pods(node: &Node) -> impl Iterator<Item = IpNet> {
    let spec = node.spec.as_ref();
    let many = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
    many.chain(spec.and_then(|spec| spec.pod_cidr.as_ref())).filter_map(|range| range.parse().ok())
}

fn addresses(node: &Node) -> impl Iterator<Item = IpNet> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    addresses.filter_map(|address| address.address.parse::<IpAddr>().ok().map(IpNet::from))
}
