//! Owns what runs inside a sandbox's pod: the init step, which looks at the kernel before the workload exists, and the
//! supervisor, which is process 1 of the workload's container and has calls run there.
//!
//! Must hold no secret and no authority, must take nothing from the workload on trust, and must link no async runtime
//! and no Kubernetes client. Everything but [`init`] runs as the workload's own user beside it.

use std::ffi::OsString;
use std::process::ExitCode;

pub mod args;
pub mod calls;
pub mod descriptor;
pub mod environment;
pub mod fault;
pub mod fence;
pub mod files;
pub mod home;
pub mod init;
pub mod keeper;
pub mod kernel;
pub mod last_words;
pub mod launch;
pub mod oom;
pub mod record;
pub mod sentry;
pub mod signals;
pub mod supervise;
pub mod trust;
pub mod workload;

use args::Command;
use fault::Fault;

/// Runs the command line (without the program's name) to its end and gives the status to exit with.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match args::parse(arguments).and_then(perform) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("glovebox-agent: {fault}");
            ExitCode::from(fault.exit_code())
        }
    }
}

fn perform(command: Command) -> Result<u8, Fault> {
    match command {
        Command::Help => {
            print!("{}", args::HELP);
            Ok(0)
        }
        Command::Version => {
            println!("glovebox-agent {}", env!("CARGO_PKG_VERSION"));
            Ok(0)
        }
        Command::Init(options) => init::init(&options),
        Command::Run(options) => supervise::run(&options),
        Command::Idle(options) => supervise::idle(&options),
        Command::Keep(command) => keeper::keep(&command),
        Command::Call => calls::call(),
        Command::File(workspace) => files::file(&workspace),
        Command::Stage(options) => calls::stage(&options),
        Command::Look(fence) => Ok(sentry::glance(&fence)),
    }
}
