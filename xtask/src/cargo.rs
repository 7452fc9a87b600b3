//! How cargo is called: the one that runs this, in the checkout, with everything it builds in the user's cache.

use std::{env, ffi::OsStr, process::Command};

use anyhow::Result;

use crate::paths;

/// `cargo` with these arguments.
pub(crate) fn cargo(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Command> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(paths::checkout()).env("CARGO_TARGET_DIR", paths::target()?).args(arguments);
    Ok(command)
}

/// This machine's target, named: what is given flags of its own must not give them to build scripts as well.
pub(crate) fn target() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}
