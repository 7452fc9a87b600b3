//! Owns the one error of the agent's commands: what went wrong, on which file, and the exit status that says so.

use std::fmt;
use std::io;
use std::path::Path;

/// The command line is wrong (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;
/// The agent could not do its own part (`EX_SOFTWARE`).
pub const EXIT_FAULT: u8 = 70;

/// Why a command of the agent ended without doing its work.
#[derive(Debug)]
pub struct Fault {
    exit_code: u8,
    message: String,
}

impl Fault {
    /// A command line that means nothing; `message` says what would be right.
    #[must_use]
    pub fn usage(message: &str) -> Self {
        Self { exit_code: EXIT_USAGE, message: format!("{message}; see glovebox-agent --help") }
    }

    /// Something the agent needs is missing or refused.
    #[must_use]
    pub fn new(message: String) -> Self {
        Self { exit_code: EXIT_FAULT, message }
    }

    /// An operation on `path` that the system refused.
    #[must_use]
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {doing} {}: {error}", path.display()))
    }

    /// The status to exit with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
