//! What the parts of this module do together, held against specifications that are written the simple way.

mod compile;
mod decide;
mod denied;
mod http_path;
mod many;
mod pattern;

use super::{ClusterRanges, Host, Policy, Rejection, Source};
use crate::api::{ClassEgress, EgressRule};

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

fn cluster() -> ClusterRanges {
    ClusterRanges::new(
        ["10.244.0.0/16", "10.96.0.0/16", "198.51.100.10/32"].map(|range| range.parse().unwrap()),
    )
}

/// A rule from the YAML that a user writes.
fn rule(yaml: &str) -> EgressRule {
    let text = if yaml.contains("name:") { yaml.to_owned() } else { format!("name: r, {yaml}") };
    serde_saphyr::from_str(&format!("{{{text}}}")).unwrap()
}

fn class(yaml: &str) -> ClassEgress {
    serde_saphyr::from_str(&format!("{{{yaml}}}")).unwrap()
}

fn compile(rules: &[EgressRule], class: &ClassEgress) -> Result<Policy, Rejection> {
    Policy::compile(&[Source { policy: None, rules }], class, &cluster())
}

/// A policy of these rules, in a class without bounds.
fn policy(rules: &[&str]) -> Policy {
    let rules: Vec<_> = rules.iter().map(|yaml| rule(yaml)).collect();
    compile(&rules, &ClassEgress::default()).unwrap()
}
