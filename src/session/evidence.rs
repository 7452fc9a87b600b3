//! What the session says of what it did: each call before it runs and when it ends, each file operation, each reading of logs, and
//! who was refused.

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{
    directory::Place,
    output::{Gone, Output, Stream},
    problem::{Problem, Reason},
    reviews::User,
    routes::App,
    runner::Job,
};
use crate::{
    audit::{Act, File, Process, Record, Subject, now, printable},
    call::Exec,
    digest,
};

/// Longest user name, in characters.
const MOST_USER: usize = 256;
/// Longest command line, in characters. Its hash is of all of it.
const MOST_COMMAND: usize = 1024;

/// A call that is about to run.
pub(super) fn call(job: &Job, sandbox: Subject) -> Record {
    let exec = &job.wanted.exec;
    let process = Process {
        uid: exec.id.clone(),
        cmd_line: Some(command(exec)),
        cmd_hash: Some(hash(exec)),
        deadline: Some(exec.timeout_ms),
        ..Process::default()
    };
    Record { process: Some(process), actor: Some(user(&job.user)), ..Record::new(Act::CallStarted, now()) }
        .about(sandbox)
}

/// The same call, ended. What tells nothing new is left out.
pub(super) fn ended(
    call: &mut Record,
    outcome: &str,
    exit_code: Option<i32>,
    output: Option<(u64, String)>,
    duration: u64,
) {
    call.turn_into(Act::CallEnded, now());
    call.duration = Some(duration);
    call.status_id = if exit_code == Some(0) { 1 } else { 2 };
    call.status_detail = Some(outcome.to_owned());
    if let Some(process) = &mut call.process {
        (process.cmd_line, process.deadline, process.exit_code) = (None, None, exit_code);
        (process.output_size, process.output_hash) = output.unzip();
    }
}

fn command(exec: &Exec) -> String {
    let words: Vec<_> = exec.command.iter().map(|word| quoted(word)).collect();
    printable(&words.join(" "), MOST_COMMAND)
}

/// As a shell would need it, where it would.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn hash(exec: &Exec) -> String {
    let mut hash = Sha256::new();
    for word in &exec.command {
        hash.update(word);
        hash.update([0]);
    }
    hex(hash)
}

fn hex(hash: Sha256) -> String {
    digest::hex(&hash.finalize())
}

fn user(user: &User) -> String {
    printable(&user.name, MOST_USER)
}

/// Output that is hashed and counted on its way.
pub(super) struct Hashed<'a, O> {
    inner: &'a mut O,
    hash: Option<Sha256>,
    bytes: u64,
}

impl<'a, O> Hashed<'a, O> {
    /// Hashes only where somebody records it.
    pub(super) fn new(inner: &'a mut O, wanted: bool) -> Self {
        Self { inner, hash: wanted.then(Sha256::new), bytes: 0 }
    }

    /// How many bytes there were, and their hash.
    pub(super) fn done(self) -> Option<(u64, String)> {
        self.hash.map(|hash| (self.bytes, hex(hash)))
    }
}

impl<O: Output> Output for Hashed<'_, O> {
    async fn started(&mut self) -> Result<(), Gone> {
        self.inner.started().await
    }

    async fn take(&mut self, stream: Stream, bytes: Vec<u8>) -> Result<(), Gone> {
        if let Some(hash) = &mut self.hash {
            hash.update(&bytes);
            self.bytes += bytes.len() as u64;
        }
        self.inner.take(stream, bytes).await
    }
}

/// What is said where something must not be done, since it can't be recorded.
pub(super) fn not_recorded() -> Problem {
    Problem::new(
        Reason::NotRecorded,
        "nothing may be done that is not on the record, and the audit trail can't be reached; try again, or ask whoever owns the installation",
    )
}

/// Somebody asked for what they may not.
pub(super) fn denied(app: &App, at: &Place, who: &User, problem: &Problem) {
    if problem.reason == Reason::Forbidden {
        app.recorder.say(|| {
            Record {
                severity_id: 2,
                actor: Some(user(who)),
                message: Some(printable(&problem.message, MOST_COMMAND)),
                ..Record::new(Act::AccessDenied, now())
            }
            .failed(problem.reason.as_str())
            .about(Subject {
                namespace: at.0.to_string(),
                name: at.1.to_string(),
                ..Subject::default()
            })
        });
    }
}

/// Something that is done with files, or with logs, of a sandbox.
pub(super) fn file(act: Act, who: &User, path: &str, sandbox: Subject) -> Record {
    let file = File { path: printable(path, MOST_COMMAND), size: None };
    Record { file: Some(file), actor: Some(user(who)), ..Record::new(act, now()) }.about(sandbox)
}

/// The same, done: how it ended, how many bytes went, and since when it took.
pub(super) fn file_done(mut record: Record, outcome: &str, bytes: u64, began: Instant) -> Record {
    record.time = now();
    record.duration = u64::try_from(began.elapsed().as_millis()).ok();
    (record.status_id, record.status_detail) =
        (if outcome == "Done" { 1 } else { 2 }, Some(outcome.to_owned()));
    if let Some(file) = &mut record.file {
        file.size = Some(bytes);
    }
    record
}

/// What the workload wrote is read.
pub(super) fn logs(who: &User, sandbox: Subject) -> Record {
    Record { actor: Some(user(who)), ..Record::new(Act::LogsRead, now()) }.about(sandbox)
}
