//! Egress by name, from real sandboxes against the installed gateway: each attack beside its honest twin, so that a refusal is
//! no accident of a network that is down.
//!
//! The scripts know what must be refused and what must work; here is known what must never have happened outside: a
//! question to the world's name server, an arrival at an address, a request with the secret in it.

mod as_proxy;
mod groups;
mod image;
mod live;
mod messages;
mod named;
mod oracle;
mod report;
pub(crate) mod table;
pub(crate) mod target;

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    attacks::Attack,
    harness::{
        Cases, Outcome, Runtime, Sandbox, Test,
        classes::merge,
        gateway::Gateway,
        random,
        world::{Questions, World},
    },
};

/// How long the longest script may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// Where nobody ever may go: the world's `evil.example`.
const EVIL: &str = "203.0.113.9";
/// Where the names lead that rules here allow.
const ALLOWED: &str = "203.0.113.7";

/// A script of this suite, behind what they all begin with.
macro_rules! script {
    ($file:literal, $least:literal) => {
        $crate::attacks::Attack::new(concat!(include_str!("tools.py"), "\n", include_str!($file)), $least)
    };
}
pub(crate) use script;

/// Tries to reach a host, and tells when it may and when no more.
pub(crate) const LIVE: Attack = script!("live.py", 0);
/// New connections and open tunnels, and all the while tries at what is denied.
pub(crate) const LOAD: Attack = script!("load.py", 0);
/// Connects in a loop from its first instruction: on its own, since what comes before would take time.
pub(crate) const LEAK: &str = include_str!("leak.py");
/// Has the gateway ask outside for one name.
const MARK: Attack = Attack::new(
    concat!(include_str!("tools.py"), "\nconnect(sys.argv[1] + ':443')\nreport(True, 'mark')\nfinish()"),
    1,
);

pub(crate) fn cases(cases: &mut Cases) {
    image::cases(cases);
    groups::cases(cases);
    live::cases(cases);
    messages::cases(cases);
    named::cases(cases);
    as_proxy::cases(cases);
}

/// What the scripts act on.
pub(crate) struct Ground<'t> {
    test: &'t Test,
    /// The pretended internet.
    pub(crate) world: &'static World,
    /// The gateway.
    pub(crate) gateway: Gateway,
    questions: Questions,
    /// The one name that is asked for so that the log is known to be written.
    mark: String,
    /// In every name and path that would carry something out.
    pub(crate) suffix: String,
}

impl<'t> Ground<'t> {
    /// From now on.
    pub(crate) async fn open(test: &'t Test) -> Result<Self> {
        let world = test.world().await?;
        let (gateway, suffix) = (test.gateway().await?, random()?);
        gateway.replicas.work().await?;
        let mark = format!("mark-{suffix}.example");
        Ok(Self { test, world, gateway, questions: world.questions()?, mark, suffix })
    }

    /// The rules that the scripts speak of.
    pub(crate) fn rules(&self) -> Value {
        json!({"egress": {"allow": [
            {"name": "web", "hosts": ["web.example"], "ports": [80], "protocol": "HTTP",
             "http": {"methods": ["GET", "HEAD", "POST"], "paths": ["/ok", "/ok/**"]}},
            {"name": "allowed", "hosts": ["allowed.example"]},
            {"name": "opened", "hosts": ["api.allowed.example"], "protocol": "HTTPS",
             "http": {"methods": ["GET", "HEAD"], "paths": ["/ok", "/repo.git/**", "/simple/**", "/-/**"]}},
            {"name": "unproven", "hosts": ["unvouched.wild.example", "misnamed.wild.example"], "protocol": "HTTPS",
             "http": {"methods": ["GET"], "paths": ["/ok"]}},
            {"name": "wild", "hosts": ["*.wild.example"]},
            {"name": "bad", "hosts": ["*.bad.example"]},
            {"name": "aliases", "hosts": ["*.aliases.example"]},
            {"name": "wide", "hosts": ["**.opendns.com", "**.defo.ie"]},
            {"name": "raw", "hosts": ["tcp.example"], "ports": [8443], "protocol": "TCP"},
            {"name": "mark", "hosts": [self.mark]},
        ]}})
    }

    /// A sandbox with these rules, once it runs.
    pub(crate) async fn sandbox(&self, runtime: Runtime, name: &str, change: &Value) -> Result<Sandbox> {
        let mut spec = self.rules();
        merge(&mut spec, &json!({"ttl": "8m", "resources": {"cpu": "300m", "memory": "256Mi"}}));
        merge(&mut spec, change);
        let sandbox = self.test.running(runtime, name, &spec).await?;
        self.begins(&sandbox).await?;
        Ok(sandbox)
    }

    /// A sandbox runs: what arrived before was not its workload. While the network was late, the agent's own tries may have; and
    /// the address may have been another's.
    pub(crate) async fn begins(&self, sandbox: &Sandbox) -> Outcome {
        let ip = sandbox.status().await?.pod_ip;
        self.world.forget(&ip.with_context(|| format!("{} runs without an address", sandbox.name))?);
        Ok(())
    }

    /// Carries an attack out inside, notes each attempt in the table, and holds them against it.
    pub(crate) async fn attack(&self, sandbox: &Sandbox, attack: Attack, arguments: &Value) -> Outcome {
        let mut all = json!({"suffix": self.suffix});
        merge(&mut all, arguments);
        let command = attack.command(&[&all.to_string()]);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = sandbox.exec_within(&words, PATIENCE).await?;
        table::note(&output.stdout);
        attack
            .judge(&output.stdout)
            .with_context(|| format!("the script ended with {}: {}", output.code, output.stderr))
    }

    /// Nothing went out but what the rules allow: seen by the world's name server, its listeners and its sites.
    pub(crate) async fn nothing_leaked(&self, sandbox: &Sandbox) -> Outcome {
        MARK.by_exec(sandbox, &[&self.mark]).await?;
        let asked = self.questions.until(&self.mark).await?;
        let gateways = self.gateway.addresses().await?;
        let strange: Vec<&(String, String)> =
            asked.iter().filter(|(from, name)| gateways.contains(from) && !is_known(name)).collect();
        ensure!(strange.is_empty(), "the gateway asked outside for names that no rule allows: {strange:?}");
        let leaked: Vec<_> =
            asked.iter().filter(|(_, name)| name.contains(&self.suffix) && !self.is_ours(name)).collect();
        ensure!(leaked.is_empty(), "names with the secret in them were asked outside: {leaked:?}");
        let evil = self.world.arrivals_at(EVIL);
        ensure!(evil.is_empty(), "somebody reached evil.example: {evil:?}");
        let ip = sandbox.status().await?.pod_ip.context("no address")?;
        let past: Vec<String> = self.world.arrivals(&ip);
        // What the agent tries again and again, to prove that it can't, must not arrive either.
        ensure!(past.is_empty(), "the sandbox {ip} reached the world past the gateway: {past:?}");
        for gateway in &gateways {
            let arrived = self.world.arrivals(gateway);
            let strange: Vec<&String> = arrived.iter().filter(|place| !is_allowed(place)).collect();
            ensure!(strange.is_empty(), "the gateway {gateway} connected to {strange:?}");
        }
        let carried = self.world.requests(&format!("secret-{}", self.suffix));
        ensure!(carried.is_empty(), "requests with the secret in them arrived: {carried:?}");
        Ok(())
    }

    /// The mark, and what twins dialled.
    fn is_ours(&self, name: &str) -> bool {
        let ours = [format!("a-{}.wild.example", self.suffix), format!("turn-{}.example", self.suffix)];
        let name = name.trim_end_matches('.');
        name == self.mark || ours.iter().any(|ours| ours == name)
    }
}

/// Names that rules of this suite allow. Random ones below the wildcard are known by DNS and never dialled, so that none of
/// them is asked outside.
fn is_known(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let exact = [
        "allowed.example",
        "api.allowed.example",
        "unvouched.wild.example",
        "misnamed.wild.example",
        "web.example",
        "tcp.example",
        "granted.example",
        "api.opendns.com",
    ];
    let below = [".bad.example", ".aliases.example"];
    let twin = name.strip_suffix(".wild.example").is_some_and(|label| label.starts_with("a-"));
    let own = ["mark-", "turn-"].iter().any(|start| name.starts_with(start));
    twin || own || exact.contains(&name) || below.iter().any(|suffix| name.ends_with(suffix))
}

fn is_allowed(place: &str) -> bool {
    place.strip_prefix("tcp ").and_then(|place| place.split(':').next()) == Some(ALLOWED)
}

/// An address of the gateway's or another's, as a script is told it.
fn checked(address: &str) -> Result<Ipv4Addr> {
    address.parse().with_context(|| format!("{address:?} is no IPv4 address"))
}
