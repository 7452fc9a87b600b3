//! Owns what a sandbox's home directory holds: dotfiles with safe content, and the empty directories over which the
//! pod mounts what may be written. The workload sees all of it read-only.
//!
//! Must be safe to repeat, and must never follow a symbolic link.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::libc;

use super::fault::Fault;

/// Dotfiles that shells and tools read at start. Empty: nobody's habits are carried into a sandbox, and a file that
/// exists on a read-only mount cannot be put there by a workload to run at the next start.
pub const EMPTY_FILES: [&str; 18] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".curlrc",
    ".inputrc",
    ".netrc",
    ".npmrc",
    ".profile",
    ".pypirc",
    ".pythonrc.py",
    ".vimrc",
    ".wgetrc",
    ".yarnrc",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// `.gitconfig`: an identity, so that a commit needs no set-up (`GIT_AUTHOR_NAME` and its like override it), and the
/// directories that git accepts though they belong to root: a volume's root does. Everything below the workspace
/// belongs to the workload's user and needs no exception. No template is copied into a new repository: its hooks would go
/// where a protected directory is mounted, and `git init` in the workspace itself would fail.
#[must_use]
pub fn gitconfig(safe_directories: &[&Path]) -> String {
    let mut text = String::from(
        "[user]\n\tname = Glovebox Sandbox\n\temail = sandbox@glovebox.dev\n\
         [init]\n\tdefaultBranch = main\n\ttemplateDir =\n",
    );
    if !safe_directories.is_empty() {
        text.push_str("[safe]\n");
    }
    for directory in safe_directories {
        // Writing to a String has no error to give.
        let _ = writeln!(text, "\tdirectory = {}", quoted(&directory.to_string_lossy()));
    }
    text
}

/// A value in double quotes as git-config reads it.
fn quoted(value: &str) -> String {
    let mut out = String::from("\"");
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Fills `home` with the dotfiles.
///
/// # Errors
/// A [`Fault`] that names the file.
pub fn fill(home: &Path, safe_directories: &[&Path]) -> Result<(), Fault> {
    write_file(&home.join(".gitconfig"), gitconfig(safe_directories).as_bytes())?;
    EMPTY_FILES.iter().try_for_each(|name| write_file(&home.join(name), b""))
}

/// Makes the empty directories `names` under `root`, with those between.
///
/// # Errors
/// A [`Fault`] that names the directory; also when something that is no directory is in the way.
pub fn make_directories(root: &Path, names: &[PathBuf]) -> Result<(), Fault> {
    for name in names {
        let mut at = root.to_path_buf();
        for part in name.components().filter(|part| matches!(part, Component::Normal(_))) {
            at.push(part);
            make_directory(&at).map_err(|error| Fault::io("make the directory", &at, &error))?;
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(path)?.is_dir() { Ok(()) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

fn write_file(path: &Path, content: &[u8]) -> Result<(), Fault> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .and_then(|mut file| {
            file.write_all(content)?;
            // Whatever the umask said.
            file.set_permissions(Permissions::from_mode(0o644))
        })
        .map_err(|error| Fault::io("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gitconfig_lists_the_directories_as_git_reads_them() {
        assert_eq!(
            gitconfig(&[Path::new("/workspace"), Path::new("/a \"b\"\\c")]),
            "[user]\n\tname = Glovebox Sandbox\n\temail = sandbox@glovebox.dev\n[init]\n\tdefaultBranch = main\n\ttemplateDir =\n\
             [safe]\n\tdirectory = \"/workspace\"\n\tdirectory = \"/a \\\"b\\\"\\\\c\"\n"
        );
        assert!(!gitconfig(&[]).contains("safe"));
    }

    #[test]
    fn a_file_name_cannot_end_its_line() {
        assert_eq!(gitconfig(&[Path::new("/a\n[core]\n\tpager = x")]).lines().count(), 8);
    }
}
