//! The writer alone: batches as they come from busy producers.

use std::{fs::File, io::Write as _, time::Instant};

use anyhow::{Context as _, Result};
use ed25519_dalek::SigningKey;
use glovebox::audit::{
    Act, Endpoint, Record, Role, Subject, Traffic, entry::Source, note::Signer, writer::Writer,
};

/// Records of a batch, and batches.
const BATCH: u64 = 1000;
const BATCHES: u64 = 200;

/// What came of it.
pub(crate) struct Stored {
    /// Records a second.
    pub(crate) rate: f64,
    /// CPU microseconds a record.
    pub(crate) cpu: f64,
    /// Time, to that of the same bytes written and flushed as they are.
    pub(crate) ratio: f64,
}

/// As a gateway says it.
fn record(n: u64) -> Record {
    let sandbox = Subject {
        uid: "0d2f4a2e-6f3a-4c59-9b6c-2f3f5f3f7a10".into(),
        namespace: "team-a".into(),
        name: "review-42".into(),
        class: Some("untrusted".into()),
        requester: Some("ada@example.com".into()),
        runtime: Some("kata-clh-runtime-rs".into()),
        kernel: Some("a virtual machine's".into()),
        exception: None,
        policy_generation: Some(3),
    };
    let end = Endpoint {
        hostname: Some("api.example.com".into()),
        ip: Some("203.0.113.9".into()),
        port: 443,
        intermediate_ips: Vec::new(),
    };
    Record {
        connection_uid: Some(n.to_string()),
        entry: Some("connect".into()),
        dst_endpoint: Some(end),
        rule: Some("index".into()),
        duration: Some(250),
        traffic: Some(Traffic { bytes_out: 900, bytes_in: 12_000 }),
        ..Record::new(Act::EgressClosed, 1_700_000_000_000)
    }
    .about(sandbox)
}

fn cpu() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().context("schedstat is short")?.parse::<f64>()? / 1000.0)
}

pub(crate) fn measure() -> Result<Stored> {
    let folder = std::env::temp_dir().join(format!("glovebox-bench-trail-{}", std::process::id()));
    let signer = Signer::new("glovebox.example/bench", SigningKey::from_bytes(&[7; 32])).context("a name")?;
    let mut writer = Writer::open(&folder, "glovebox.example/bench", vec![signer], 0)?;
    let batches: Vec<Vec<_>> = (0..BATCHES)
        .map(|batch| {
            let source = |seq| Source { role: Role::Gateway, pod: "gateway".into(), boot: "b".into(), seq };
            (batch * BATCH..(batch + 1) * BATCH).map(|seq| (Some(source(seq)), record(seq))).collect()
        })
        .collect();
    let (began, before) = (Instant::now(), cpu()?);
    for batch in batches {
        writer.write(batch, 1_700_000_000_000)?;
    }
    let (took, used) = (began.elapsed().as_secs_f64(), cpu()? - before);
    let records = (BATCH * BATCHES) as f64;
    let bytes = std::fs::metadata(folder.join("00000000000000000000.jsonl"))?.len() as f64 / 4096.0;
    let alone = plain(&folder.join("plain"), bytes as usize * BATCH as usize)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(Stored { rate: records / took, cpu: used / records, ratio: took / alone })
}

/// Seconds for so many bytes a batch, written and flushed.
fn plain(path: &std::path::Path, bytes: usize) -> Result<f64> {
    let (piece, mut file) = (vec![b'x'; bytes], File::create(path)?);
    let began = Instant::now();
    for _ in 0..BATCHES {
        file.write_all(&piece)?;
        file.sync_data()?;
    }
    Ok(began.elapsed().as_secs_f64())
}
