//! Proxies on a core each, and what they used.

use std::{cell::RefCell, time::Duration};

use anyhow::{Result, bail};

use super::{cpu, others::Other, process::Process, report::Rows};

/// Where the proxies run.
pub(crate) const PROXY_CORE: usize = 0;
/// Where load and servers run.
pub(crate) const LOAD_CORE: usize = 1;
/// Turns of each in a round, which are added up: one alone is too short to be held to.
pub(crate) const TURNS: usize = 8;
/// What of a round's work is done in one turn.
const SHARE: usize = 4;
/// Turns with swaps of the policy in a round, and as many without.
const SWAP_TURNS: usize = 5;
/// File descriptors of a process, if that may be had.
pub(crate) const FILES: u64 = 65_536;

/// How much is done.
pub(crate) struct Sizes {
    pub(crate) rounds: usize,
    connections: usize,
    bulk_mib: usize,
    idle: usize,
    revoked: usize,
    queries: usize,
    /// Connections in a turn with swaps of the policy, or without.
    paced: usize,
}

impl Sizes {
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        connections: 5_000,
        bulk_mib: 2048,
        idle: 2_000,
        revoked: 10_000,
        queries: 50_000,
        paced: 1_000,
    };
    pub(crate) const QUICK: Self = Self {
        rounds: 2,
        connections: 1_000,
        bulk_mib: 256,
        idle: 500,
        revoked: 500,
        queries: 10_000,
        paced: 500,
    };

    /// With as many open tunnels as the file descriptors carry: three for each, as the gateway counts them, and what it keeps for
    /// itself and for the ports that stand for hosts.
    pub(crate) fn fitting(self, files: u64) -> Self {
        let most = usize::try_from(files.saturating_sub(2000) / 3).unwrap_or(usize::MAX);
        Self { idle: self.idle.min(most), revoked: self.revoked.min(most), ..self }
    }
}

/// A proxy under measurement, with servers of its own behind it: what one left in TIME_WAIT is in nobody else's way.
pub(crate) struct Proxy {
    pub(crate) name: &'static str,
    process: RefCell<Process>,
    /// Its memory before it did anything: what it keeps of earlier work counts as that of its tunnels.
    fresh_kib: f64,
    /// Of the proxy; a second one is what answers by UDP.
    ports: Vec<u16>,
    backend: u16,
    /// What clients ask for; `-` for nothing, where the backend is fixed.
    host: &'static str,
    _servers: Process,
}

/// What a load said at its end.
struct Said {
    /// CPU of the proxy, in microseconds.
    cpu: f64,
    /// Of the time that clients waited, in microseconds.
    middle: f64,
    slowest: f64,
}

impl Proxy {
    /// One that is a role of this program.
    pub(crate) fn role(name: &'static str, role: &[&str]) -> Result<Self> {
        let (servers, ports) = Process::start(LOAD_CORE, &["servers"])?;
        let [backend, dns] = ports[..] else { bail!("the servers said {ports:?}") };
        let (port, dns) = (backend.to_string(), dns.to_string());
        let role: Vec<&str> = role.iter().copied().chain([&*port, &*dns]).collect();
        let (process, ports) = Process::start(PROXY_CORE, &role)?;
        let fresh_kib = process.resident_kib()?;
        let process = process.into();
        Ok(Self { name, process, fresh_kib, ports, backend, host: "echo.example", _servers: servers })
    }

    /// One that somebody else made.
    pub(crate) fn other(other: Other, files: u64) -> Result<Self> {
        let (servers, ports) = Process::start(LOAD_CORE, &["servers"])?;
        let backend = ports[0];
        let (process, port) = other.start(PROXY_CORE, backend, files)?;
        let host = if other == Other::Squid { "echo.example" } else { "-" };
        let fresh_kib = process.resident_kib()?;
        let process = process.into();
        Ok(Self {
            name: other.name(),
            process,
            fresh_kib,
            ports: vec![port],
            backend,
            host,
            _servers: servers,
        })
    }

    /// None at all: the servers themselves.
    pub(crate) fn direct() -> Result<Self> {
        let (servers, ports) = Process::start(LOAD_CORE, &["servers"])?;
        let (echo, udp) = Process::start(PROXY_CORE, &["echo"])?;
        let fresh_kib = echo.resident_kib()?;
        let (process, backend) = (echo.into(), ports[0]);
        Ok(Self {
            name: "direct",
            process,
            fresh_kib,
            ports: vec![backend, udp[0]],
            backend,
            host: "-",
            _servers: servers,
        })
    }

    fn cpu(&self) -> Result<f64> {
        cpu::micros(self.process.borrow().child.id())
    }

    fn resident_kib(&self) -> Result<f64> {
        self.process.borrow().resident_kib()
    }

    fn start_load(&self, kind: &str, port: usize, host: &str, count: usize) -> Result<Process> {
        let (port, backend, count) = (self.ports[port], self.backend.to_string(), count.to_string());
        let (load, _) =
            Process::start(LOAD_CORE, &["load", kind, &port.to_string(), host, &backend, &count])?;
        Ok(load)
    }

    /// What the proxy uses while a load runs. `meanwhile` is done beside it.
    fn run(
        &self,
        kind: &str,
        port: usize,
        host: &str,
        count: usize,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<Said> {
        let before = self.cpu()?;
        let mut load = self.start_load(kind, port, host, count)?;
        meanwhile()?;
        let said = load.line()?;
        let cpu = self.cpu()? - before;
        let times: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [middle, slowest] = times[..] else { bail!("the load {kind} said {said:?}") };
        Ok(Said { cpu, middle, slowest })
    }

    fn cost(&self, kind: &str, port: usize, host: &str, count: usize) -> Result<Said> {
        let said = self.run(kind, port, host, count, || Ok(()))?;
        Ok(Said { cpu: said.cpu / count as f64, ..said })
    }

    /// What every proxy is measured by.
    pub(crate) fn measure(&self, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
        // Once for the caches of both sides.
        self.cost("exchange", 0, self.host, 200)?;
        let exchange = self.cost("exchange", 0, self.host, sizes.connections)?;
        rows.add(self.name, "connect p50", exchange.middle);
        rows.add(self.name, "connect p99", exchange.slowest);
        if self.name == "direct" {
            return Ok(());
        }
        rows.add(self.name, "connect", exchange.cpu);
        if self.name == "relay" {
            // What the gateway looks at, the relay carries unseen: the same bytes in the same pieces.
            rows.add(self.name, "hello", self.cost("sni", 0, self.host, sizes.connections)?.cpu);
        }
        let bulk = self.run("bulk", 0, self.host, sizes.bulk_mib, || Ok(()))?;
        rows.add(self.name, "bulk", bulk.cpu / 1e6 / (sizes.bulk_mib as f64 / 1024.0));
        let mut load = self.start_load("hold", 0, self.host, sizes.idle)?;
        load.line()?;
        rows.add(self.name, "idle", (self.resident_kib()? - self.fresh_kib).max(0.0) / sizes.idle as f64);
        Ok(())
    }

    /// A short turn of what is held against another proxy that runs beside it: so short that what else the machine does is felt by both.
    pub(crate) fn turn(&self, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
        let (count, mib) = (sizes.connections / SHARE, sizes.bulk_mib / SHARE);
        rows.add(self.name, "connect by turns", self.cost("exchange", 0, self.host, count)?.cpu);
        if self.name == Other::Squid.name() {
            return Ok(());
        }
        let (row, host) = if self.name == "gateway" {
            ("sni by turns", "tls.example")
        } else {
            ("hello by turns", self.host)
        };
        rows.add(self.name, row, self.cost("sni", 0, host, count)?.cpu);
        let bulk = self.run("bulk", 0, self.host, mib, || Ok(()))?;
        rows.add(self.name, "bulk by turns", bulk.cpu / 1e6 / (mib as f64 / 1024.0));
        Ok(())
    }

    /// What the gateway alone has.
    pub(crate) fn measure_own(&self, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
        let count = sizes.connections;
        rows.add(self.name, "sni", self.cost("sni", 0, "tls.example", count)?.cpu);
        rows.add(self.name, "denied", self.cost("denied", 0, "evil.example", count)?.cpu);
        rows.add(self.name, "revoke", self.revoke(sizes)?);
        let (middle, worst) = self.swap(sizes)?;
        rows.add(self.name, "swap p99 shift", middle);
        rows.add(self.name, "swap p99 shift, the worst turn", worst);
        self.measure_queries("dns allowed", "echo.example", sizes, rows)?;
        self.measure_queries("dns denied", "evil.example", sizes, rows)
    }

    /// CPU a query.
    pub(crate) fn measure_queries(
        &self,
        row: &str,
        host: &str,
        sizes: &Sizes,
        rows: &mut Rows,
    ) -> Result<()> {
        rows.add(self.name, row, self.cost("dns", 1, host, sizes.queries)?.cpu);
        Ok(())
    }

    /// Milliseconds from the swap of the policy until the last tunnel is closed, as its client sees it.
    fn revoke(&self, sizes: &Sizes) -> Result<f64> {
        let mut load = self.start_load("hold", 0, self.host, sizes.revoked)?;
        load.line()?;
        let started = std::time::Instant::now();
        self.process.borrow_mut().tell("revoke")?;
        load.line()?;
        let took = started.elapsed().as_secs_f64() * 1000.0;
        self.process.borrow_mut().line()?;
        Ok(took)
    }

    /// Milliseconds by which the slowest of a hundred connections gets slower while policies of 10,000 rules are swapped in: by turns
    /// with and without. What lies in the middle counts, since each turn has whatever else the machine does in it; the worst is told.
    fn swap(&self, sizes: &Sizes) -> Result<(f64, f64)> {
        let swaps = sizes.paced / 500;
        let mut later = Vec::new();
        for _ in 0..SWAP_TURNS {
            let quiet = self.cost("paced", 0, self.host, sizes.paced)?;
            let busy = self.run("paced", 0, self.host, sizes.paced, || {
                for _ in 0..swaps {
                    self.process.borrow_mut().tell("swap")?;
                    self.process.borrow_mut().line()?;
                    std::thread::sleep(Duration::from_millis(450));
                }
                Ok(())
            })?;
            later.push((busy.slowest - quiet.slowest) / 1000.0);
        }
        later.sort_unstable_by(f64::total_cmp);
        Ok((later[later.len() / 2], later[later.len() - 1]))
    }
}
