//! Cables and routes between the world and the nodes, by iproute2. Everything is in namespaces of the cluster's own:
//! the world has no cable that leads out of it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::plan::{Node, WORLD, WORLD_DNS, WORLD_LOCAL, WORLD_WEB};
use super::reaper::Reaper;

/// Gives the world its addresses and makes it a router. To be called in the world.
pub(super) fn world(reaper: &Reaper) -> Result<()> {
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("the world cannot be made a router")?;
    let addresses = [WORLD, WORLD_DNS, WORLD_WEB].map(|address| format!("addr add {address}/32 dev lo"));
    let networks = WORLD_LOCAL.map(|network| format!("route add local {network} dev lo"));
    let mut lines = vec!["link set lo up".to_owned()];
    lines.extend(addresses);
    lines.extend(networks);
    ip(reaper, &lines)
}

/// Lays a cable from the world to the network namespace of a process. To be called in the world.
pub(super) fn lay_cable(reaper: &Reaper, node: Node, pid: u32) -> Result<()> {
    let cable = node.cable();
    ip(reaper, &[format!("link add {cable} type veth peer name eth0 netns {pid}")])?;
    plug(reaper, node)
}

/// Takes the world's end of the cable up, with the routes to the node and its pods. To be called in the world.
pub(super) fn plug(reaper: &Reaper, node: Node) -> Result<()> {
    let (cable, address, pods) = (node.cable(), node.address(), node.pods());
    ip(
        reaper,
        &[
            format!("link set {cable} up"),
            format!("route replace {address}/32 dev {cable} src {WORLD}"),
            format!("route replace {pods} via {address} dev {cable} onlink"),
        ],
    )
}

/// Takes the world's end of the cable down; the kernel drops its routes. To be called in the world.
pub(super) fn unplug(reaper: &Reaper, node: Node) -> Result<()> {
    ip(reaper, &[format!("link set {} down", node.cable())])
}

/// Takes a node's cable away. To be called in the world.
pub(super) fn take_cable(reaper: &Reaper, node: Node) -> Result<()> {
    ip(reaper, &[format!("link del {}", node.cable())])
}

/// Gives a node its address and the way to everything else. To be called on the node.
pub(super) fn node(reaper: &Reaper, node: Node) -> Result<()> {
    ip(
        reaper,
        &[
            "link set lo up".to_owned(),
            "link set eth0 up".to_owned(),
            format!("addr add {}/32 dev eth0", node.address()),
            format!("route add {WORLD}/32 dev eth0 scope link"),
            format!("route add default via {WORLD} dev eth0"),
        ],
    )
}

fn ip(reaper: &Reaper, lines: &[String]) -> Result<()> {
    reaper.run(Command::new("ip").args(["-batch", "-"]), &(lines.join("\n") + "\n"))
}
