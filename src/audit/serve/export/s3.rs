//! Copies the trail into an S3-compatible store, whose objects nobody can change or remove before their time, if it locks them.
//!
//! Objects are the trail's own lines, in pieces: each is named by its first entry, and all of a segment one behind the other are its
//! file. A directory with all of them is a trail that can be verified.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use axum::{
    body::Bytes,
    http::{Request, Uri},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, time::Instant};

use super::{Lag, RETRY, read_cursor_text, write_cursor};
use crate::{
    api::Span,
    audit::{
        directory::Directory,
        entry::Entry,
        printable,
        serve::read,
        walk::{SEGMENT_ENTRIES, entries, segment_name},
        writer::Committed,
    },
    post::Target,
};

/// Where it is written down how far it was.
const CURSOR: &str = "cursor-s3";
/// Most bytes of a piece, unless its first lines are longer.
const MOST: usize = 8 * 1024 * 1024;
/// How often what was added to the newest segment is copied.
const EVERY: Duration = Duration::from_secs(60);
const LEAST: Duration = Duration::from_secs(1);
/// The hashes of whole segments, which a copy without the oldest of them is verified by.
const ROOTS: &str = crate::audit::directory::ROOTS;
/// How long a signature holds.
const SIGNED: Duration = Duration::from_secs(300);
/// Files of the credentials.
const ACCESS_KEY: &str = "accessKeyId";
const SECRET_KEY: &str = "secretAccessKey";

/// A store that keeps copies.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct S3Options {
    /// Copy the trail into this bucket of an S3-compatible store: `https://HOST/BUCKET/PREFIX`.
    #[arg(id = "export_s3", long = "export-s3", value_name = "URL", requires = "export_s3_credentials")]
    pub url: Option<Uri>,
    /// The store's region; us-east-1 if absent.
    #[arg(id = "export_s3_region", long = "export-s3-region", value_name = "NAME")]
    pub region: Option<String>,
    /// Directory with the files accessKeyId and secretAccessKey. Read again for each object.
    #[arg(id = "export_s3_credentials", long = "export-s3-credentials", value_name = "DIR")]
    pub credentials: Option<PathBuf>,
    /// Lock each object for so many days, in compliance mode. The bucket must have been made with object lock.
    #[arg(id = "export_s3_lock_days", long = "export-s3-lock-days", value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=36500))]
    pub lock_days: Option<u16>,
    /// How often what was added to the newest segment is copied; 60s if absent.
    #[arg(id = "export_s3_every", long = "export-s3-every", value_name = "SPAN", value_parser = |text: &str| text.parse::<Span>())]
    pub every: Option<Span>,
}

/// Where in the trail: the first entry of a segment, and bytes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct At {
    segment: u64,
    offset: usize,
}

/// Lines that become an object.
struct Piece {
    /// The first entry in them, and the first behind them.
    from: u64,
    to: u64,
    bytes: Vec<u8>,
    next: At,
}

/// A bucket, and how it is reached.
pub(in crate::audit::serve) struct Store {
    bucket: Bucket,
    prefix: String,
    credentials: PathBuf,
    lock: Option<u16>,
    every: Duration,
    target: Target,
    /// The first entry that is not copied.
    next: Arc<AtomicU64>,
}

impl Store {
    /// Of the options; none where none is named.
    ///
    /// # Errors
    /// What is wrong with one.
    pub(super) fn new(options: &S3Options, ca: Option<PathBuf>) -> anyhow::Result<Option<Self>> {
        let Some(url) = &options.url else { return Ok(None) };
        let target = Target::new(url.clone(), None, ca)?;
        let path = url.path().trim_matches('/');
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        ensure!(!bucket.is_empty(), "the URL names no bucket: expected https://HOST/BUCKET/PREFIX");
        let scheme = url.scheme_str().unwrap_or_default();
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let endpoint = format!("{scheme}://{authority}").parse().context("the URL")?;
        let region = options.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, bucket.to_owned(), region)?;
        // What is signed is the name of the host as URLs are written.
        let signed = bucket.base_url();
        let port = signed.port().map(|port| format!(":{port}")).unwrap_or_default();
        let signed = format!("{}{port}", signed.host_str().unwrap_or_default());
        ensure!(signed == authority, "write the URL's host as {signed:?}, and not as {authority:?}");
        let every = options.every.map_or(EVERY, Span::duration);
        ensure!(every >= LEAST, "--export-s3-every must be at least 1s");
        let credentials = options.credentials.clone().context("--export-s3-credentials is needed")?;
        keys(&credentials)?;
        Ok(Some(Self {
            bucket,
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            credentials,
            lock: options.lock_days,
            every,
            target,
            next: Arc::default(),
        }))
    }

    pub(in crate::audit::serve) fn lag(&self) -> Lag {
        Lag("s3", self.next.clone())
    }

    /// Copies for ever, from where it was.
    ///
    /// # Errors
    /// When the trail can't be read, or where it was can't be written down.
    pub(in crate::audit::serve) async fn follow(
        &self,
        directory: Directory,
        mut committed: watch::Receiver<Arc<Committed>>,
    ) -> anyhow::Result<()> {
        let cursor = directory.file(CURSOR);
        let Place { mut trail, mut at } = match read_place(&cursor)? {
            Some(place) => place,
            None => Place::begin(&directory)?,
        };
        let mut due = Instant::now();
        loop {
            let now = committed.borrow_and_update().clone();
            // A trail that was begun anew is another one.
            if at.segment > now.segment {
                Place { trail, at } = Place::begin(&directory)?;
            }
            let newest = at.segment == now.segment;
            if !newest || Instant::now() >= due {
                let (from, of, reads) = (at, now.clone(), directory.clone());
                let piece = tokio::task::spawn_blocking(move || piece(&reads, from, &of)).await?;
                if let Some(piece) = piece.context("the trail can't be read")? {
                    self.next.store(piece.from, Ordering::Relaxed);
                    self.until_kept(&format!("{trail}/{}", segment_name(piece.from)), piece.bytes).await;
                    self.next.store(piece.to, Ordering::Relaxed);
                    if piece.next.segment > at.segment {
                        let roots = std::fs::read(directory.file(ROOTS)).unwrap_or_default();
                        self.until_kept(&format!("{trail}/{ROOTS}"), roots).await;
                    }
                    at = piece.next;
                    write_cursor(&cursor, &format!("{trail} {} {}", at.segment, at.offset))?;
                    continue;
                }
                due = Instant::now() + self.every;
            }
            tokio::select! {
                changed = committed.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    async fn until_kept(&self, name: &str, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let mut pause = RETRY.0;
        while let Err(error) = self.put(name, bytes.clone()).await {
            let error = format!("{error:#}");
            tracing::warn!(error, name, "the store does not keep a part of the trail, and is asked again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    async fn put(&self, name: &str, bytes: Bytes) -> anyhow::Result<()> {
        let credentials = keys(&self.credentials)?;
        let name = format!("{}{name}", self.prefix);
        let mut headers = vec![
            ("x-amz-checksum-sha256", BASE64_STANDARD.encode(Sha256::digest(&bytes))),
            ("x-amz-sdk-checksum-algorithm", "SHA256".to_owned()),
        ];
        if let Some(days) = self.lock {
            let until = Timestamp::now() + SignedDuration::from_hours(24 * i64::from(days));
            headers.push(("x-amz-object-lock-mode", "COMPLIANCE".to_owned()));
            headers.push(("x-amz-object-lock-retain-until-date", format!("{until:.0}")));
        }
        let mut action = self.bucket.put_object(Some(&credentials), &name);
        for (header, value) in &headers {
            action.headers_mut().insert(*header, value.clone());
        }
        let url = action.sign(SIGNED);
        let mut request = Request::put(format!("{}?{}", url.path(), url.query().unwrap_or_default()));
        for (header, value) in headers {
            request = request.header(header, value);
        }
        let said = self.target.send(None, request, bytes).await?;
        if !said.status.is_success() {
            bail!("status {}: {}", said.status, printable(&String::from_utf8_lossy(&said.body), 300));
        }
        Ok(())
    }
}

/// The credentials, as they are in their files now.
fn keys(folder: &Path) -> anyhow::Result<Credentials> {
    let read = |name: &str| {
        let file = folder.join(name);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
        let text = text.trim().to_owned();
        ensure!(!text.is_empty(), "{} is empty", file.display());
        Ok(text)
    };
    Ok(Credentials::new(read(ACCESS_KEY)?, read(SECRET_KEY)?))
}

/// What comes next, if there is something. What was removed before it was copied is told, and left out.
fn piece(directory: &Directory, mut at: At, committed: &Committed) -> io::Result<Option<Piece>> {
    loop {
        let bytes = match read::segment(directory, at.segment, committed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && at.segment < committed.segment => {
                tracing::error!(from = at.segment, "entries were removed before they were copied");
                at = At { segment: at.segment + SEGMENT_ENTRIES, offset: 0 };
                continue;
            }
            bytes => bytes?,
        };
        let rest = bytes.get(at.offset..).unwrap_or_default();
        let whole = at.segment < committed.segment;
        let end = cut(rest);
        let part = rest.get(..end).unwrap_or_default();
        let Some(first) = entries(part).next() else {
            if !whole {
                return Ok(None);
            }
            at = At { segment: at.segment + SEGMENT_ENTRIES, offset: 0 };
            continue;
        };
        let from = Entry::read(first).map_err(io::Error::other)?.n;
        let next = if whole && end == rest.len() {
            At { segment: at.segment + SEGMENT_ENTRIES, offset: 0 }
        } else {
            At { offset: at.offset + end, ..at }
        };
        let to = from + entries(part).count() as u64;
        return Ok(Some(Piece { from, to, bytes: part.to_vec(), next }));
    }
}

/// How many of these bytes become one object: all, or as many as end behind a checkpoint, so that none is only a checkpoint.
fn cut(bytes: &[u8]) -> usize {
    if bytes.len() <= MOST {
        return bytes.len();
    }
    let (mut at, mut end) = (0, 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        if at > MOST && end > 0 {
            return end;
        }
        // A checkpoint is one line, a text.
        if line.first() == Some(&b'"') {
            end = at;
        }
    }
    if end > 0 { end } else { bytes.len() }
}

/// Which trail it is that is copied, and how far it was.
struct Place {
    trail: String,
    at: At,
}

impl Place {
    /// Where nothing was copied: at the oldest that is there. A trail that is begun anew does not come to stand where another one does.
    fn begin(directory: &Directory) -> anyhow::Result<Self> {
        let segment = directory.segments()?.first().copied().unwrap_or_default();
        let trail = Timestamp::now().as_millisecond().to_string();
        Ok(Self { trail, at: At { segment, offset: 0 } })
    }
}

fn read_place(cursor: &Path) -> anyhow::Result<Option<Place>> {
    let Some(text) = read_cursor_text(cursor)? else { return Ok(None) };
    let bad = || format!("{} has no trail, segment and offset", cursor.display());
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [trail, segment, offset] = parts.as_slice() else { bail!(bad()) };
    let at = At { segment: segment.parse().with_context(bad)?, offset: offset.parse().with_context(bad)? };
    Ok(Some(Place { trail: (*trail).to_owned(), at }))
}

#[cfg(test)]
mod tests;
