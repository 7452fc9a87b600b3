//! What was measured, what of it is bound, and how both are said.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::json;

/// The most that a row, or its ratio to another of the same round, may be.
struct Bound {
    row: &'static str,
    against: Option<&'static str>,
    most: f64,
}

const fn ratio(row: &'static str, against: &'static str, most: f64) -> Bound {
    Bound { row, against: Some(against), most }
}

const fn at_most(row: &'static str, most: f64) -> Bound {
    Bound { row, against: None, most }
}

const BOUNDS: &[Bound] = &[
    ratio("gateway connect by turns", "relay connect by turns", 1.15),
    ratio("gateway sni by turns", "relay hello by turns", 1.25),
    ratio("gateway bulk by turns", "relay bulk by turns", 1.1),
    ratio("gateway denied", "gateway connect", 1.0),
    ratio("gateway connect by turns", "squid connect by turns", 0.6),
    at_most("gateway idle", 20.0),
    at_most("gateway dns allowed", 8.0),
    at_most("gateway dns denied", 8.0),
    at_most("gateway revoke", 1000.0),
    at_most("gateway swap p99 shift", 1.0),
];

/// One value a round of each row.
#[derive(Default)]
pub(crate) struct Rows(BTreeMap<String, Vec<f64>>);

impl Rows {
    pub(crate) fn add(&mut self, proxy: &str, row: &str, value: f64) {
        self.push(format!("{proxy} {row}"), value);
    }

    /// Of a row by its whole name.
    pub(crate) fn push(&mut self, row: String, value: f64) {
        self.0.entry(row).or_default().push(value);
    }

    /// The mean of each row, as the value of one round.
    pub(crate) fn means(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(row, values)| (row.as_str(), values.iter().sum::<f64>() / values.len() as f64))
    }

    /// The values of a row, or round by round how many times those of another they are.
    fn values(&self, bound: &Bound) -> Option<Vec<f64>> {
        let values = self.0.get(bound.row)?;
        let Some(against) = bound.against else { return Some(values.clone()) };
        Some(values.iter().zip(self.0.get(against)?).map(|(value, other)| value / other).collect())
    }

    /// Prints a table, then a JSON line for each row and bound. An error names the bounds that do not hold; what was not
    /// measured does not, unless it is of a proxy that may be missing.
    pub(crate) fn report(&self, may_be_missing: &[&str]) -> Result<()> {
        println!("{:<28} {:>10} {:>10} {:>10}", "", "median", "least", "most");
        for (row, values) in &self.0 {
            let Spread { median, least, most } = Spread::of(values);
            println!("{row:<28} {median:>10.2} {least:>10.2} {most:>10.2}  {}", unit(row));
        }
        println!("\n{:<40} {:>10} {:>10} {:>10} {:>10}", "bound", "at most", "median", "least", "most");
        let mut broken = Vec::new();
        let mut lines = Vec::new();
        for (row, values) in &self.0 {
            let Spread { median, least, most } = Spread::of(values);
            lines.push(json!({
                "bench": "egress", "row": row, "unit": unit(row), "median": median, "least": least, "most": most,
                "rounds": values,
            }));
        }
        for bound in BOUNDS {
            let name =
                bound.against.map_or_else(|| bound.row.into(), |other| format!("{} / {other}", bound.row));
            let Some(values) = self.values(bound) else {
                println!("{name:<40} {:>10.2} not measured", bound.most);
                lines.push(json!({"bench": "egress", "bound": name, "at_most": bound.most, "holds": null}));
                let missing = |proxy: &&str| bound.against.is_some_and(|other| other.starts_with(proxy));
                if !may_be_missing.iter().any(missing) {
                    broken.push(format!("{name} was not measured"));
                }
                continue;
            };
            let Spread { median, least, most } = Spread::of(&values);
            let holds = median <= bound.most;
            let word = if holds { "" } else { "  OVER" };
            println!("{name:<40} {:>10.2} {median:>10.2} {least:>10.2} {most:>10.2}{word}", bound.most);
            lines.push(json!({
                "bench": "egress", "bound": name, "at_most": bound.most, "median": median, "least": least,
                "most": most, "holds": holds,
            }));
            if !holds {
                broken.push(format!("{name} is {median:.2}, over its bound of {}", bound.most));
            }
        }
        println!();
        for line in lines {
            println!("{line}");
        }
        if broken.is_empty() { Ok(()) } else { bail!(broken.join("; ")) }
    }
}

struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Self { median, least: sorted[0], most: sorted[last] }
    }
}

fn unit(row: &str) -> &'static str {
    match row.split_once(' ').map_or("", |(_, what)| what.trim_end_matches(" by turns")) {
        "connect p50" | "connect p99" => "us that a client waits",
        "bulk" => "CPU s a GB",
        "idle" => "KiB a tunnel",
        "revoke" => "ms until all tunnels are closed",
        "swap p99 shift" | "swap p99 shift, the worst turn" => "ms later, the slowest of 100",
        "dns allowed" | "dns denied" | "udp" => "CPU us a query",
        _ => "CPU us a connection",
    }
}
