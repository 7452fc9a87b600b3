//! A policy of ten thousand hosts: to compile, to decide by, and beside one of ten.

use std::{hint::black_box, time::Instant};

use anyhow::{Result, ensure};
use glovebox::policy::{Ask, Destination, Policy, Wire};
use jiff::Timestamp;
use serde_json::json;

use crate::{Row, gateway::compile, median};

/// Milliseconds to compile ten thousand hosts.
const MOST_COMPILE: f64 = 250.0;
/// A decision among ten thousand rules, of one among ten. A lookup is the same; the caches of the machine are not.
const MOST_RATIO: f64 = 3.0;

fn rules(count: usize) -> serde_json::Value {
    let pattern = |at: usize| match at % 3 {
        0 => format!("r{at}.example.com"),
        1 => format!("*.r{at}.example.com"),
        _ => format!("**.r{at}.example.com"),
    };
    (0..count).map(|at| json!({"name": format!("r{at}"), "hosts": [pattern(at)]})).collect()
}

/// Nanoseconds a decision, half of which are denials.
fn decide(policy: &Policy, count: usize, turns: usize) -> Result<f64> {
    let there = |at: usize| match at % 3 {
        0 => format!("r{at}.example.com"),
        _ => format!("a.r{at}.example.com"),
    };
    // Two of each: one that a rule names, and one that none does.
    let names = (0..64).flat_map(|at| [there(at * count / 64), format!("b{at}.r.example.org")]);
    let asked: Vec<_> = names.filter_map(|name| Destination::parse(name.as_bytes()).ok()).collect();
    let now = Timestamp::now();
    let started = Instant::now();
    let mut allowed = 0_usize;
    for _ in 0..turns {
        for destination in &asked {
            let ask = Ask { destination, port: 443, wire: Wire::Tls, now };
            allowed += usize::from(black_box(policy).decide(&ask).allowed().is_some());
        }
    }
    let took = started.elapsed().as_nanos() as f64 / (turns * asked.len()) as f64;
    ensure!(allowed == turns * 64, "{allowed} of {} were allowed", turns * asked.len());
    Ok(took)
}

pub(crate) fn run(quick: bool) -> Result<Vec<Row>> {
    let (turns, rounds) = if quick { (20, 3) } else { (500, 9) };
    let long = rules(10_000);
    let (mut few, mut many, mut compiled) = (Vec::new(), Vec::new(), Vec::new());
    let (small, large) = (compile(rules(10))?, compile(long.clone())?);
    for _ in 0..rounds {
        few.push(decide(&small, 10, turns)?);
        many.push(decide(&large, 10_000, turns)?);
        let (again, started) = (long.clone(), Instant::now());
        black_box(compile(again)?);
        compiled.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let (few, many) = (median(&mut few), median(&mut many));
    Ok(vec![
        Row::bound("10000 rules read and compiled", median(&mut compiled), "ms", MOST_COMPILE),
        Row::shown("a decision among 10 rules", few, "ns"),
        Row::shown("a decision among 10000 rules", many, "ns"),
        Row::bound("a decision among 10000 rules / among 10", many / few, "", MOST_RATIO),
    ])
}
