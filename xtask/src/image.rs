//! The project's images, made on this machine without a registry or an engine: Glovebox itself, and the tools image that
//! the demo and the tests run sandboxes in. Each is an OCI archive in the user's cache under a name that changes with
//! what it is made of, so that making it again costs nothing. Knows no cluster.

mod oci;
mod product;
mod store;
mod tools;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use self::store::Store;

/// The tools image; its tag is raised when something that was in it goes away.
pub(crate) const TOOLS_NAME: &str = "glovebox.dev/tools:1";

/// Images as OCI archives in the user's cache; prints name and file of each.
#[derive(Args)]
pub(crate) struct ImageArgs {
    /// Which image.
    which: Which,
    /// Make it anew though nothing of ours changed: Debian's packages may have.
    #[arg(long)]
    rebuild: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Glovebox: controller and agent, static, from scratch.
    Product,
    /// Debian with Python, Node.js, Git and a C compiler, for sandboxes.
    Tools,
    /// Both.
    All,
}

/// An image that was made.
pub(crate) struct Built {
    /// Its name and tag.
    pub(crate) name: String,
    /// Its OCI archive; the file's name changes with the content.
    pub(crate) path: PathBuf,
}

/// `cargo xtask image`.
pub(crate) fn run(args: &ImageArgs) -> Result<ExitCode> {
    let store = Store::open()?;
    let mut built = Vec::new();
    if args.which != Which::Tools {
        built.push(product::make(&store, args.rebuild)?);
    }
    if args.which != Which::Product {
        built.push(tools::make(&store, args.rebuild)?);
    }
    let mut out = io::stdout().lock();
    for image in built {
        writeln!(out, "{}\t{}", image.name, image.path.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Glovebox's image, made if its programs changed.
pub(crate) fn product() -> Result<Built> {
    product::make(&Store::open()?, false)
}

/// The tools image, made if its recipe changed.
pub(crate) fn tools() -> Result<Built> {
    tools::make(&Store::open()?, false)
}

/// Runs a program to its good end and gives what it printed; otherwise the error ends with its last words.
fn succeed(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} does not start"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = text.trim_end().lines().collect();
        let last = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n  ");
        bail!("{name} ended with {}:\n  {last}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} prints no text"))
}

/// The machine's architecture by its name in images and at Debian.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_badly_has_the_last_word() {
        let error = succeed(Command::new("sh").args(["-c", "seq 40 >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("  39\n  40"), "{error}");
        assert!(!error.contains(" 25\n") && error.contains(" 26\n"), "{error}");
        assert_eq!(succeed(Command::new("echo").arg("yes")).unwrap(), "yes\n");
    }
}
