//! One run of the Go compiler: from a recipe to a folder of programs. Reads the checkout, writes to a folder it is
//! given, and lets Go check every module against the recipe's go.sum.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::recipe::Part;

/// Lines of Go's output that an error shows.
const SHOWN: usize = 15;

/// Builds the programs of a part into `out`, working in `work`. Both must be empty.
pub(super) fn build(part: &Part, work: &Path, out: &Path, log: &Path) -> Result<()> {
    let recipe = part.recipe;
    copy(&recipe.source(), work)?;
    File::create(log).with_context(|| log.display().to_string())?;
    let mut flags = vec!["-trimpath".to_owned(), "-buildvcs=false".to_owned()];
    match recipe.overlay {
        None => flags.push("-mod=readonly".to_owned()),
        Some((ours, theirs)) => {
            // Go refuses to overlay files of its module cache, but not vendored ones.
            go(work, log, recipe.cgo, &["mod", "vendor"])?;
            flags.push("-mod=vendor".to_owned());
            flags.push(format!("-overlay={}", overlay(work, ours, theirs)?));
        }
    }
    let linker = recipe.linker_flags(&part.version);
    for (name, package) in recipe.programs {
        let target = out.join(name).display().to_string();
        let mut arguments = vec!["build", "-o", &target, "-ldflags", &linker];
        arguments.extend(flags.iter().map(String::as_str));
        arguments.push(package);
        go(work, log, recipe.cgo, &arguments)?;
    }
    Ok(())
}

fn overlay(work: &Path, ours: &str, theirs: &str) -> Result<String> {
    let theirs = work.join("vendor").join(theirs);
    if !theirs.is_file() {
        bail!("there is no {} to be replaced by {ours}", theirs.display());
    }
    let file = work.join("overlay.json");
    let replace = serde_json::json!({"Replace": {theirs.display().to_string(): work.join(ours)}});
    fs::write(&file, replace.to_string()).with_context(|| file.display().to_string())?;
    Ok(file.display().to_string())
}

fn go(work: &Path, log: &Path, cgo: bool, arguments: &[&str]) -> Result<()> {
    let open = || File::options().append(true).open(log).with_context(|| log.display().to_string());
    // Killed with us, and behind whatever else the machine is doing.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "nice", "go"])
        .args(arguments)
        .current_dir(work)
        .env("CGO_ENABLED", if cgo { "1" } else { "0" })
        .envs([("GOFLAGS", ""), ("GOWORK", "off"), ("GOTOOLCHAIN", "local")])
        .stdin(Stdio::null())
        .stdout(open()?)
        .stderr(open()?)
        .status()
        .context("go does not start")?;
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(SHOWN)..].join("\n  ");
        bail!("`go {}` ended with {status}; {} ends with:\n  {tail}", arguments[0], log.display());
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry.with_context(|| from.display().to_string())?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            fs::create_dir(&target).with_context(|| target.display().to_string())?;
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
