//! The commands that process 1 and its helpers start for themselves: `keep`, `call`, `file` and `stage`. Whoever else runs them gets
//! nothing that they could not do without.

use std::ffi::OsString;
use std::path::PathBuf;

use super::words::{Words, push, unknown};
use crate::agent::fault::Fault;

/// Options of `stage`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StageArgs {
    /// Whether standard output is to be the controlling terminal.
    pub terminal: bool,
    /// Whether sockets are denied.
    pub no_network: bool,
    /// Where alone may be written, if that is limited.
    pub write: Option<Vec<PathBuf>>,
    /// The file to execute.
    pub file: PathBuf,
    /// The command's words; never empty.
    pub command: Vec<OsString>,
}

/// The workload's command.
pub(super) fn keep(mut words: Words) -> Result<Vec<OsString>, Fault> {
    match words.option("keep")?.as_deref() {
        Some("--") => command(words, "keep"),
        Some(option) => Err(unknown(option, "keep")),
        None => Err(Fault::usage("keep needs a command after --")),
    }
}

pub(super) fn call(mut words: Words) -> Result<(), Fault> {
    match words.option("call")? {
        Some(option) => Err(unknown(&option, "call")),
        None => Ok(()),
    }
}

/// The workspace.
pub(super) fn file(mut words: Words) -> Result<PathBuf, Fault> {
    match words.option("file")?.as_deref() {
        Some("--workspace") => words.absolute("--workspace"),
        Some(option) => Err(unknown(option, "file")),
        None => Err(Fault::usage("file needs --workspace")),
    }
}

pub(super) fn stage(mut words: Words) -> Result<StageArgs, Fault> {
    let mut stage = StageArgs::default();
    while let Some(option) = words.option("stage")? {
        match option.as_str() {
            "--terminal" => stage.terminal = true,
            "--no-network" => stage.no_network = true,
            "--write-nowhere" => stage.write = Some(stage.write.unwrap_or_default()),
            "--write" => {
                let path = words.absolute(&option)?;
                push(stage.write.get_or_insert_default(), &option, path)?;
            }
            "--file" => stage.file = words.value(&option)?.into(),
            "--" => {
                stage.command = command(words, "stage")?;
                return Ok(stage);
            }
            _ => return Err(unknown(&option, "stage")),
        }
    }
    Err(Fault::usage("stage needs a command after --"))
}

fn command(words: Words, of: &str) -> Result<Vec<OsString>, Fault> {
    let command: Vec<OsString> = words.inner.collect();
    if command.is_empty() {
        return Err(Fault::usage(&format!("{of} needs a command after --")));
    }
    Ok(command)
}
