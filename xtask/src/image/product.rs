//! Glovebox's own image: two static programs and the Dockerfile, put together by buildah, which needs no engine. The
//! programs are built as cargo always builds them; buildah's storage lives and dies in the workshop.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::store::{Key, Store, Workshop};
use super::{Built, succeed};
use crate::cargo::{cargo, target};
use crate::deps::{self, need};
use crate::paths;
use crate::ui::Step;

/// The image without its tag, which is the version.
const NAME: &str = "glovebox.dev/glovebox";
/// Programs and the features each needs.
const PROGRAMS: [(&str, &str); 2] =
    [("glovebox", "controller,gateway,session,cli"), ("glovebox-agent", "agent")];
/// The only kind of target whose C library is installed everywhere, linked statically.
const STATIC: &str = "-C target-feature=+crt-static";

/// Makes the image, if its programs or its Dockerfile changed.
pub(super) fn make(store: &Store, rebuild: bool) -> Result<Built> {
    let dockerfile = paths::checkout().join("Dockerfile");
    let programs = PROGRAMS.map(|(program, features)| build(program, features));
    let mut key = Key::default();
    key.add_path(&dockerfile)?;
    let mut files = Vec::new();
    for program in programs {
        let program = program?;
        key.add_path(&program)?;
        files.push(program);
    }
    let (name, key) = (format!("{NAME}:{}", env!("CARGO_PKG_VERSION")), key.finish());
    if let Some(path) = store.find(&name, &key).filter(|_| !rebuild) {
        return Ok(Built { name, path });
    }
    deps::ensure(&[need("buildah", "buildah")])?;
    let workshop = store.workshop()?;
    // While this waited, another process may have made it.
    if let Some(path) = store.find(&name, &key).filter(|_| !rebuild) {
        return Ok(Built { name, path });
    }
    let step = Step::start(format!("image {name}"));
    let archive = assemble(&workshop, &name, &dockerfile, &files)?;
    let path = store.keep(&archive, &name, &key)?;
    step.done("");
    Ok(Built { name, path })
}

/// Builds one program, statically linked; cargo shows its own progress. Gives the program's file.
fn build(program: &str, features: &str) -> Result<PathBuf> {
    let mut cargo = cargo(["build", "--release", "--package", "glovebox", "--bin", program])?;
    cargo.args(["--no-default-features", "--features", features, "--target", &target(), "--locked"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let flags = env::var("RUSTFLAGS").map_or_else(|_| STATIC.to_owned(), |flags| format!("{flags} {STATIC}"));
    let step = Step::start(format!("building {program}"));
    let output =
        cargo.env("RUSTFLAGS", flags).stderr(Stdio::inherit()).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("cargo could not build {program}; what is wrong stands above");
    }
    let found = executable(&String::from_utf8_lossy(&output.stdout), program)
        .with_context(|| format!("cargo names no file for {program}"))?;
    step.done("");
    Ok(found)
}

/// The file of a program among cargo's messages.
fn executable(messages: &str, program: &str) -> Option<PathBuf> {
    messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let ours = message["target"]["name"] == program && message["target"]["kind"][0] == "bin";
        message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
    })
}

/// Lays out the context, has buildah follow the Dockerfile, and gives the archive.
fn assemble(workshop: &Workshop, name: &str, dockerfile: &Path, programs: &[PathBuf]) -> Result<PathBuf> {
    let context = workshop.path("context");
    fs::create_dir(&context)?;
    for program in programs {
        let to = context.join(program.file_name().unwrap_or_default());
        fs::copy(program, &to).with_context(|| to.display().to_string())?;
    }
    // No image is pulled, so nothing is there to be trusted or not; without a policy buildah does not start.
    let policy = workshop.path("policy.json");
    fs::write(&policy, r#"{"default": [{"type": "insecureAcceptAnything"}]}"#)?;
    let archive = workshop.path("image.tar");
    let version = format!("VERSION={}", env!("CARGO_PKG_VERSION"));
    let mut build = buildah(workshop, "bud");
    build.args([
        "--isolation",
        "chroot",
        "--layers=false",
        "--format",
        "oci",
        "--timestamp",
        "0",
        "--tag",
        name,
    ]);
    build.args(["--build-arg", "PROGRAMS=.", "--build-arg", &version]).arg("--signature-policy").arg(&policy);
    succeed(build.arg("--file").arg(dockerfile).arg(&context))?;
    let mut push = buildah(workshop, "push");
    push.arg("--signature-policy").arg(&policy).arg(name);
    succeed(push.arg(format!("oci-archive:{}:{name}", archive.display())))?;
    Ok(archive)
}

/// buildah with a storage of its own, plain copies of folders: no mount is made, so none is left.
fn buildah(workshop: &Workshop, verb: &str) -> Command {
    let mut command = Command::new("buildah");
    command.arg("--root").arg(workshop.path("storage")).arg("--runroot").arg(workshop.path("run"));
    command.args(["--storage-driver", "vfs", verb]).env("TMPDIR", workshop.path("")).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_among_cargos_messages() {
        let messages = [
            r#"{"reason":"compiler-artifact","target":{"name":"glovebox","kind":["lib"]},"executable":null}"#,
            r#"{"reason":"compiler-artifact","target":{"name":"glovebox","kind":["bin"]},"executable":"/t/glovebox"}"#,
            "not json",
            r#"{"reason":"build-finished","success":true}"#,
        ]
        .join("\n");
        assert_eq!(executable(&messages, "glovebox"), Some(PathBuf::from("/t/glovebox")));
        assert_eq!(executable(&messages, "glovebox-agent"), None);
    }
}
