//! What was measured, what it is held to, and what the session's processes used meanwhile.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use crate::{recorded::Recorded, usage::Usage};

/// Most that the median call may take above the process's own start: the design's bound.
const ABOVE: Duration = Duration::from_millis(5);
/// How many times lower than the API server's the median must be: the design's bound.
const LOWER: f64 = 5.0;
/// How much more CPU a call may take the session if it is on the record.
const RECORDED: f64 = 1.10;

/// All measurements.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) start: Vec<Duration>,
    pub(super) session: Vec<Duration>,
    pub(super) api_server: Vec<Duration>,
    pub(super) used: Usage,
    pub(super) recorded: Recorded,
}

impl Rows {
    /// Prints them, and fails past a bound.
    pub(super) fn report(mut self) -> Result<()> {
        println!("{:<32} {:>8} {:>8} {:>8} {:>6}", "true in a warm sandbox, ms", "p50", "p90", "max", "n");
        let rows = [
            ("a process's own start", &mut self.start),
            ("through the session", &mut self.session),
            ("through the API server's exec", &mut self.api_server),
        ];
        let mut lines = Vec::new();
        let medians = rows.map(|(name, row)| {
            row.sort_unstable();
            let at = |percent: usize| row.get(row.len().saturating_sub(1) * percent / 100).copied();
            let [p50, p90, max] = [50, 90, 100].map(|percent| ms(at(percent).unwrap_or_default()));
            println!("{name:<32} {p50:>8.2} {p90:>8.2} {max:>8.2} {:>6}", row.len());
            lines.push(json!({"bench": "exec", "row": name, "p50_ms": p50, "p90_ms": p90, "max_ms": max, "n": row.len()}));
            p50
        });
        let [start, session, api_server] = medians;
        let (above, lower) = (session - start, api_server / session);
        println!("{:<32} {above:>8.2}   bound {}", "above the start", ms(ABOVE));
        println!("{:<32} {lower:>8.2}   bound {LOWER}", "lower than the API server, times");
        let Usage { cpu, resident, processes } = self.used;
        let found = processes > 0;
        let each = ms(cpu) / f64::from(u32::try_from(self.session.len())?);
        if found {
            println!(
                "{:<32} {each:>8.2}   resident {} MiB, all replicas",
                "session CPU ms a call",
                resident >> 20
            );
        } else {
            println!(
                "the session's processes are not on this machine: their CPU and memory were not measured"
            );
        }
        lines.push(json!({
            "bench": "exec", "row": "bounds", "above_start_ms": above, "above_start_bound_ms": ms(ABOVE), "times_lower": lower,
            "times_lower_bound": LOWER, "cpu_ms_per_call": found.then_some(each), "resident_bytes": found.then_some(resident),
        }));
        let recorded = self.recorded.report();
        lines.push(json!({"bench": "exec", "row": "recorded", "cpu_ratio": recorded, "bound": RECORDED}));
        for line in lines {
            println!("{line}");
        }
        if above > ms(ABOVE) {
            bail!("a call takes {above:.2} ms above the process's own start, the bound is {} ms", ms(ABOVE));
        }
        if let Some(ratio) = recorded.filter(|ratio| *ratio > RECORDED) {
            bail!(
                "a recorded call takes {ratio:.2} times the CPU of one that is not, the bound is {RECORDED}"
            );
        }
        if lower < LOWER {
            bail!("a call is {lower:.2} times faster than through the API server, the bound is {LOWER}");
        }
        Ok(())
    }
}

impl Recorded {
    /// The CPU of a recorded call to that of one that is not, of the turn in the middle each.
    fn report(&self) -> Option<f64> {
        let middle = |turns: &[Duration]| {
            let mut sorted = turns.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied()
        };
        let (Some(on), Some(off)) = (middle(&self.on), middle(&self.off)) else {
            println!(
                "the record's cost was not measured: the session records nothing, or is not on this machine"
            );
            return None;
        };
        let ratio = on.as_secs_f64() / off.as_secs_f64();
        println!(
            "{:<32} {:>8.3} {:>8.3}   of {:?} and {:?}",
            "CPU ms recorded, not recorded",
            ms(on),
            ms(off),
            self.on,
            self.off
        );
        println!("{:<32} {ratio:>8.2}   bound {RECORDED}", "recorded to not, times");
        Some(ratio)
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
