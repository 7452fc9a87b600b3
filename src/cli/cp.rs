//! `cp`: files and directories into a sandbox's workspace and out of it. One side is here, the other there.
//!
//! What comes from there is hostile: it is written below the destination alone, and a file appears when all of it has come.

mod here;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;

use super::{
    cluster::Cluster,
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
    Here(Here),
    There(String, String),
}

/// The side that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Here {
    Path(PathBuf),
    /// Standard input or output.
    Stream,
}

impl Side {
    /// As `scp` reads it: what has a `:` before any `/` is there.
    fn parse(text: &str) -> Self {
        match text.split_once(':') {
            _ if text == "-" => Self::Here(Here::Stream),
            Some((name, path)) if !name.is_empty() && !name.contains('/') => {
                Self::There(name.to_owned(), path.trim_matches('/').to_owned())
            }
            _ => Self::Here(Here::Path(text.into())),
        }
    }
}

/// Carries it out.
pub(super) async fn cp(options: Options) -> Outcome {
    let (here, name, path, up) = match (Side::parse(&options.from), Side::parse(&options.to)) {
        (Side::Here(here), Side::There(name, path)) => (here, name, path, true),
        (Side::There(name, path), Side::Here(here)) => (here, name, path, false),
        _ => {
            return Err(Fault::usage("one side has to be in a sandbox, NAME:PATH, and the other one here"));
        }
    };
    Signals::catch()?
        .unless(async {
            let cluster = Cluster::open(&options.cluster).await?;
            let session = Session::open(&cluster, &options.session).await?;
            let files = place(&cluster.namespace, &name) + "/files";
            let mut there = There { session, files, path };
            if up {
                there.upload(here).await?;
            } else {
                there.download(here).await?;
            }
            Ok(0)
        })
        .await
}

/// A path in a workspace.
struct There {
    session: Session,
    files: String,
    path: String,
}

impl There {
    fn at(&self, below: &str) -> String {
        let path = percent_encoding::utf8_percent_encode(&self.path, percent_encoding::NON_ALPHANUMERIC);
        format!("{}{below}?path={path}", self.files)
    }

    /// What is at the path; nothing if nothing is.
    async fn look(&mut self) -> anyhow::Result<Option<FileKind>> {
        // The workspace itself is always there.
        if self.path.is_empty() {
            return Ok(Some(FileKind::Directory));
        }
        let asked: anyhow::Result<FileInfo> =
            self.session.get(&self.at("/entry"), super::session::ANSWERED).await;
        match asked {
            Ok(info) => Ok(Some(info.kind)),
            Err(error) if super::session::reason(&error) == Some("NoSuchFile") => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn upload(&mut self, from: Here) -> anyhow::Result<()> {
        let file = match from {
            Here::Path(folder) if folder.is_dir() => {
                let (archive, left_out) = here::pack(folder).await?;
                if left_out > 0 {
                    say(&format!("glovebox: {left_out} links and special files were left out"));
                }
                let to = self.at("/archive");
                return self.session.put(&to, archive.open().await?).await;
            }
            Here::Path(path) => {
                if let (Some(name), Some(FileKind::Directory)) = (path.file_name(), self.look().await?) {
                    let name = name.to_string_lossy();
                    self.path =
                        if self.path.is_empty() { name.into() } else { format!("{}/{name}", self.path) };
                }
                here::open(&path).await?
            }
            // What is open can still be read when its name is gone.
            Here::Stream => Scratch::filled(tokio::io::stdin()).await?.open().await?,
        };
        let to = self.at("") + "&parents=true";
        self.session.put(&to, file).await
    }

    async fn download(&mut self, to: Here) -> anyhow::Result<()> {
        match (self.look().await?, to) {
            (Some(FileKind::Directory), Here::Path(to)) => {
                here::unpack(self.fetched("/archive", None).await?, to).await
            }
            (Some(FileKind::Directory), Here::Stream) => {
                Err(Fault::usage("a directory can't be copied to standard output"))
            }
            (_, Here::Path(to)) => {
                let name = self.path.rsplit('/').next().unwrap_or_default();
                let to = if to.is_dir() { to.join(name) } else { to };
                let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
                let near = parent.unwrap_or_else(|| Path::new(".")).to_owned();
                let whole = self.fetched("", Some(near)).await?;
                whole.becomes(&to).with_context(|| format!("{} can't be written", to.display()))
            }
            (_, Here::Stream) => {
                let path = self.at("");
                self.session.hand_on(&path).await
            }
        }
    }

    /// All of it, in a file of its own.
    async fn fetched(&mut self, below: &str, near: Option<PathBuf>) -> anyhow::Result<Scratch> {
        let path = self.at(below);
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
        let here = |path: &str| Side::Here(Here::Path(path.into()));
        let there = |name: &str, path: &str| Side::There(name.into(), path.into());
        for (text, side) in [
            ("-", Side::Here(Here::Stream)),
            ("a", here("a")),
            ("./a:b", here("./a:b")),
            ("/x/a:b", here("/x/a:b")),
            (":a", here(":a")),
            ("s:", there("s", "")),
            ("s:a/b", there("s", "a/b")),
            ("s:/a/b/", there("s", "a/b")),
        ] {
            assert_eq!(Side::parse(text), side, "{text}");
        }
    }
}
