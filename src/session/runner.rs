//! Has a call run in its sandbox: dials, talks, and lets go at a deadline whatever the agent does. One log line a call.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    agent::{self, Progress, Told, Wrong},
    api::{ExecResult, Outcome},
    config::Timing,
    directory::{Directory, Place, Target},
    evidence::{self, Hashed},
    input::Input,
    key::Key,
    metrics::Metrics,
    output::Output,
    problem::{Problem, Reason},
    request::Wanted,
    reviews::User,
    uses::Uses,
};
use crate::{
    audit::{self, NotRecorded, Recorder},
    call::{CallResult, Refusal},
};

/// Longest name of a user in a log line, in characters.
const MOST_USER_CHARS: usize = 256;

/// What calls need of the process.
pub(super) struct Runner {
    pub(super) directory: Arc<Directory>,
    pub(super) key: Arc<Key>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) timing: Timing,
    /// When sandboxes were last called.
    pub(super) uses: Arc<Uses>,
    /// Where it is said what was done.
    pub(super) recorder: Recorder,
    /// Where agents take calls.
    pub(super) port: u16,
    /// No call may go on.
    pub(super) hang_up: CancellationToken,
}

/// One call, allowed and resolved.
pub(super) struct Job {
    pub(super) at: Place,
    pub(super) target: Target,
    pub(super) user: Arc<User>,
    pub(super) wanted: Wanted,
}

/// A call that has no result.
#[derive(Debug)]
pub(super) struct Failed {
    /// What the client is told.
    pub(super) problem: Problem,
    /// The command may have run: to try again is to run it twice.
    pub(super) may_have_run: bool,
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Unreachable,
    Talk(Wrong),
    /// Beyond the guard.
    Late,
    /// The sandbox is gone.
    Gone,
    /// The process ends.
    Draining,
}

impl Cause {
    /// The word in logs and metrics.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable | Self::Talk(Wrong::Silent) => "AgentUnreachable",
            Self::Talk(Wrong::Refused(_)) => "AgentRefused",
            Self::Talk(Wrong::Broken(_)) => "AgentBroken",
            Self::Talk(Wrong::Lost) => "CallLost",
            Self::Talk(Wrong::ClientGone) => "ClientGone",
            Self::Late => "DeadlineMissed",
            Self::Gone => "SandboxGone",
            Self::Draining => "Drained",
        }
    }
}

impl Runner {
    /// Runs it to its end, however it ends.
    pub(super) async fn run<I: Input, O: Output>(
        &self,
        job: &Job,
        input: &mut I,
        output: &mut O,
    ) -> Result<ExecResult, Failed> {
        let begun = self.recorder.is_on().then(|| evidence::call(job, self.directory.subject(&job.at)));
        if let Some(begun) = &begun {
            let recorded = self.recorder.before(begun).await;
            recorded
                .map_err(|NotRecorded| Failed { problem: evidence::not_recorded(), may_have_run: false })?;
        }
        let mut output = Hashed::new(output, begun.is_some());
        let mut record = Record::new(self, job, begun);
        let mut progress = Progress::default();
        let ended = self.attempt(job, (input, &mut output), &mut progress).await;
        record.output = output.done();
        let id = &job.wanted.exec.id;
        match ended {
            Ok(mut result) => {
                // The agent's word, but for what can't be.
                result.duration_ms = result.duration_ms.min(record.elapsed_ms());
                let result = ExecResult::new(id, result);
                record.outcome = result.outcome.as_str();
                if result.outcome == Outcome::DeadlineExceeded {
                    self.uses.late(&job.target.uid);
                }
                record.exit_code = result.exit_code;
                Ok(result)
            }
            Err(cause) => {
                record.outcome = cause.as_str();
                if let Cause::Talk(Wrong::Broken(what)) = cause {
                    tracing::warn!(id, what, "an agent does not keep to the protocol");
                }
                let problem = problem(cause, id, &progress);
                let refused = matches!(cause, Cause::Talk(Wrong::Refused(_)));
                Err(Failed { problem, may_have_run: progress.told && !refused })
            }
        }
    }

    async fn attempt<I: Input, O: Output>(
        &self,
        job: &Job,
        said: (&mut I, &mut O),
        progress: &mut Progress,
    ) -> Result<CallResult, Cause> {
        let Wanted { exec, request, .. } = &job.wanted;
        let told = Told { uid: &job.target.uid, exec, request };
        let lasts = Duration::from_millis(exec.timeout_ms);
        let ours = (&*self.key, &self.timing);
        self.converse(&job.at, &job.target, lasts, |socket| agent::talk(socket, &told, ours, said, progress))
            .await
    }

    /// A talk with the agent at this place: until it ends, until the guard, or until the sandbox is gone.
    pub(super) async fn converse<T, F: Future<Output = Result<T, Wrong>> + Send>(
        &self,
        at: &Place,
        target: &Target,
        lasts: Duration,
        talk: impl FnOnce(TcpStream) -> F + Send,
    ) -> Result<T, Cause> {
        let _in_use = self.uses.begin(&target.uid);
        let guarded = async {
            let socket = self.dial(target.address).await.ok_or(Cause::Unreachable)?;
            match timeout_at(Instant::now() + lasts + self.timing.guard, talk(socket)).await {
                Ok(ended) => ended.map_err(Cause::Talk),
                Err(_) => Err(Cause::Late),
            }
        };
        let mut guarded = std::pin::pin!(guarded);
        tokio::select! {
            biased;
            ended = &mut guarded => return ended,
            () = self.hang_up.cancelled() => return Err(Cause::Draining),
            () = self.directory.gone(at, target) => {}
        }
        // Its last words may be on their way.
        timeout(self.timing.gone, guarded).await.unwrap_or(Err(Cause::Gone))
    }

    async fn dial(&self, address: IpAddr) -> Option<TcpStream> {
        let dialled =
            timeout(self.timing.dial, TcpStream::connect(SocketAddr::new(address, self.port))).await;
        let socket = dialled.ok()?.ok()?;
        socket.set_nodelay(true).ok()?;
        // Whoever hangs up early must be seen to, though the command has not read all of its input: an ordinary end would wait
        // behind that. After the result there is nothing that a reset could lose.
        socket.set_zero_linger().ok()?;
        Some(socket)
    }
}

/// What a client is told.
fn problem(cause: Cause, id: &str, progress: &Progress) -> Problem {
    let (reason, what) = words(cause, progress);
    let ran = match cause {
        Cause::Talk(Wrong::Refused(_)) => ", and has not run",
        _ if progress.started => ", which had started",
        _ if progress.told => ", which may have run",
        _ => ", and has not run",
    };
    Problem::new(reason, format!("call {id}{ran}: {what}"))
}

/// Why, and what to do.
pub(super) fn words(cause: Cause, progress: &Progress) -> (Reason, &'static str) {
    match cause {
        Cause::Unreachable | Cause::Talk(Wrong::Silent) => (
            Reason::AgentUnreachable,
            "the sandbox does not take calls: look whether its node is well and a NetworkPolicy lets the session in, and try again",
        ),
        Cause::Talk(Wrong::Refused(refusal)) => refused(refusal),
        Cause::Talk(Wrong::Broken(_)) => (
            Reason::AgentFailed,
            "what answers in the sandbox does not keep to the protocol: take its output for forged, and replace the sandbox",
        ),
        Cause::Talk(Wrong::Lost) => {
            (Reason::CallLost, "the connection to the sandbox ended before the result")
        }
        Cause::Talk(Wrong::ClientGone) => (Reason::DeadlineMissed, "the client hung up"),
        Cause::Late if progress.handing_over => (
            Reason::DeadlineMissed,
            "the output was not read before the call's deadline; read faster, or ask for less",
        ),
        Cause::Late => (
            Reason::DeadlineMissed,
            "the sandbox's agent said nothing of the call's end; replace the sandbox",
        ),
        Cause::Gone => (Reason::Ended, "the sandbox ended while the call ran; create another one"),
        Cause::Draining => {
            (Reason::ShuttingDown, "this replica ended before the call did; another one takes calls")
        }
    }
}

const fn refused(refusal: Refusal) -> (Reason, &'static str) {
    match refusal {
        Refusal::Busy => {
            (Reason::SandboxBusy, "as many calls run in the sandbox as may; try again when one has ended")
        }
        Refusal::ShuttingDown => (Reason::Ended, "the sandbox is about to end; create another one"),
        Refusal::NoResources => {
            (Reason::SandboxBusy, "the sandbox has no process or file left for it; end some, or try again")
        }
        Refusal::NotSigned => (
            Reason::AgentFailed,
            "the sandbox does not know this session's key: it was made before the key was; replace the sandbox",
        ),
        Refusal::NoFiles => (
            Reason::AgentFailed,
            "the sandbox's agent was not told of its workspace: it was made by another version; replace the sandbox",
        ),
        Refusal::Malformed => (
            Reason::AgentFailed,
            "the sandbox's agent does not understand this session: it is of another version; replace the sandbox",
        ),
    }
}

/// A user's name, as a line of the log can have it.
pub(super) fn in_a_line(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(MOST_USER_CHARS).collect()
}

/// Counts and logs a call when it ends, be it that nobody waits for it any more.
struct Record<'a> {
    runner: &'a Runner,
    job: &'a Job,
    began: Instant,
    outcome: &'static str,
    exit_code: Option<u8>,
    /// Bytes of output and their hash.
    output: Option<(u64, String)>,
    /// What was said at the beginning, where it is recorded.
    begun: Option<audit::Record>,
}

impl<'a> Record<'a> {
    fn new(runner: &'a Runner, job: &'a Job, begun: Option<audit::Record>) -> Self {
        runner.metrics.begun();
        let outcome = Cause::Talk(Wrong::ClientGone).as_str();
        Self { runner, job, began: Instant::now(), outcome, exit_code: None, output: None, begun }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.runner.metrics.ended(self.outcome, self.began.elapsed());
        let (namespace, sandbox) = &self.job.at;
        let user = in_a_line(&self.job.user.name);
        let (id, outcome, duration_ms) = (&self.job.wanted.exec.id, self.outcome, self.elapsed_ms());
        tracing::info!(id, %sandbox, %namespace, user, outcome, duration_ms, "call");
        if let Some(record) = &mut self.begun {
            let exit_code = self.exit_code.map(i32::from);
            evidence::ended(record, outcome, exit_code, self.output.take(), duration_ms);
            self.runner.recorder.say_this(record);
        }
    }
}
