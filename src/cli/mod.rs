//! What a person runs: sandboxes made, used, looked at and ended from a terminal, and a cluster examined.
//!
//! Owns arguments, words and exit codes. Contains no rule: what a sandbox may is the cluster's word, and what becomes of a call the
//! session's. Everything that comes from a sandbox is hostile: it reaches a terminal raw only as the output of a call that was asked
//! for, and escaped everywhere else.

mod approvals;
pub mod audit;
mod caller;
mod cluster;
mod completion;
mod connect;
mod cp;
mod create;
mod delete;
mod describe;
mod doctor;
mod events;
mod exec;
mod extend;
mod fault;
mod interrupt;
mod lines;
mod list;
mod live;
mod logs;
mod options;
mod print;
mod progress;
mod run;
mod session;
mod spec;
mod text;
mod top;
mod wait;

use std::{ffi::OsStr, path::Path};

use clap::{Parser, Subcommand};

use self::fault::Outcome;
pub use self::fault::{DEADLINE, FAILED, code};

/// What a person can do.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "what each does stands at its options, where `--help` has it from")]
pub enum Command {
    Run(Box<run::Options>),
    Create(Box<create::Options>),
    Exec(Box<exec::Options>),
    Cp(Box<cp::Options>),
    Logs(logs::Options),
    #[command(visible_alias = "ls")]
    List(list::Options),
    Describe(describe::Options),
    Top(top::Options),
    Extend(extend::Options),
    Delete(delete::Options),
    Doctor(Box<doctor::Options>),
    /// What sandboxes want that no rule names: look at it, and decide.
    #[command(subcommand)]
    Approvals(Box<approvals::Command>),
    /// What was done: read the record, and hold it against its checkpoints.
    #[command(subcommand)]
    Audit(Box<audit::Command>),
    Completion(completion::Options),
}

/// The same alone, as `kubectl glovebox` has it.
#[derive(Debug, Parser)]
#[command(name = "glovebox", version, about = "Sandboxes for AI agents on Kubernetes", propagate_version = true, after_help = fault::CODES)]
pub struct Plugin {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What kubectl looks for, as it calls its plugins.
const PLUGIN: &str = "kubectl-glovebox";

/// Whether the program was called as a plugin of kubectl, by the name that it was called by.
#[must_use]
pub fn is_plugin(program: Option<&OsStr>) -> bool {
    program.map(Path::new).and_then(Path::file_stem).is_some_and(|name| name == PLUGIN)
}

impl Plugin {
    /// Reads the command line of a plugin; ends the program where it is wrong.
    #[must_use]
    pub fn of_kubectl() -> Self {
        use clap::{CommandFactory as _, FromArgMatches as _};
        let given = Self::command().bin_name("kubectl glovebox").get_matches();
        Self::from_arg_matches(&given).unwrap_or_else(|error| error.exit())
    }
}

/// Carries it out. The code is what the program is to end with; an error is told on standard error first.
pub async fn carry_out(command: Command) -> u8 {
    // On the heap each, or the largest of them would be the size of all.
    let outcome = match command {
        Command::Run(options) => Box::pin(run::run(*options)).await,
        Command::Create(options) => Box::pin(create::create(*options)).await,
        Command::Exec(options) => Box::pin(exec::exec(*options)).await,
        Command::Cp(options) => Box::pin(cp::cp(*options)).await,
        Command::Logs(options) => Box::pin(logs::logs(options)).await,
        Command::List(options) => Box::pin(list::list(options)).await,
        Command::Describe(options) => Box::pin(describe::describe(options)).await,
        Command::Top(options) => Box::pin(top::top(options)).await,
        Command::Extend(options) => Box::pin(extend::extend(options)).await,
        Command::Delete(options) => Box::pin(delete::delete(options)).await,
        Command::Doctor(options) => Box::pin(doctor::doctor(*options)).await,
        Command::Approvals(command) => Box::pin(approvals::carry_out(*command)).await,
        Command::Audit(command) => Box::pin(audit::carry_out(*command)).await,
        Command::Completion(options) => completion::completion(&options),
    };
    told(outcome)
}

fn told(outcome: Outcome) -> u8 {
    outcome.unwrap_or_else(|error| {
        let code = code(&error);
        let words = text::lines(&format!("{error:#}"));
        if !words.is_empty() {
            progress::say(&format!("error: {words}"));
        }
        code
    })
}

#[cfg(test)]
mod tests;
