//! A labelled corpus of what sandboxes do, done against the real gateway: which of them are suspected under the bounds that a class has
//! unless it says otherwise. What is right and wrong is printed; what is wrong is known by name.

use std::net::{IpAddr, Ipv4Addr};

use glovebox::{api::Detection, gateway::tenant::Tenant};
use hickory_proto::rr::RecordType;
use tokio::io::AsyncWriteExt as _;

use crate::{
    dns::asked,
    world::{World, ask, from, handshake, head},
};

const CORPUS: &str = include_str!("corpus.txt");
/// Taken for an attack, and none: seventy hosts that are not there are a scan to whoever sees no more than that.
const FALSE: &[&str] = &["an agent that makes up seventy hosts"];
/// Not seen: less than an honest client of such a host does.
const MISSED: &[&str] = &["sends a few bytes in a few names, and no more"];

struct Trace {
    hostile: bool,
    name: &'static str,
    acts: Vec<&'static str>,
}

fn traces() -> Vec<Trace> {
    let mut traces: Vec<Trace> = Vec::new();
    for line in CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "honest" | "hostile" => {
                traces.push(Trace { hostile: word == "hostile", name: rest, acts: Vec::new() });
            }
            _ => traces.last_mut().unwrap().acts.push(line),
        }
    }
    traces
}

/// A label of 56 characters, another one for each number.
fn carries(n: u64) -> String {
    let mut state = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letter = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::try_from(state >> 59).unwrap()])
    };
    (0..56).map(letter).collect()
}

/// The bytes that are meant.
fn bytes(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("\\x00", "\0")
}

async fn act(world: &World, source: IpAddr, line: &str) {
    let (line, times) = match line.rsplit_once(" x").map(|(line, times)| (line, times.parse::<u64>())) {
        Some((line, Ok(times))) => (line, times),
        _ => (line, 1),
    };
    let (verb, rest) = line.split_once(' ').unwrap();
    for n in 1..=times {
        let rest = rest.replace("{n}", &n.to_string()).replace("{h}", &carries(n));
        let rest = rest.replace("{port}", &world.tls.0.port().to_string());
        let tunnel = |target: &str| format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        match verb {
            "dns" => drop(asked(world, source, &format!("{rest}."), RecordType::A).await),
            "http" => drop(ask(source, world.at.proxy, bytes(&rest)).await),
            "connect" => {
                let mut stream = from(source, world.at.proxy).await;
                stream.write_all(tunnel(&rest).as_bytes()).await.unwrap();
                head(&mut stream).await;
            }
            "sni" => {
                let mut stream = from(source, world.at.proxy).await;
                let target = tunnel(&format!("tls.example:{}", world.tls.0.port()));
                stream.write_all(target.as_bytes()).await.unwrap();
                assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"), "{rest}");
                assert!(handshake(stream, &rest, &world.roots).await.is_err());
            }
            _ => panic!("{line}"),
        }
    }
}

fn is_suspected(tenant: &Tenant) -> (bool, String) {
    let Some(seen) = tenant.watch.seen() else { return (false, "nothing".into()) };
    let bounds = Detection::default();
    let reached = |seen: u32, bound: i32| i64::from(seen) >= i64::from(bound);
    let suspected = reached(seen.severe, bounds.severe_acts) || reached(seen.score, bounds.score);
    (suspected, format!("{} severe, {} points", seen.severe, seen.score))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_are_told_from_noise() {
    let world = World::new().await;
    let (mut right, mut wrong, mut unseen, mut spared) = (0, Vec::new(), Vec::new(), 0);
    for (n, trace) in traces().iter().enumerate() {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 7, 100 + u8::try_from(n).unwrap()));
        let tenant = world.sandbox(&format!("trace-{n}"), source);
        for line in &trace.acts {
            act(&world, source, line).await;
        }
        world.directory.heed(&tenant);
        let (suspected, why) = is_suspected(&tenant);
        let label = if trace.hostile { "hostile" } else { "honest" };
        println!(
            "{label:<8} {} {why:<24} {}",
            if suspected { "suspected" } else { "left alone" },
            trace.name
        );
        match (trace.hostile, suspected) {
            (true, true) => right += 1,
            (true, false) => unseen.push(trace.name),
            (false, true) => wrong.push(trace.name),
            (false, false) => spared += 1,
        }
        assert!(!tenant.watch.is_shut(), "nobody said that it is to be stopped here");
    }
    let share = |part: usize, rest: usize| part as f64 / (part + rest) as f64;
    println!(
        "precision {:.2}, recall {:.2}: {right} attacks seen, {} missed, {} honest ones suspected, {spared} left alone",
        share(right, wrong.len()),
        share(right, unseen.len()),
        unseen.len(),
        wrong.len()
    );
    assert_eq!((wrong.as_slice(), unseen.as_slice()), (FALSE, MISSED));
}
