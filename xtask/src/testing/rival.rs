//! Debian's squid, haproxy and tinyproxy beside Glovebox: fetched as packages, unpacked and never installed, so that no daemon starts
//! and nothing of the machine changes; run on a node with the configuration of `e2e/conformance/rivals`; ended and removed.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rcgen::{CertificateParams, KeyPair};

use super::proxy::Judged;
use crate::{cluster::Cluster, deps, install, paths, ui::Step};

/// Whom they all run as.
const USER: &str = "nobody";
/// Where node0 is, and the port that all of them listen on.
const PROXY: &str = "192.0.2.10:3128";
/// Where haproxy takes TLS by server name.
const TLS: &str = "192.0.2.10:3129";

/// One of Debian's proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rival {
    /// With OpenSSL, so that it can look into tunnels.
    Squid,
    /// No forward proxy by trade: whole URIs, and TLS by server name.
    Haproxy,
    /// A small forward proxy.
    Tinyproxy,
}

impl Rival {
    /// Its package, and what it needs that is no library.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Squid => &["squid-openssl", "squid-common", "squid-langpack"],
            Self::Haproxy => &["haproxy"],
            Self::Tinyproxy => &["tinyproxy-bin"],
        }
    }

    /// Its program below the unpacked packages, and what comes before its configuration's path.
    fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Squid => ("usr/sbin/squid", &["-N", "-f"]),
            Self::Haproxy => ("usr/sbin/haproxy", &["-db", "-f"]),
            Self::Tinyproxy => ("usr/bin/tinyproxy", &["-d", "-c"]),
        }
    }

    /// Its configuration, and files that this names.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Squid => &["squid.conf"],
            Self::Haproxy => &["haproxy.cfg"],
            Self::Tinyproxy => &["tinyproxy.conf", "tinyproxy.filter"],
        }
    }
}

/// One that runs. Dropped, it is killed and its folder removed.
pub(crate) struct Running {
    rival: Rival,
    name: String,
    folder: PathBuf,
    child: Child,
}

impl Running {
    /// What the suite is told of it.
    pub(super) fn judged(&self) -> Judged {
        let sealed = self.rival == Rival::Haproxy;
        Judged {
            proxy: PROXY.to_owned(),
            tls: sealed.then(|| TLS.to_owned()),
            connect: !sealed,
            name: self.name.clone(),
        }
    }

    /// Ends it. One that had ended before is why a run failed, whatever the run says.
    pub(crate) fn end<T>(mut self, outcome: Result<T>) -> Result<T> {
        match self.child.try_wait()? {
            None => outcome,
            Some(status) => {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("{} ended by itself with {status}: {}", self.name, log.trim())
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Starts one on node0; it may take a while until it answers.
pub(crate) fn start(rival: Rival, cluster: &Cluster) -> Result<Running> {
    let packages = fetched(rival)?;
    let [program, ..] = rival.packages() else { bail!("{rival:?} has no package") };
    let step = Step::start(format!("starting {program}"));
    // Not in the run folder: that is open to root alone, and none of these runs as root.
    let folder = std::env::temp_dir().join(format!("glovebox-rival-{program}"));
    if folder.symlink_metadata().is_ok() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let started = unpack(rival, &packages, &folder).and_then(|()| spawn(rival, cluster, &folder));
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            let _ = fs::remove_dir_all(&folder);
            return Err(error);
        }
    };
    let version = packages.iter().find_map(|package| version(package, program)).unwrap_or_default();
    step.done(&version);
    Ok(Running { rival, name: format!("{program} {version}"), folder, child })
}

/// The packages, and the libraries that this machine lacks, from the cache or from Debian.
fn fetched(rival: Rival) -> Result<Vec<PathBuf>> {
    let [name, ..] = rival.packages() else { bail!("{rival:?} has no package") };
    let folder = paths::cache()?.join("rivals").join(name);
    let found = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect()
    };
    if folder.exists() {
        return Ok(found(&folder));
    }
    let step = Step::start(format!("fetching {name}"));
    let fresh = folder.with_extension("new");
    fs::create_dir_all(fresh.join("partial")).with_context(|| fresh.display().to_string())?;
    let archives = format!("Dir::Cache::archives={}", fresh.display());
    deps::apt(&["update", "-qq"])?;
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends", "--reinstall", "--download-only"];
    words.extend(["-o", &archives]);
    words.extend(rival.packages());
    deps::apt(&words)?;
    fs::rename(&fresh, &folder).with_context(|| folder.display().to_string())?;
    step.done("");
    Ok(found(&folder))
}

/// The version of a package, if it is the one of that name.
fn version(package: &Path, name: &str) -> Option<String> {
    let file = package.file_name()?.to_str()?;
    let version = file.strip_prefix(name)?.strip_prefix('_')?.split('_').next()?;
    Some(version.replace("%3a", ":"))
}

fn unpack(rival: Rival, packages: &[PathBuf], folder: &Path) -> Result<()> {
    let root = folder.join("root");
    for package in packages {
        let mut command = Command::new("dpkg-deb");
        command.arg("--extract").arg(package).arg(&root);
        install::run(command, "dpkg-deb")?;
    }
    for name in rival.files() {
        let from = paths::checkout().join("e2e/conformance/rivals").join(name);
        let text = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        let text = text.replace("@DIR@", &folder.to_string_lossy());
        fs::write(folder.join(name), text.replace("@FILES@", &root.to_string_lossy()))?;
    }
    if rival == Rival::Squid {
        // It will not look into tunnels without one, though it signs nothing.
        let key = KeyPair::generate()?;
        let made = CertificateParams::new(vec!["proxy.example".to_owned()])?.self_signed(&key)?;
        fs::write(folder.join("unused.pem"), made.pem() + &key.serialize_pem())?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let user = nix::unistd::User::from_name(USER)?.with_context(|| format!("there is no user {USER}"))?;
    std::os::unix::fs::chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    Ok(())
}

fn spawn(rival: Rival, cluster: &Cluster, folder: &Path) -> Result<Child> {
    let root = folder.join("root");
    let (program, options) = rival.program();
    let libraries = format!("LD_LIBRARY_PATH={}", root.join("usr/lib/x86_64-linux-gnu").display());
    let configuration = rival.files().first().with_context(|| format!("{rival:?} has no configuration"))?;
    // Squid leaves shared memory behind, however it ends: it is given some of its own.
    let own_memory = "mount -t tmpfs tmpfs /dev/shm && exec \"$@\"";
    let mut command = cluster.node_command("unshare");
    command.args(["--mount", "sh", "-c", own_memory, "sh", "env"]).arg(libraries);
    command.arg(root.join(program)).args(options).arg(folder.join(configuration));
    let log = File::create(folder.join("log"))?;
    command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("{program} does not start"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_the_right_package() {
        let path = Path::new("/c/squid-openssl_5.7-2+deb12u6_amd64.deb");
        assert_eq!(version(path, "squid-openssl").as_deref(), Some("5.7-2+deb12u6"));
        assert_eq!(version(path, "squid"), None);
    }

    #[test]
    fn every_configuration_is_there_and_names_no_folder_of_its_own() {
        for rival in Rival::value_variants() {
            for name in rival.files() {
                let path = paths::checkout().join("e2e/conformance/rivals").join(name);
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("/tmp/") && !text.contains("/root/"), "{name}");
            }
        }
    }
}
