//! What the gateway costs beside a plain relay and other proxies, in the same run: CPU a connection, a gigabyte, a query; memory a
//! tunnel; time to revoke. Run by `cargo xtask bench egress`, or by `cargo bench --bench egress` with these flags after `--`:
//!
//! - `--quick`: a short run, for a look; too short for figures to be held to
//! - `--without-others`: squid and haproxy may be missing; what is bound against them is not measured, and that is no failure
//!
//! Rounds are interleaved, so that a noisy machine is noisy for all. Proxies run on one core, load and servers on another, and
//! what counts is the proxies' CPU time, user and system. Prints a table, then JSON lines, and fails when a bound does not hold.

#![expect(clippy::cast_precision_loss, reason = "what is measured is far from 2^52")]

#[path = "common/gateway.rs"]
mod common;
#[path = "common/cpu.rs"]
mod cpu;
#[path = "common/ended.rs"]
mod ended;
#[path = "egress/load.rs"]
mod load;
#[path = "egress/measure.rs"]
mod measure;
#[path = "egress/others.rs"]
mod others;
#[path = "common/process.rs"]
mod process;
#[path = "egress/relay.rs"]
mod relay;
#[path = "egress/report.rs"]
mod report;
#[path = "egress/roles.rs"]
mod roles;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use measure::{FILES, Proxy, Sizes, TURNS};
use others::Other;
use process::raise_files;
use report::Rows;

/// As in the program that ships; the relay that is the reference has it, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["role", role @ ..] => roles::play(role),
        _ => run(words.contains(&"--quick"), words.contains(&"--without-others")),
    };
    ended::ended(done)
}

fn run(quick: bool, without_others: bool) -> Result<()> {
    let files = raise_files(FILES);
    let sizes = if quick { Sizes::QUICK } else { Sizes::FULL }.fitting(files);
    let (others, absent): (Vec<_>, Vec<_>) =
        [Other::Squid, Other::Haproxy].into_iter().partition(|other| other.program().is_some());
    for other in &absent {
        println!("{}: not installed, not measured", other.name());
    }
    let mut rows = Rows::default();
    for round in 0..sizes.rounds {
        eprintln!("round {} of {}", round + 1, sizes.rounds);
        self::round(round, &sizes, &others, files, &mut rows)?;
    }
    let absent: Vec<_> = absent.iter().map(|other| other.name()).collect();
    rows.report(if without_others { &absent } else { &[] })
}

/// The gateway, and what it is held against, all running, by turns, whose mean is what the round says.
fn by_turns(sizes: &Sizes, others: &[Other], files: u64, rows: &mut Rows) -> Result<()> {
    let mut all = vec![Proxy::role("relay", &["relay", "splice"])?, Proxy::role("gateway", &["gateway"])?];
    if others.contains(&Other::Squid) {
        all.push(Proxy::other(Other::Squid, files)?);
    }
    let mut unused = Rows::default();
    for proxy in &all {
        proxy.turn(sizes, &mut unused)?;
    }
    let mut turns = Rows::default();
    for _ in 0..TURNS {
        for proxy in &all {
            proxy.turn(sizes, &mut turns)?;
        }
        // Whoever went first goes last.
        all.reverse();
    }
    for (row, mean) in turns.means() {
        rows.push(row.to_owned(), mean);
    }
    Ok(())
}

/// Everything once, each proxy alone, in an order of its own.
fn round(round: usize, sizes: &Sizes, others: &[Other], files: u64, rows: &mut Rows) -> Result<()> {
    let mut order = vec!["direct", "relay", "relay-copy", "gateway"];
    order.extend(others.iter().map(|other| other.name()));
    by_turns(sizes, others, files, rows)?;
    let turns = order.len();
    order.rotate_left(round % turns);
    for name in order {
        let other = others.iter().find(|other| other.name() == name);
        let proxy = match (name, other) {
            (_, Some(other)) => Proxy::other(*other, files),
            ("direct", _) => Proxy::direct(),
            ("gateway", _) => Proxy::role("gateway", &["gateway"]),
            ("relay", _) => Proxy::role("relay", &["relay", "splice"]),
            _ => Proxy::role("relay-copy", &["relay", "copy"]),
        };
        let measured = proxy.and_then(|proxy| {
            proxy.measure(sizes, rows)?;
            match name {
                "gateway" => proxy.measure_own(sizes, rows),
                "direct" => proxy.measure_queries("udp", "echo.example", sizes, rows),
                _ => Ok(()),
            }
        });
        measured.with_context(|| name.to_owned())?;
    }
    Ok(())
}
