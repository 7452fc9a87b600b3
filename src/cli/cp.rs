//! `cp`: files and directories into a sandbox's workspace and out of it. One side is here, the other there.
//!
//! What comes from there is hostile: it is written below the destination alone, and a file appears when all of it has come.

mod here;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::{
    cluster::Cluster,
    exec::write,
    fault::{Fault, Outcome},
    interrupt::Signals,
    options::{ClusterOptions, SessionOptions},
    progress::say,
    session::{Session, place},
};
use crate::session::{FileInfo, FileKind};
use here::Scratch;

/// Copies files and directories into a sandbox's workspace, or out of it.
///
/// NAME:PATH is a path below the workspace of a sandbox; one side has to be one. A directory is copied with all that is in it, but
/// without links and special files. What is there already is replaced.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  glovebox cp report.md review-42:docs/report.md
  glovebox cp review-42:docs/report.md .
  glovebox cp ./src review-42:src
  glovebox cp review-42: ./everything
  glovebox cp review-42:result.json - | jq .

You need `get` on agentsandboxes/files to copy out, and `update` to copy in.")]
pub struct Options {
    /// What is copied: a path here, NAME:PATH, or - for standard input.
    from: String,
    /// Where to: a path here, NAME:PATH, or - for standard output.
    to: String,
    #[command(flatten)]
    cluster: ClusterOptions,
    #[command(flatten)]
    session: SessionOptions,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Side {
    Here(PathBuf),
    /// Standard input or output.
    Stream,
    There(String, String),
}

impl Side {
    /// As `scp` reads it: what has a `:` before any `/` is there.
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Stream,
            Some((name, path)) if !name.is_empty() && !name.contains('/') => {
                Self::There(name.to_owned(), path.trim_matches('/').to_owned())
            }
            _ => Self::Here(text.into()),
        }
    }
}

/// Carries it out.
pub(super) async fn cp(options: Options) -> Outcome {
    let sides = (Side::parse(&options.from), Side::parse(&options.to));
    if matches!(
        sides,
        (Side::There(..), Side::There(..)) | (Side::Here(_) | Side::Stream, Side::Here(_) | Side::Stream)
    ) {
        return Err(Fault::usage("one side has to be in a sandbox, NAME:PATH, and the other one here"));
    }
    Signals::catch()?
        .unless(async {
            let cluster = Cluster::open(&options.cluster).await?;
            let session = Session::open(&cluster, &options.session).await?;
            match sides {
                (from, Side::There(name, path)) => {
                    let mut there = There { session, files: files(&cluster, &name), path };
                    there.upload(&from).await?;
                }
                (Side::There(name, path), to) => {
                    let mut there = There { session, files: files(&cluster, &name), path };
                    there.download(&to).await?;
                }
                _ => bail!("nothing is to be copied; report this"),
            }
            Ok(0)
        })
        .await
}

fn files(cluster: &Cluster, name: &str) -> String {
    place(&cluster.namespace, name) + "/files"
}

/// A path in a workspace.
struct There {
    session: Session,
    files: String,
    path: String,
}

impl There {
    fn at(&self, below: &str, path: &str) -> String {
        let path = percent_encoding::utf8_percent_encode(path, percent_encoding::NON_ALPHANUMERIC);
        format!("{}{below}?path={path}", self.files)
    }

    /// What is at the path; nothing if nothing is.
    async fn look(&mut self) -> anyhow::Result<Option<FileKind>> {
        // The workspace itself is always there.
        if self.path.is_empty() {
            return Ok(Some(FileKind::Directory));
        }
        let asked: anyhow::Result<FileInfo> =
            self.session.get(&self.at("/entry", &self.path), super::session::ANSWERED).await;
        match asked {
            Ok(info) => Ok(Some(info.kind)),
            Err(error) if super::session::reason(&error) == Some("NoSuchFile") => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn upload(&mut self, from: &Side) -> anyhow::Result<()> {
        let (scratch, name) = match from {
            Side::Here(path) if path.is_dir() => {
                let (archive, left_out) = here::pack(path.clone()).await?;
                if left_out > 0 {
                    say(&format!("glovebox: {left_out} links and special files were left out"));
                }
                let to = self.at("/archive", &self.path);
                return self.session.put(&to, archive.open().await?).await;
            }
            Side::Here(path) => (None, path.file_name().map(|name| name.to_string_lossy().into_owned())),
            _ => (Some(Scratch::filled(tokio::io::stdin()).await?), None),
        };
        if let (Some(name), Some(FileKind::Directory)) = (name, self.look().await?) {
            self.path = if self.path.is_empty() { name } else { [self.path.as_str(), &name].join("/") };
        }
        let file = match (scratch, from) {
            (Some(scratch), _) => scratch.open().await?,
            (None, Side::Here(path)) => here::open(path).await?,
            (None, _) => bail!("nothing is to be copied; report this"),
        };
        let to = self.at("", &self.path) + "&parents=true";
        self.session.put(&to, file).await
    }

    async fn download(&mut self, to: &Side) -> anyhow::Result<()> {
        let kind = self.look().await?;
        match (kind, to) {
            (Some(FileKind::Directory), Side::Here(to)) => {
                let archive = self.fetched("/archive", None).await?;
                here::unpack(archive, to.clone()).await
            }
            (Some(FileKind::Directory), _) => {
                Err(Fault::usage("a directory can't be copied to standard output"))
            }
            (_, Side::Here(to)) => {
                let name = self.path.rsplit('/').next().unwrap_or_default();
                let to = if to.is_dir() { to.join(name) } else { to.clone() };
                let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
                let near = parent.unwrap_or_else(|| Path::new(".")).to_owned();
                let whole = self.fetched("", Some(near)).await?;
                whole.becomes(&to).with_context(|| format!("{} can't be written", to.display()))
            }
            _ => {
                let path = self.at("", &self.path);
                let mut pieces = std::pin::pin!(self.session.read(&path).await?);
                let mut out = tokio::io::stdout();
                while let Some(piece) = pieces.next().await {
                    write(&mut out, &piece?).await?;
                }
                Ok(())
            }
        }
    }

    /// All of it, in a file of its own.
    async fn fetched(&mut self, below: &str, near: Option<PathBuf>) -> anyhow::Result<Scratch> {
        let path = self.at(below, &self.path);
        let mut pieces = std::pin::pin!(self.session.read(&path).await?);
        let scratch = Scratch::new(near)?;
        let mut file = scratch.open_to_write().await?;
        while let Some(piece) = pieces.next().await {
            file.write_all(&piece?).await.context("the file can't be written")?;
        }
        file.flush().await.context("the file can't be written")?;
        Ok(scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let there = |name: &str, path: &str| Side::There(name.into(), path.into());
        for (text, side) in [
            ("-", Side::Stream),
            ("a", Side::Here("a".into())),
            ("./a:b", Side::Here("./a:b".into())),
            ("/x/a:b", Side::Here("/x/a:b".into())),
            (":a", Side::Here(":a".into())),
            ("s:", there("s", "")),
            ("s:a/b", there("s", "a/b")),
            ("s:/a/b/", there("s", "a/b")),
        ] {
            assert_eq!(Side::parse(text), side, "{text}");
        }
    }
}
