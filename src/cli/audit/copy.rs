//! `audit export` and `audit prove`: the trail's own files, and a proof for one entry.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::TrailOptions;
use crate::{
    audit::{
        directory::ROOTS,
        walk::{SEGMENT_ENTRIES, segment_name},
    },
    cli::{
        fault::Outcome,
        interrupt::Signals,
        options::ClusterOptions,
        progress::say,
        session::{ANSWERED, Session},
    },
};

/// The file with the checkpoint of the trail as it was copied.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// The file with the keys that the trail said are its own.
pub(super) const KEYS: &str = "keys";

/// Copies the trail into a directory, where it can be verified and kept.
///
/// Keep the checkpoint apart from the trail: with it, `glovebox audit verify --checkpoint` tells later whether anything up to it was
/// altered or taken away, even by somebody who has the signing key.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox audit export ./trail
  glovebox audit verify --dir ./trail --key \"$(cat trail.key)\"")]
pub struct Options {
    /// The directory: a new one, or one with an older copy, whose whole segments are not copied again.
    dir: PathBuf,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    trail: TrailOptions,
}

/// Prints a proof that an entry is in the trail, as C2SP's tlog-proof has it, with the entry as its extra data.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox audit prove 1042 > 1042.tlog-proof")]
pub struct Prove {
    /// The entry's number: metadata.sequence of `query -o json`.
    n: u64,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    trail: TrailOptions,
}

/// Carries it out.
pub(super) async fn prove(options: Prove) -> Outcome {
    let mut trail = options.trail.reach(&options.cluster).await?;
    trail.hand_on(&format!("/v1/proof?n={}", options.n)).await.map(|()| 0)
}

/// Carries it out.
pub(super) async fn export(options: Options) -> Outcome {
    let work = async {
        let mut trail = options.trail.reach(&options.cluster).await?;
        let segments = copy(&mut trail, &options.dir).await?;
        say(&format!("{segments} segments in {}", options.dir.display()));
        Ok(0)
    };
    Signals::catch()?.unless(work).await
}

/// Copies all that there is. How many segments.
pub(super) async fn copy(trail: &mut Session, to: &Path) -> anyhow::Result<usize> {
    std::fs::create_dir_all(to).with_context(|| format!("can't make {}", to.display()))?;
    // The checkpoint first: what is copied behind it is at least as long.
    for name in [CHECKPOINT, KEYS] {
        file(trail, &format!("/v1/{name}"), &to.join(name)).await?;
    }
    let segments: Vec<u64> = trail.get("/v1/segments", ANSWERED).await?;
    ensure!(segments.is_sorted(), "the trail lists its segments in another order than it has them");
    let last = segments.last().copied().unwrap_or_default();
    for first in &segments {
        let path = to.join(segment_name(*first));
        // What is whole never changes; the one before the last may just have become whole.
        if *first + SEGMENT_ENTRIES >= last || !path.exists() {
            file(trail, &format!("/v1/segments/{first}"), &path).await?;
        }
    }
    file(trail, "/v1/roots", &to.join(ROOTS)).await?;
    Ok(segments.len())
}

/// Half a file never stands in the place of a whole one.
async fn file(trail: &mut Session, path: &str, to: &Path) -> anyhow::Result<()> {
    let part = to.with_extension("part");
    let mut out =
        tokio::fs::File::create(&part).await.with_context(|| format!("can't make {}", part.display()))?;
    let mut pieces = std::pin::pin!(trail.read(path).await?);
    while let Some(piece) = pieces.next().await {
        out.write_all(&piece?).await?;
    }
    out.sync_all().await?;
    std::fs::rename(&part, to).with_context(|| format!("can't make {}", to.display()))
}
