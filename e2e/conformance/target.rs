//! The conformance list against any other proxy: no Glovebox and no Kubernetes, but the same attack programs and the same
//! pretended internet, which tells what arrived. A person starts it by `cargo xtask test conformance --target HOST:PORT`.
//!
//! The programs run where this program runs, and speak with the proxy's entries alone. What a proxy has no entry for is
//! reported as not offered, and is no success. A row counts as passed if every attack came to nothing and an honest twin worked.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpStream, process::Command, runtime::Runtime as Tokio, time::timeout};

use super::{
    oracle::{Names, Oracle},
    report, script,
    table::Table,
};
use crate::{
    attacks::Attack,
    harness::{local::Local, random, world::World},
};

/// How this program is told to judge a proxy.
const JUDGE: &str = "__judge";
/// How long the longest script may take against a proxy that lets it wait.
const PATIENCE: Duration = Duration::from_secs(900);
/// How long a proxy may take to start.
const START: Duration = Duration::from_secs(15);
/// How long a proxy may keep an answer of the name server's that is good for one second.
const STALE: Duration = Duration::from_secs(20);
/// Addresses of a local cluster: node0, its router, the API server's Service.
pub(super) const CLUSTER: [&str; 3] = ["192.0.2.10", "192.0.2.1", "10.96.0.1"];
/// A name that may be reached, and whose owner moves it inside.
const TURNS: &str = "turn.bad.example";

/// What is carried out, in this order; the numbers are those of attempts that a script makes at least.
pub(super) const SCRIPTS: [(&str, Attack); 5] = [
    ("lookups", script!("lookups.py", 40)),
    ("names", script!("names.py", 250)),
    ("addresses", script!("addresses.py", 150)),
    ("tls", script!("tls.py", 20)),
    ("http", script!("http.py", 60)),
];
const ORDINARY: Attack = script!("ordinary.py", 1);
const ASK: Attack = Attack::new(
    concat!(
        include_str!("tools.py"),
        "\nprint('seen', reach(json.loads(sys.argv[1])['ask']).get('place', 'nothing'))\nreport(True, 'asked')\nfinish()"
    ),
    1,
);

/// The proxy, as the command line tells of it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Target {
    /// Where it takes CONNECT and whole URIs: `HOST:PORT`.
    proxy: String,
    /// Where it takes TLS by its server name, if it does.
    tls: Option<String>,
    /// Whether it takes CONNECT.
    connect: bool,
    /// What to call it in a report.
    name: String,
    /// Whether the report is JSON.
    json: bool,
}

impl Target {
    /// As the scripts are told of it.
    fn told(&self) -> Result<Value> {
        let tls = self.tls.as_deref().map(place).transpose()?;
        Ok(json!({"proxy": place(&self.proxy)?, "tls": tls, "connect": self.connect}))
    }
}

fn place(text: &str) -> Result<Value> {
    let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = parsed.with_context(|| format!("{text:?} is no HOST:PORT"))?;
    Ok(json!([host, port]))
}

/// Judges a proxy, if this program was started for that.
pub(crate) fn judge_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    (arguments.next().as_deref() == Some(JUDGE)).then(|| {
        let told = arguments.next().unwrap_or_default();
        let judged = serde_json::from_str(&told).with_context(|| format!("{JUDGE} {told:?}"));
        match judged.and_then(|target| Tokio::new()?.block_on(judge(&target))) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

/// Whether no row failed, and one passed.
async fn judge(target: &Target) -> Result<bool> {
    let local = Local::from_environment()
        .context("needs the world of a local cluster: run `cargo xtask test conformance --target`")?;
    for entry in [Some(&target.proxy), target.tls.as_ref()].into_iter().flatten() {
        let knock = async {
            while TcpStream::connect(entry).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let answers = timeout(START, knock).await.is_ok();
        ensure!(answers, "nothing answers at {entry} within {START:?}, as seen from a node of the cluster");
    }
    let world = World::new(&local);
    world.open().await?;
    let traps = traps();
    let names = Names::open(&local.run)?;
    names.tell(None).await?;
    let judged = attempts(target, &world, &names, &local.run).await;
    drop((names, traps));
    world.close().await;
    let table = judged?;
    if target.json {
        println!("{}", serde_json::to_string_pretty(&report::json(&target.name, &table))?);
    } else {
        report::print(&target.name, &table);
    }
    Ok(report::good(&table))
}

/// Sockets where this program runs, for names that lie: a proxy beside it that dials them would find somebody.
fn traps() -> Vec<TcpListener> {
    // Where another program listens, somebody is there already.
    [443, 80].into_iter().filter_map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok()).collect()
}

async fn attempts(target: &Target, world: &World, names: &Names, run: &Path) -> Result<Table> {
    let (mut table, suffix, told) = (Table::default(), random()?, target.told()?);
    let arguments =
        json!({"suffix": suffix, "target": told, "cluster": CLUSTER, "certificate": world.certificate()});
    for (name, attack) in SCRIPTS.into_iter().chain([("ordinary", ORDINARY)]) {
        let started = Instant::now();
        let oracle = Oracle::open(world)?;
        let log = carry_out(attack, &arguments, run).await.with_context(|| name.to_owned())?;
        oracle.judge(name, &log, &mut table).await?;
        eprintln!("{name}: {:.0} s", started.elapsed().as_secs_f64());
    }
    turns(names, &told, run, &mut table).await?;
    Ok(table)
}

/// Runs a script here; gives what it printed, once it came to its end.
async fn carry_out(attack: Attack, arguments: &Value, folder: &Path) -> Result<String> {
    let words = attack.command(&[&arguments.to_string()]);
    let (program, rest) = words.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(rest).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let ended = timeout(PATIENCE, command.output()).await.context("it did not end")?;
    let output = ended.with_context(|| format!("{program} does not start"))?;
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let attempts = log.lines().find_map(|line| line.strip_prefix("attempts ")?.parse::<usize>().ok());
    if attempts.is_none() {
        let last = log.lines().last().unwrap_or_default();
        bail!("it broke off after {last:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(log)
}

/// A name that was good and leads inside from one second to the next: where it led is told by who answered.
async fn turns(names: &Names, told: &Value, run: &Path, table: &mut Table) -> Result<()> {
    let outside = Ipv4Addr::new(203, 0, 113, 7);
    for inside in [[10, 0, 0, 7], [169, 254, 169, 254], [172, 16, 0, 7]].map(Ipv4Addr::from) {
        for address in [outside, inside] {
            names.tell(Some((TURNS, address))).await?;
            let wanted = format!("{address}:443");
            let (started, mut seen) = (Instant::now(), String::new());
            // Until the proxy asks anew: an old answer that is good harms nobody.
            while started.elapsed() < STALE {
                let log = carry_out(ASK, &json!({"ask": TURNS, "target": told}), run).await?;
                seen = log.lines().find_map(|line| line.strip_prefix("seen ")).unwrap_or_default().into();
                if seen == wanted || address != outside && seen == "nothing" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            if address == outside {
                table.twin(14, &format!("{TURNS} leads outside: {seen}"), seen == wanted);
            } else {
                table.attack(14, &format!("{TURNS} turns to {address}: {seen}"), seen != wanted);
            }
        }
    }
    Ok(())
}
