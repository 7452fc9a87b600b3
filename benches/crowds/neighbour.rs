//! One sandbox that works at an even pace, alone and beside others that want more than they may; in turns, so that a noisy
//! machine is noisy for both.
//!
//! Clients share a core, and a crowd of them costs the good one something on its own side. What is held to a bound is what the
//! gateway is to prevent, so their load is bounded: it is what a sandbox at its limits can do, not all that a core can.

use anyhow::{Context as _, Result, ensure};

use crate::{Row, median, process::Process};

/// The median beside a neighbour, of that alone.
const MOST_GREEDY: f64 = 1.10;
/// The same beside five thousand heads that drip, which are forty sandboxes at their limit.
const MOST_DRIPPING: f64 = 1.5;
/// Memory of the gateway for each head that drips.
const MOST_KIB: f64 = 20.0;
const FILES: u64 = 15_500;

struct Scene {
    gateway: Process,
    ports: Vec<u16>,
    backend: u16,
    exchanges: usize,
}

impl Scene {
    /// The median and the 99th percentile, in microseconds.
    fn good(&self) -> Result<(f64, f64)> {
        let words =
            [self.ports[0].to_string(), self.backend.to_string(), "0".into(), self.exchanges.to_string()];
        let (mut good, _) = Process::start(1, &[vec!["good".to_owned()], words.to_vec()].concat())?;
        let line = good.line().context("good traffic")?;
        let (median, tail) = line.split_once(' ').context("two figures")?;
        Ok((median.parse()?, tail.parse()?))
    }

    fn greedy(&self) -> Result<Process> {
        let words = [self.ports[0], self.ports[2], self.backend, 1].map(|word| word.to_string());
        Ok(Process::start(1, &[vec!["greedy".to_owned()], words.to_vec()].concat())?.0)
    }

    fn dripping(&self, each: usize) -> Result<Process> {
        let words = [self.ports[0], self.ports[1], 2, 40].map(|word| word.to_string());
        let role = [vec!["drip".to_owned()], words.to_vec(), vec![each.to_string()]].concat();
        Ok(Process::start(1, &role)?.0)
    }
}

#[derive(Default)]
struct Figures {
    alone: Vec<f64>,
    beside: Vec<f64>,
    tail_alone: Vec<f64>,
    tail_beside: Vec<f64>,
}

impl Figures {
    fn rows(mut self, what: &str, most: f64) -> [Row; 4] {
        let (alone, beside) = (median(&mut self.alone), median(&mut self.beside));
        [
            Row::shown(format!("good p50 alone, in turns with {what}"), alone, "us"),
            Row::shown(format!("good p50 beside {what}"), beside, "us"),
            Row::shown(
                format!("good p99 beside {what} / alone"),
                median(&mut self.tail_beside) / median(&mut self.tail_alone),
                "",
            ),
            Row::bound(format!("good p50 beside {what} / alone"), beside / alone, "", most),
        ]
    }
}

pub(crate) fn run(backend: u16, dns: u16, files: u64, quick: bool) -> Result<Vec<Row>> {
    let (rounds, exchanges, each) = if quick { (2, 60, 20) } else { (9, 250, 125) };
    ensure!(
        quick || FILES <= files,
        "five thousand heads need {FILES} file descriptors (ulimit -Hn), and there are {files}"
    );
    let role = ["gateway", &backend.to_string(), &dns.to_string(), "limited"].map(str::to_owned);
    let (gateway, ports) = Process::start(0, &role)?;
    let scene = Scene { gateway, ports, backend, exchanges };
    scene.good()?;
    let (mut greedy, mut dripping, mut memory) = (Figures::default(), Figures::default(), Vec::new());
    for round in 0..rounds {
        for (figures, drips) in [(&mut greedy, false), (&mut dripping, true)] {
            // In turns, so that none is always first.
            for beside in [round % 2 == 0, round % 2 == 1] {
                let before = scene.gateway.resident_kib()?;
                let neighbour = match (beside, drips) {
                    (false, _) => None,
                    (true, false) => Some(scene.greedy()?),
                    (true, true) => Some(scene.dripping(each)?),
                };
                let (middle, tail) = scene.good()?;
                let (middles, tails) = if beside {
                    (&mut figures.beside, &mut figures.tail_beside)
                } else {
                    (&mut figures.alone, &mut figures.tail_alone)
                };
                middles.push(middle);
                tails.push(tail);
                if beside && drips {
                    memory.push((scene.gateway.resident_kib()? - before).max(0.0) / (40 * each) as f64);
                }
                drop(neighbour);
            }
        }
    }
    let memory = memory.iter().copied().fold(0.0, f64::max);
    let heads = 40 * each;
    let mut rows: Vec<Row> = greedy.rows("a sandbox at its limits", MOST_GREEDY).into();
    rows.extend(dripping.rows(&format!("{heads} dripping heads"), MOST_DRIPPING));
    rows.push(Row::bound("memory of the gateway for each of these", memory, "KiB", MOST_KIB));
    Ok(rows)
}
