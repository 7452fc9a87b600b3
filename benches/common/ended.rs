//! How a benchmark ends: 0 if every bound holds, or else 1 and why.

use std::process::ExitCode;

/// Says what went wrong, if something did.
pub(crate) fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
