//! Where things live: the checkout, the user's cache, the run folders. Names paths; makes and removes nothing.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The variable that moves the run folders of local clusters away from `/tmp`.
pub(crate) const RUN_BASE: &str = "GLOVEBOX_RUN_BASE";

/// The checkout this program was compiled from.
pub(crate) fn checkout() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The project's part of the user's cache: `$XDG_CACHE_HOME/glovebox`, or `~/.cache/glovebox`.
pub(crate) fn cache() -> Result<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    match base {
        Some(base) => Ok(base.join("glovebox")),
        None => bail!("no folder for a cache: set HOME or XDG_CACHE_HOME to an absolute path"),
    }
}

/// Where cargo builds for tests and images: `$CARGO_TARGET_DIR` if it is set, or else the user's cache, so that a fresh clone
/// compiles no dependency a second time.
pub(crate) fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => Ok(PathBuf::from(dir)),
        _ => Ok(cache()?.join("target")),
    }
}

/// The folder that holds the run folders of local clusters: `$GLOVEBOX_RUN_BASE`, or `/tmp`.
///
/// Not `$XDG_RUNTIME_DIR`: that is a small tmpfs on most machines, and images of some hundred megabytes a
/// node are unpacked here. Not `$TMPDIR`: `up` and `down` must find the same folder from any shell.
pub(crate) fn run_base() -> PathBuf {
    env::var_os(RUN_BASE)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/tmp"))
}
