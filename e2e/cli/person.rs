//! Somebody at a terminal of their own: the program, a kubeconfig, and a directory for what they write.

use std::{os::unix::fs::symlink, path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, ensure};
use kube::config::{AuthInfo, Kubeconfig};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::harness::{Test, program, wait};

const PROGRAM: &str = env!("CARGO_BIN_EXE_glovebox");

/// Who runs commands.
pub(crate) struct Person {
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Standard output, byte by byte.
    pub(crate) raw: Vec<u8>,
}

impl Ended {
    pub(crate) fn is(&self, code: i32) -> Result<()> {
        let shown = |text: &str| text.chars().take(2000).collect::<String>();
        ensure!(
            self.code == code,
            "it ended with {}, not {code}: {}{}",
            self.code,
            shown(&self.stdout),
            shown(&self.stderr)
        );
        Ok(())
    }
}

impl Person {
    /// Whoever installed the chart, in the test's namespace: their kubeconfig names it, so that no flag has to.
    pub(crate) fn admin(test: &Test) -> Result<Self> {
        Self::with(test, |_| {})
    }

    /// Somebody who has a token alone.
    pub(crate) fn with_token(test: &Test, token: &str) -> Result<Self> {
        Self::with(test, |config| {
            let info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
            for user in &mut config.auth_infos {
                user.auth_info = Some(info.clone());
            }
        })
    }

    fn with(test: &Test, change: impl FnOnce(&mut Kubeconfig)) -> Result<Self> {
        let mut config = Kubeconfig::read().context("the suite's kubeconfig")?;
        for context in config.contexts.iter_mut().filter_map(|context| context.context.as_mut()) {
            context.namespace = Some(test.namespace.clone());
        }
        change(&mut config);
        let folder = std::env::temp_dir().join(format!("glovebox-e2e-{}", crate::harness::random()?));
        std::fs::create_dir(&folder)?;
        let kubeconfig = folder.join("kubeconfig");
        // JSON is YAML.
        std::fs::write(&kubeconfig, serde_json::to_string(&config)?)?;
        symlink(PROGRAM, folder.join("kubectl-glovebox"))?;
        Ok(Self { kubeconfig, folder })
    }

    /// A file of theirs.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn command(&self, program: PathBuf, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for variable in
            ["GLOVEBOX_SESSION", "GLOVEBOX_SESSION_CA", "GLOVEBOX_SESSION_TOKEN_FILE", "GLOVEBOX_NAMESPACE"]
        {
            command.env_remove(variable);
        }
        command
    }

    /// Runs `glovebox` to its end.
    pub(crate) async fn glovebox(&self, arguments: &[&str]) -> Result<Ended> {
        self.fed(arguments, b"").await
    }

    /// The same with standard input.
    pub(crate) async fn fed(&self, arguments: &[&str], input: &[u8]) -> Result<Ended> {
        Self::to_the_end(self.command(PROGRAM.into(), arguments), input).await
    }

    /// Runs it as kubectl would.
    pub(super) async fn plugin(&self, arguments: &[&str]) -> Result<Ended> {
        Self::to_the_end(self.command(self.folder.join("kubectl-glovebox"), arguments), b"").await
    }

    /// Runs `glovebox` at a terminal of 33 lines and 77 columns, at which these keys are pressed once it says something.
    pub(super) async fn at_a_terminal(&self, arguments: &[&str], keys: &[u8]) -> Result<Ended> {
        let quoted: Vec<String> =
            arguments.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
        let script = format!("stty rows 33 cols 77; exec {PROGRAM} {}", quoted.join(" "));
        let mut child = self
            .command("script".into(), &["--quiet", "--return", "--command", &script, "/dev/null"])
            .spawn()
            .context("there is no program `script`")?;
        let (mut stdin, mut stdout) =
            (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
        let said = async {
            let mut all = vec![0; 1024];
            let read = stdout.read(&mut all).await?;
            all.truncate(read);
            stdin.write_all(keys).await?;
            stdout.read_to_end(&mut all).await?;
            anyhow::Ok((all, child.wait().await?))
        };
        let (raw, status) = timeout(wait::PATIENCE, said).await.context("it does not end")??;
        let stdout = String::from_utf8_lossy(&raw).into_owned();
        Ok(Ended { code: status.code().unwrap_or(-1), stdout, stderr: String::new(), raw })
    }

    /// How they reach the cluster.
    pub(crate) fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// A place for files of theirs.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    async fn to_the_end(mut command: Command, input: &[u8]) -> Result<Ended> {
        let mut child = command.spawn().context("glovebox does not start")?;
        let mut stdin = child.stdin.take().context("no input")?;
        let input = input.to_vec();
        // Whoever does not read its input has no use for it.
        let feed = tokio::spawn(async move { stdin.write_all(&input).await });
        let output = timeout(wait::PATIENCE, child.wait_with_output()).await.context("it does not end")??;
        feed.abort();
        Ok(Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            raw: output.stdout,
        })
    }

    /// Starts `glovebox`.
    pub(super) fn start(&self, arguments: &[&str]) -> Result<Running> {
        let mut child = self.command(PROGRAM.into(), arguments).spawn().context("glovebox does not start")?;
        let out = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Running { child, out })
    }
}

/// A command that runs.
pub(super) struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    /// Waits until it prints a line.
    pub(super) async fn says(&mut self, line: &str) -> Result<()> {
        let mut said = String::new();
        timeout(wait::PATIENCE, self.out.read_line(&mut said)).await.context("it says nothing")??;
        if said.trim_end() == line {
            return Ok(());
        }
        let mut rest = String::new();
        if let Some(err) = &mut self.child.stderr {
            err.read_to_string(&mut rest).await?;
        }
        anyhow::bail!("it says {said:?}, not {line:?}: {rest}")
    }

    pub(super) async fn signal(&self, name: &str) -> Result<()> {
        let pid = self.child.id().context("it has ended already")?;
        program::run("kill", &["-s", name, &pid.to_string()], "").await.map(|_| ())
    }

    /// Waits for its end.
    pub(super) async fn ended(self) -> Result<Ended> {
        let output =
            timeout(wait::PATIENCE, self.child.wait_with_output()).await.context("it does not end")??;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Ended { code: output.status.code().unwrap_or(-1), stdout: String::new(), stderr, raw: Vec::new() })
    }
}
