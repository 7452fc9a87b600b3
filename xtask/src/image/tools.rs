//! The tools image: Debian's packages as `images/tools` lists them, unpacked by mmdebstrap from the package sources
//! that this machine uses itself. Names no mirror, and must leave none in the image.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::oci::{self, Config};
use super::store::{Key, Store, Workshop};
use super::{Built, TOOLS_NAME, architecture, succeed};
use crate::deps::{self, need};
use crate::paths;
use crate::ui::{Estimate, Step};

/// Debian's release.
const RELEASE: &str = "bookworm";
/// Who signs Debian's package lists.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// How long it takes on two cores, mostly dpkg.
const USUAL: Duration = Duration::from_secs(100);
/// Raised when the way of making changes without a change of the recipe.
const GENERATION: &str = "1";
/// The time that files get which have none of their own: the same recipe gives the same files.
const EPOCH: &str = "1767225600";

/// Makes the image, if its recipe changed.
pub(super) fn make(store: &Store, rebuild: bool) -> Result<Built> {
    let recipe = paths::checkout().join("images/tools");
    let mut key = Key::default();
    key.add("generation", GENERATION.as_bytes());
    key.add("architecture", architecture().as_bytes());
    key.add_path(&recipe)?;
    let (name, key) = (TOOLS_NAME.to_owned(), key.finish());
    if let Some(path) = store.find(&name, &key).filter(|_| !rebuild) {
        return Ok(Built { name, path });
    }
    deps::ensure(&[need("mmdebstrap", "mmdebstrap")])?;
    let sources = sources()?;
    let workshop = store.workshop()?;
    // While this waited, another process may have made it.
    if let Some(path) = store.find(&name, &key).filter(|_| !rebuild) {
        return Ok(Built { name, path });
    }
    let root = workshop.path("root.tar");
    let estimate = Estimate { step: Some(USUAL), ..Estimate::default() };
    let step = Step::estimated(format!("image {name} from Debian's packages"), estimate);
    succeed(&mut mmdebstrap(&workshop, &recipe, &sources, &root)?)?;
    let archive = workshop.path("image.tar");
    oci::write(&name, &config(), &root, &archive)?;
    let path = store.keep(&archive, &name, &key)?;
    step.done("");
    Ok(Built { name, path })
}

fn config() -> Config<'static> {
    Config {
        environment: &["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
        command: &["/bin/bash"],
        user: "65532:65532",
        folder: "/workspace",
        labels: json!({
            "org.opencontainers.image.title": "Glovebox tools",
            "org.opencontainers.image.description": "Python, Node.js, Git and a C compiler for sandboxes",
        }),
    }
}

/// The lines of `sources.list` with which this machine fetches Debian's release, whatever form it keeps them in.
fn sources() -> Result<String> {
    if !Path::new(KEYRING).exists() {
        bail!("{KEYRING} is missing: install the package debian-archive-keyring");
    }
    let mut found = index()?;
    if found.is_empty() {
        // Lists that were never fetched name no origin.
        succeed(Command::new("apt-get").args(["update", "-qq"]).stdin(Stdio::null()))?;
        found = index()?;
    }
    if found.is_empty() {
        bail!(
            "apt knows no source of Debian {RELEASE} on this machine: add one below /etc/apt/sources.list.d, with its \
             updates and security, and run `apt-get update`"
        );
    }
    Ok(found)
}

/// What apt itself makes of the machine's sources.
fn index() -> Result<String> {
    let format = "$(RELEASE)|$(COMPONENT)|$(REPO_URI)";
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", format, "Created-By: Packages", "Origin: Debian"]);
    Ok(lines(&succeed(apt.stdin(Stdio::null()))?))
}

/// Keeps the release itself, its updates and its security fixes.
fn lines(targets: &str) -> String {
    let wanted = ["", "-updates", "-security"].map(|suffix| format!("{RELEASE}{suffix}"));
    let mut lines: Vec<String> = targets
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, '|');
            let (release, component, uri) = (fields.next()?, fields.next()?, fields.next()?);
            let ours = component == "main" && wanted.iter().any(|wanted| wanted == release);
            ours.then(|| format!("deb {uri} {release} {component}\n"))
        })
        .collect();
    lines.sort_unstable();
    lines.dedup();
    // Updates alone make no system.
    if lines.iter().any(|line| line.contains(&format!(" {RELEASE} "))) {
        lines.concat()
    } else {
        String::new()
    }
}

fn mmdebstrap(workshop: &Workshop, recipe: &Path, sources: &str, root: &Path) -> Result<Command> {
    let list = workshop.path("sources.list");
    fs::write(&list, sources)?;
    let apt = workshop.path("apt.conf");
    fs::write(&apt, transport(&succeed(Command::new("apt-config").arg("dump"))?))?;
    let dpkg = workshop.path("dpkg.cfg");
    fs::write(&dpkg, exclusions(&read(&recipe.join("excluded"))?))?;
    let packages = entries(&read(&recipe.join("packages"))?).join(",");

    let mut command = Command::new("mmdebstrap");
    command
        .current_dir(recipe)
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("TMPDIR", workshop.path(""))
        .env("LC_ALL", "C");
    command.stdin(Stdio::null()).args(["--variant=minbase", "--format=tar", "--skip=output/dev"]);
    command.arg(format!("--keyring={KEYRING}")).arg(format!("--include={packages}"));
    command.arg(format!("--architectures={}", architecture()));
    command.arg(format!("--aptopt={}", apt.display())).arg("--aptopt=APT::Install-Recommends \"false\"");
    command.arg(format!("--dpkgopt={}", dpkg.display()));
    command
        .args(["--customize-hook=copy-in fixtures sources /opt", "--customize-hook=copy-in finish.sh /tmp"]);
    command.arg("--customize-hook=chroot \"$1\" sh /tmp/finish.sh");
    command.arg(RELEASE).arg(root).arg(list);
    Ok(command)
}

/// How this machine's apt reaches its sources: proxies, certificates, retries. Removed again by `finish.sh`.
fn transport(dump: &str) -> String {
    let kinds = ["Acquire::http::", "Acquire::https::", "Acquire::Retries", "Acquire::ForceIPv4"];
    dump.lines()
        .filter(|line| kinds.iter().any(|kind| line.starts_with(kind)))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// dpkg's options for the patterns of `excluded`.
fn exclusions(text: &str) -> String {
    let option = |entry: &str| match entry.strip_prefix('!') {
        Some(kept) => format!("path-include={kept}\n"),
        None => format!("path-exclude={entry}\n"),
    };
    entries(text).into_iter().map(option).collect()
}

/// The lines that are neither empty nor a comment.
fn entries(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_sources_those_of_the_release_remain() {
        let targets = "bookworm|main|http://mirror.example/debian/\n\
                       bookworm|contrib|http://mirror.example/debian/\n\
                       bookworm-security|main|http://mirror.example/security/\n\
                       bookworm-backports|main|http://mirror.example/debian/\n\
                       trixie|main|http://mirror.example/debian/\n\
                       bookworm|main|http://mirror.example/debian/\n";
        assert_eq!(
            lines(targets),
            "deb http://mirror.example/debian/ bookworm main\ndeb http://mirror.example/security/ bookworm-security main\n"
        );
        assert_eq!(lines("bookworm-security|main|http://mirror.example/security/\n"), "");
    }

    #[test]
    fn of_apts_settings_only_the_way_to_the_sources_is_taken() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\n\
                    Acquire::cdrom::mount \"/media\";\nAcquire::Retries \"3\";\n";
        assert_eq!(
            transport(dump),
            "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::Retries \"3\";\n"
        );
    }

    #[test]
    fn the_recipe_is_read_as_it_is_meant() {
        assert_eq!(exclusions("# c\n/a/*\n\n!/a/b\n"), "path-exclude=/a/*\npath-include=/a/b\n");
        let recipe = paths::checkout().join("images/tools");
        let packages = read(&recipe.join("packages")).unwrap();
        for package in ["python3-pip", "python3-venv", "nodejs", "npm", "git", "curl", "gcc"] {
            assert!(entries(&packages).contains(&package), "{package}");
        }
        assert!(
            exclusions(&read(&recipe.join("excluded")).unwrap())
                .contains("path-include=/usr/share/doc/*/copyright")
        );
    }
}
