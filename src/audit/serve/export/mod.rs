//! Hands the trail on to collectors: each entry, in order, at least once. Where each collector is, is kept beside the trail.
//!
//! Must never hold up the writer, and never go on behind an entry that was not taken.

mod s3;
mod shape;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use axum::{body::Bytes, http::Uri};
use tokio::sync::watch;

pub(super) use self::s3::Store;
use self::{s3::S3Options, shape::Shape};
use super::read;
use crate::{
    audit::{
        directory::Directory,
        entry::Entry,
        printable,
        walk::{SEGMENT_ENTRIES, entries, place, segment_of},
        writer::Committed,
    },
    post::Target,
};

/// Most entries at once.
const MOST: usize = 500;
/// What comes close together goes together.
const GATHER: Duration = Duration::from_millis(200);
/// Between two attempts, at first and at last.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Where records go besides the trail.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ExportOptions {
    /// Hand records on to this URL: POST of {"events": [...]}, as OCSF has them.
    #[arg(long, value_name = "URL")]
    pub export_webhook: Option<Uri>,
    /// Token for it, sent as Authorization: Bearer. Read again for each request.
    #[arg(long, value_name = "FILE", requires = "export_webhook")]
    pub export_webhook_token: Option<PathBuf>,
    /// Hand records on to a collector of OpenTelemetry logs, by HTTP with JSON, such as `https://collector:4318/v1/logs`.
    #[arg(long, value_name = "URL")]
    pub export_otlp: Option<Uri>,
    /// Token for it, sent as Authorization: Bearer. Read again for each request.
    #[arg(long, value_name = "FILE", requires = "export_otlp")]
    pub export_otlp_token: Option<PathBuf>,
    /// A store that keeps copies.
    #[command(flatten)]
    pub s3: S3Options,
    /// Whom to trust for all of them, as PEM. Absent: those that the web trusts.
    #[arg(long, value_name = "FILE")]
    pub export_ca: Option<PathBuf>,
}

impl ExportOptions {
    /// The collectors.
    ///
    /// # Errors
    /// What is wrong with an option.
    pub(super) fn collectors(&self) -> anyhow::Result<Vec<Collector>> {
        let wanted = [
            (Shape::Webhook, &self.export_webhook, &self.export_webhook_token),
            (Shape::Otlp, &self.export_otlp, &self.export_otlp_token),
        ];
        let mut all = Vec::new();
        for (shape, url, token) in wanted {
            if let Some(url) = url {
                let target = Target::new(url.clone(), token.clone(), self.export_ca.clone());
                let target = target.with_context(|| format!("--export-{}", shape.as_str()))?;
                all.push(Collector { shape, target, next: Arc::default() });
            }
        }
        Ok(all)
    }
}

impl ExportOptions {
    /// The store that keeps copies, if one is named.
    ///
    /// # Errors
    /// What is wrong with an option.
    pub(super) fn store(&self) -> anyhow::Result<Option<Store>> {
        Store::new(&self.s3, self.export_ca.clone()).context("--export-s3")
    }
}

/// One that takes records.
pub(super) struct Collector {
    shape: Shape,
    target: Target,
    /// The first entry that it has not taken.
    next: Arc<std::sync::atomic::AtomicU64>,
}

/// How far behind a collector is, for metrics.
#[derive(Clone)]
pub(super) struct Lag(&'static str, Arc<std::sync::atomic::AtomicU64>);

impl Lag {
    /// The collector's name, and how many entries of a trail of this size it has not taken.
    pub(super) fn read(&self, size: u64) -> (&'static str, u64) {
        (self.0, size.saturating_sub(self.1.load(std::sync::atomic::Ordering::Relaxed)))
    }
}

impl Collector {
    pub(super) fn lag(&self) -> Lag {
        Lag(self.shape.as_str(), self.next.clone())
    }

    /// Hands over for ever, from where it was.
    pub(super) async fn follow(
        self,
        directory: Directory,
        mut committed: watch::Receiver<Arc<Committed>>,
    ) -> anyhow::Result<()> {
        let cursor = directory.file(&format!("cursor-{}", self.shape.as_str()));
        let mut next = read_cursor(&cursor)?;
        loop {
            let now = committed.borrow_and_update().clone();
            // A trail that was begun anew is handed on from its beginning.
            next = if next > now.size { 0 } else { next };
            while next < now.size {
                self.next.store(next, std::sync::atomic::Ordering::Relaxed);
                let (from, now, directory) = (next, now.clone(), directory.clone());
                let read = tokio::task::spawn_blocking(move || some(&directory, from, &now)).await?;
                let (entries, after) = read.context("the trail can't be read")?;
                if !entries.is_empty() {
                    self.until_taken(&entries).await;
                }
                next = after;
                write_cursor(&cursor, &next.to_string())?;
            }
            self.next.store(next, std::sync::atomic::Ordering::Relaxed);
            if committed.changed().await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Sends a batch; it is taken if the answer says so.
    async fn send(&self, body: Bytes) -> anyhow::Result<()> {
        let said = self.target.post(None, body).await?;
        let words = printable(&String::from_utf8_lossy(&said.body), 200);
        ensure!(said.status.is_success(), "status {}: {words}", said.status);
        Ok(())
    }

    async fn until_taken(&self, entries: &[Entry]) {
        let body = self.shape.body(entries);
        let mut pause = RETRY.0;
        while let Err(error) = self.send(body.clone()).await {
            let (collector, error) = (self.shape.as_str(), format!("{error:#}"));
            tracing::warn!(
                collector,
                error,
                entries = entries.len(),
                "records are not taken, and are offered again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }
}

/// Entries from this one on, of one segment, and where the next begin. What was removed is left out.
fn some(directory: &Directory, from: u64, committed: &Committed) -> std::io::Result<(Vec<Entry>, u64)> {
    let first = segment_of(from);
    let end = (first + SEGMENT_ENTRIES).min(committed.size);
    let bytes = match read::segment(directory, first, committed) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), end)),
        bytes => bytes?,
    };
    let all = entries(&bytes).skip(place(from).0).take(MOST);
    let read: Vec<Entry> =
        all.map(|line| Entry::read(line).map_err(std::io::Error::other)).collect::<std::io::Result<_>>()?;
    let after = from + read.len() as u64;
    Ok((read, after))
}

fn read_cursor(file: &std::path::Path) -> anyhow::Result<u64> {
    let Some(text) = read_cursor_text(file)? else { return Ok(0) };
    text.trim().parse().with_context(|| format!("{} has no number", file.display()))
}

/// None where nothing was handed on yet.
fn read_cursor_text(file: &std::path::Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| format!("can't read {}", file.display())),
    }
}

/// Half a number never stands in the place of a whole one. After a crash the last batch may be handed on again.
fn write_cursor(file: &std::path::Path, next: &str) -> anyhow::Result<()> {
    let part = file.with_extension("part");
    std::fs::write(&part, next)?;
    std::fs::rename(&part, file)?;
    Ok(())
}

#[cfg(test)]
mod tests;
