//! `audit verify`: holds every record against the one before and against the checkpoints.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::{TrailOptions, copy};
use crate::{
    audit::{
        directory::{Directory, Report},
        note::{Checkpoint, Verifier},
        walk::Trust,
    },
    cli::{
        fault::{BROKEN, Outcome},
        interrupt::Signals,
        options::ClusterOptions,
        print,
        progress::say,
        text,
    },
};

/// Holds the trail against its checkpoints, and names the place of whatever is not as it was written.
///
/// Without --key the trail's own word is taken for its key, which shows that it is whole, and not whose it is: keep the key, and
/// now and then a checkpoint, where nobody who can write the trail can write.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox audit verify
  glovebox audit verify --key \"$(cat trail.key)\" --checkpoint yesterday.checkpoint
  glovebox audit verify --dir ./trail --key \"$(cat trail.key)\"

Exit codes: 0 all is as it was written; 1 something is not, and where; 125 the trail could not be read.")]
pub struct Options {
    /// A copy that `export` made, in place of the trail of the cluster.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Key that checkpoints must be signed with, as C2SP's signed-note writes it: NAME+HASH+KEY. Repeatable, one is enough for each.
    #[arg(long = "key", value_name = "KEY", value_parser = key)]
    keys: Vec<Verifier>,
    /// Checkpoint that was kept: what it vouched for must still be the same. Repeatable.
    #[arg(long = "checkpoint", value_name = "FILE")]
    checkpoints: Vec<PathBuf>,
    /// One JSON object in place of words.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    trail: TrailOptions,
}

fn key(text: &str) -> Result<Verifier, &'static str> {
    Verifier::parse(text)
        .ok_or("expected a key of an Ed25519 signature as signed-note writes it: NAME+HASH+KEY")
}

/// Carries it out.
pub(super) async fn verify(options: Options) -> Outcome {
    if let Some(dir) = &options.dir {
        return held(&options, dir);
    }
    let copy = Scratch::new()?;
    let work = async {
        let mut trail = options.trail.reach(&options.cluster).await?;
        copy::copy(&mut trail, &copy.0).await
    };
    Signals::catch()?.unless(work).await?;
    held(&options, &copy.0)
}

/// A directory of our own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("glovebox-audit-{}", std::process::id()));
        // Not one that somebody else has made before.
        std::fs::create_dir(&path).with_context(|| format!("can't make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn held(options: &Options, dir: &Path) -> Outcome {
    let mut verifiers = options.keys.clone();
    if verifiers.is_empty() {
        let file = dir.join(copy::KEYS);
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("name a key by --key; can't read {}", file.display()))?;
        verifiers = text.lines().filter_map(Verifier::parse).collect();
        ensure!(!verifiers.is_empty(), "{} has no key", file.display());
        say("the key is the trail's own word; with --key it is held against one that you kept");
    }
    let Some(origin) = verifiers.first().map(|verifier| verifier.name().to_owned()) else {
        bail!("there is no key")
    };
    let trust = Trust { verifiers, origin };
    let mut kept = Vec::new();
    let own = dir.join(copy::CHECKPOINT);
    for file in options.checkpoints.iter().chain(own.exists().then_some(&own)) {
        let note = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
        let checkpoint = Checkpoint::open(&note, &trust.verifiers);
        kept.push(checkpoint.map_err(|wrong| anyhow::anyhow!("{}: {wrong}", file.display()))?);
    }
    match Directory::at(dir).verify(&trust, &kept, &mut |_, _, _| {}) {
        Ok(report) => good(options, &report).map(|()| 0),
        Err(found) => {
            let words = text::line(&found.to_string());
            if options.json {
                print::json(
                    &json!({"good": false, "file": found.file, "line": found.line, "offset": found.offset, "fault": words}),
                )?;
            } else {
                print::words(&format!("{words}\n"))?;
            }
            Ok(BROKEN)
        }
    }
}

fn good(options: &Options, report: &Report) -> anyhow::Result<()> {
    let Report { size, oldest, checkpoints, .. } = report;
    if options.json {
        return print::json(
            &json!({"good": true, "entries": size, "oldest": oldest, "checkpoints": checkpoints}),
        );
    }
    let gone =
        if *oldest > 0 { format!(", of which the first {oldest} were removed") } else { String::new() };
    print::words(&format!("{size} entries{gone}, {checkpoints} checkpoints: all is as it was written\n"))
}
