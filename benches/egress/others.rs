//! Other proxies of the field, for scale: squid with CONNECT, haproxy with a fixed backend. Each one process, one thread.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::process::Process;

/// How long one may take until it takes connections.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    Squid,
    Haproxy,
}

impl Other {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Squid => "squid",
            Self::Haproxy => "haproxy",
        }
    }

    /// Where its program is, if it is installed.
    pub(crate) fn program(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let sbin = ["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from);
        let mut folders = std::env::split_paths(&path).chain(sbin);
        folders.find_map(|folder| Some(folder.join(self.name())).filter(|program| program.is_file()))
    }

    /// Starts it on a core, with a folder of its own for what it must read.
    pub(crate) fn start(self, core: usize, backend: u16, files: u64) -> Result<(Process, u16)> {
        let program = self.program().with_context(|| format!("{} is not installed", self.name()))?;
        let folder = Folder::make(self.name())?;
        let port = free_port()?;
        let config = folder.0.join("conf");
        let text = match self {
            Self::Squid => {
                let hosts = folder.0.join("hosts");
                fs::write(&hosts, "127.0.0.1 echo.example tls.example\n")?;
                squid(port, &hosts, files)
            }
            Self::Haproxy => haproxy(port, backend, files),
        };
        fs::write(&config, text)?;
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program);
        match self {
            Self::Squid => command.arg("-N"),
            Self::Haproxy => command.arg("-db"),
        };
        command.arg("-f").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::new(command.spawn().context("taskset (util-linux) does not start")?);
        let started = Instant::now();
        while TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
            if started.elapsed() > PATIENCE || process.child.try_wait()?.is_some() {
                bail!("{} takes no connections with {}", self.name(), fs::read_to_string(&config)?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((process, port))
    }
}

/// A temporary folder, for as long as a program starts.
struct Folder(PathBuf);

impl Folder {
    fn make(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("glovebox-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        // squid gives root's rights up before it reads all of it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One that is free now; neither of them says which port it got.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A forward proxy and nothing else: no cache, no log, names from a file.
fn squid(port: u16, hosts: &Path, files: u64) -> String {
    format!(
        "http_port 127.0.0.1:{port}\n\
         http_access allow localhost\n\
         http_access deny all\n\
         hosts_file {}\n\
         cache deny all\n\
         access_log none\n\
         cache_log /dev/null\n\
         cache_store_log none\n\
         netdb_filename none\n\
         pid_filename none\n\
         coredump_dir none\n\
         pinger_enable off\n\
         max_filedescriptors {files}\n\
         shutdown_lifetime 0 seconds\n",
        hosts.display()
    )
}

fn haproxy(port: u16, backend: u16, files: u64) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn {}\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 1h\n  timeout server 1h\n\
         frontend in\n  bind 127.0.0.1:{port}\n  maxconn {0}\n  default_backend out\n\
         backend out\n  server only 127.0.0.1:{backend}\n",
        files / 2 - 100
    )
}
