//! `completion`: what shells need.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Plugin, fault::Outcome, print};

/// Prints what a shell needs to complete the commands of glovebox.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  source <(glovebox completion bash)
  glovebox completion zsh > ~/.zfunc/_glovebox
  glovebox completion fish > ~/.config/fish/completions/glovebox.fish")]
pub struct Options {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Carries it out.
pub(super) fn completion(options: &Options) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Plugin::command(), "glovebox", &mut script);
    print::words(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
