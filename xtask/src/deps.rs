//! What the machine must have: programs from the distribution's packages, and Go. Installs what is missing on
//! Debian and its kin; elsewhere it only says what to install. Removes and upgrades nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::ui::Step;

/// A program and the Debian package that brings it.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// Its name as it is looked up on `PATH` and in the `sbin` folders.
    pub(crate) program: &'static str,
    /// The package's name.
    pub(crate) package: &'static str,
    /// Whether a dynamically linked one will not do.
    pub(crate) linked_statically: bool,
}

/// A program without further wishes.
pub(crate) const fn need(program: &'static str, package: &'static str) -> Need {
    Need { program, package, linked_statically: false }
}

/// Installs the packages of the programs that are missing; cheap when nothing is.
pub(crate) fn ensure(needs: &[Need]) -> Result<()> {
    let mut packages: Vec<_> = needs.iter().filter(|need| !present(need)).map(|need| need.package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if find("apt-get").is_none() {
        bail!("these are missing: {list} (Debian's names); install your distribution's packages of them");
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("these packages are missing: {list}; install them, or run this as root");
    }
    let step = Step::start(format!("installing {list}"));
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(&packages);
    apt(&install)?;
    if let Some(missing) = needs.iter().find(|need| !present(need)) {
        bail!("package {} is installed but does not bring {}", missing.package, missing.program);
    }
    step.done("");
    Ok(())
}

/// The first of `PATH` and the `sbin` folders that holds the program.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(sbin).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// What `go version` says, without its first words: `go1.26.8 linux/amd64`.
pub(crate) fn go_version() -> Result<String> {
    if find("go").is_none() {
        bail!(
            "no Go toolchain on PATH: install Go 1.26.6 or newer from https://go.dev/dl and put its bin on PATH"
        );
    }
    let output = Command::new("go").arg("version").env("GOTOOLCHAIN", "local").output().context("go")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().strip_prefix("go version ") {
        Some(version) if output.status.success() => Ok(version.to_owned()),
        _ => bail!("`go version` does not work: {}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

fn present(need: &Need) -> bool {
    find(need.program).is_some_and(|path| !need.linked_statically || is_static(&path))
}

/// Whether an ELF file names no program interpreter, and so runs in an image that holds nothing else.
fn is_static(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF") && interpreter(&bytes) == Some(false))
}

/// Looks for a `PT_INTERP` entry among the program headers of a little-endian 64-bit ELF file.
fn interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
    let number = |at: usize, width: usize| {
        let bytes = elf.get(at..at + width)?;
        bytes.iter().rev().try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add((*byte).into()))
    };
    let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let headers = elf.get(start..start.checked_add(size.checked_mul(count)?)?)?;
    Some(headers.chunks(size.max(1)).any(|header| header.starts_with(&PT_INTERP)))
}

/// `apt-get` without questions.
pub(crate) fn apt(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=120"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("apt-get does not start")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("`apt-get {}` ended with {}: {}", arguments.join(" "), output.status, text.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(kinds: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            bytes.extend([*kind, 0, 0, 0]);
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn an_interpreter_among_the_headers_is_found() {
        assert_eq!(interpreter(&elf(&[1, 1])), Some(false));
        assert_eq!(interpreter(&elf(&[6, 3, 1])), Some(true));
    }

    #[test]
    fn a_cut_off_file_gives_no_answer() {
        let whole = elf(&[1, 3]);
        for length in 0..whole.len() {
            assert_eq!(interpreter(&whole[..length]), None, "{length} bytes");
        }
    }
}
