//! The Python that the client of `clients/python` is checked and tried with, and servers that tests need: a virtual environment of its
//! own in the cache, made anew when what is in it changes.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    deps::{self, need},
    install, paths,
    ui::Step,
};

/// A server of S3's protocol, with object lock, for copies of the trail.
const SERVERS: [&str; 3] = ["moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"];

/// Where the client is.
pub(crate) fn client() -> PathBuf {
    paths::checkout().join("clients/python")
}

/// The interpreter, with all that the client needs for its tests and checks.
pub(crate) fn interpreter() -> Result<PathBuf> {
    let project =
        fs::read_to_string(client().join("pyproject.toml")).context("clients/python/pyproject.toml")?;
    let mut hash = DefaultHasher::new();
    project.hash(&mut hash);
    SERVERS.hash(&mut hash);
    let folder = paths::cache()?.join(format!("python-{:016x}", hash.finish()));
    let (python, whole) = (folder.join("bin/python"), folder.join("whole"));
    if whole.is_file() {
        return Ok(python);
    }
    deps::ensure(&[need("python3", "python3-venv")])?;
    let step = Step::start("Python and what its client needs");
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new("python3");
    command.args(["-m", "venv"]).arg(&folder);
    install::run(command, "python3 -m venv (on Debian of the package python3-venv)")?;
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    command.arg(format!("{}[dev,test,schemathesis]", client().display())).args(SERVERS);
    install::run(command, "pip install")?;
    fs::write(&whole, "")?;
    ensure!(python.is_file(), "{} is missing", python.display());
    step.done("");
    Ok(python)
}

/// A program of it, in the client's folder, which uses the client as it is in the checkout.
pub(crate) fn command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(interpreter()?);
    command.args(arguments).current_dir(client()).env("PYTHONPATH", client().join("src"));
    Ok(command)
}
