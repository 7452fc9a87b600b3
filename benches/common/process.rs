//! Child processes on a core each, which are told and tell lines.

use std::{
    ffi::OsStr,
    fmt::Debug,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises what this process and its children may have open to so many, or as far as that goes; how far it went.
pub(crate) fn raise_files(wanted: u64) -> u64 {
    for maximum in [wanted, getrlimit(Resource::Nofile).maximum.unwrap_or(wanted)] {
        let raised = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return maximum;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(wanted)
}

/// A process that ends with its value.
pub(crate) struct Process {
    pub(crate) child: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub(crate) fn new(mut child: Child) -> Self {
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out }
    }

    /// Plays a role on a core; the first line that it says is ports.
    pub(crate) fn start(core: usize, role: &[impl AsRef<OsStr> + Debug]) -> Result<(Self, Vec<u16>)> {
        let child = Command::new("taskset")
            .args(["-c", &core.to_string()])
            .arg(std::env::current_exe()?)
            .arg("role")
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("taskset (util-linux) does not start")?;
        let mut process = Self::new(child);
        let ports = process.line().with_context(|| format!("role {role:?}"))?;
        let ports = ports.split_whitespace().map(|port| Ok(port.parse()?)).collect::<Result<_>>()?;
        Ok((process, ports))
    }

    /// The next line of what it says.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let out = self.out.as_mut().context("no standard output")?;
        if out.read_line(&mut line)? == 0 {
            bail!("the process ended: {:?}", self.child.wait()?);
        }
        Ok(line.trim().to_owned())
    }

    /// Tells it a line.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no standard input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Resident memory.
    pub(crate) fn resident_kib(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = stat.split(' ').nth(1).context("/proc/*/statm is short")?.parse()?;
        Ok(pages as f64 * 4.0)
    }
}

/// The first line, and any other.
pub(crate) fn say(line: impl std::fmt::Display) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}
