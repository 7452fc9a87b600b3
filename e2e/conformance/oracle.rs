//! What the world saw while a script ran, held against what the script reports; and the names that the world tells for it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{ALLOWED, EVIL, is_known, table::Table};
use crate::harness::{
    random, wait,
    world::{Questions, World},
};

/// Where the part of the names begins that is taken away again.
const MARK: &str = "# For a proxy that is judged:\n";
/// Names that a rule of the suite takes in and that must be refused nonetheless, or that no rule takes in. They are there, so
/// that a refusal is no failed lookup.
const THERE: &str = "203.0.113.7 api.opendns.com\n\
    203.0.113.8 doh.opendns.com dns.google mozilla.cloudflare-dns.com cover.defo.ie cloudflare-ech.com\n\
    203.0.113.8 metadata.google.internal metadata.goog instance-data.ec2.internal\n";

/// The world's names, changed for a while.
pub(super) struct Names {
    file: PathBuf,
    before: String,
}

impl Names {
    /// As they are, but for what a run that was killed left behind.
    pub(super) fn open(run: &Path) -> Result<Self> {
        let file = run.join("world.hosts");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let before = text.split(MARK).next().unwrap_or_default().to_owned();
        Ok(Self { file, before })
    }

    /// Adds the names that the suite needs, and one more; waits until the world tells them.
    pub(super) async fn tell(&self, more: Option<(&str, Ipv4Addr)>) -> Result<()> {
        let fresh = format!("told-{}.example", random()?);
        let mut text = format!("{}{MARK}{THERE}{ALLOWED} {fresh}\n", self.before);
        if let Some((name, address)) = more {
            text += &format!("{address} {name}\n");
        }
        fs::write(&self.file, text).with_context(|| self.file.display().to_string())?;
        let allowed: IpAddr = ALLOWED.parse()?;
        wait::poll("the world tells its new names", async || {
            let found = tokio::net::lookup_host((fresh.as_str(), 443)).await;
            Ok(found.is_ok_and(|mut found| found.any(|place| place.ip() == allowed)).then_some(()))
        })
        .await
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, &self.before) {
            eprintln!("{} keeps names of this run: {error}", self.file.display());
        }
    }
}

/// The world, from one moment on.
pub(super) struct Oracle<'w> {
    world: &'w World,
    questions: Questions,
    evil: usize,
}

impl<'w> Oracle<'w> {
    /// From now on.
    pub(super) fn open(world: &'w World) -> Result<Self> {
        Ok(Self { world, questions: world.questions()?, evil: world.arrivals_at(EVIL).len() })
    }

    /// Notes in the table what a script printed, corrected by what the world saw: a line with a token in brackets is a breach
    /// if a request or a question with that text in it arrived.
    pub(super) async fn judge(&self, name: &str, log: &str, table: &mut Table) -> Result<()> {
        let asked = self.asked().await?;
        let arrived = |token: &str| {
            !self.world.requests(token).is_empty() || asked.iter().any(|name| name.contains(token))
        };
        let corrected = log.lines().map(|line| match token(line) {
            Some(token) if line.starts_with("ok ") && arrived(token) => {
                format!("BREACH{} (it arrived outside)\n", &line[2..])
            }
            _ => format!("{line}\n"),
        });
        table.note(&corrected.collect::<String>());
        let strange: Vec<&String> = asked.iter().filter(|name| !may_be_asked(name)).take(5).collect();
        if !strange.is_empty() {
            table.attack(
                18,
                &format!("{name}: names that no rule takes in were looked up: {strange:?}"),
                false,
            );
        }
        let evil = self.world.arrivals_at(EVIL).split_off(self.evil);
        if !evil.is_empty() {
            table.attack(46, &format!("{name}: evil.example was reached: {evil:?}"), false);
        }
        Ok(())
    }

    /// Every name that was asked for, once all that was sent has arrived.
    async fn asked(&self) -> Result<Vec<String>> {
        let mark = format!("mark-{}.example", random()?);
        let mut stream = TcpStream::connect((ALLOWED, 80)).await?;
        stream.write_all(format!("GET /{mark} HTTP/1.1\r\nHost: {mark}\r\n\r\n").as_bytes()).await?;
        let arrived = async || Ok((!self.world.requests(&mark).is_empty()).then_some(()));
        wait::poll("the world tells of a request", arrived).await?;
        // There is no such name; that it was asked for is what counts.
        let _ = tokio::net::lookup_host((mark.as_str(), 443)).await;
        Ok(self.questions.until(&mark).await?.into_iter().map(|(_, name)| name).collect())
    }
}

/// The text in brackets behind `ok #50 attack`.
fn token(line: &str) -> Option<&str> {
    line.splitn(4, ' ').nth(3)?.strip_prefix('[')?.split(']').next()
}

/// Whether some rule takes a name in. What this program asks is nobody's question; who asks what its client is called, by its
/// address in reverse, tells nobody anything.
fn may_be_asked(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let below = [".opendns.com", ".defo.ie", ".in-addr.arpa"];
    let label = name.strip_suffix(".wild.example").is_some_and(|label| !label.contains('.'));
    is_known(name) || label || name.starts_with("told-") || below.iter().any(|end| name.ends_with(end))
}
