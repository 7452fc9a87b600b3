//! Owns the proof of the fence while the workload runs: rounds from a thread of process 1, which tells the supervisor
//! through a pipe.
//!
//! Must alarm when the fence is open and when nothing could be tried for long: a proof that can't be repeated is none.

use std::io::pipe;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::args::FenceArgs;
use super::fault::Fault;
use super::fence::{Round, round};
use crate::report::{EXIT_FENCE_OPEN, EXIT_GATEWAY_UNREACHABLE};

/// So many rounds in a row, close together, must find the fence open.
const CONFIRM: u8 = 3;
/// From a round that found it open to the one that confirms.
const SOON: Duration = Duration::from_millis(300);
/// So many rounds in a row in which nothing could be tried are an alarm, too.
const BLIND: u8 = 6;
/// The thread's stack: a round needs a few kilobytes.
const STACK: usize = 64 << 10;

/// Why the sandbox must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// This could be reached and must not be.
    Open(SocketAddr),
    /// Nothing could be tried any more.
    Blind,
}

/// A sentry on the wall.
#[derive(Debug)]
pub struct Sentry {
    ear: OwnedFd,
    alarm: Arc<OnceLock<Alarm>>,
}

impl Sentry {
    /// Starts to look, every `fence.every`.
    ///
    /// # Errors
    /// A [`Fault`] when the kernel gives no pipe or no thread.
    pub fn post(fence: FenceArgs) -> Result<Self, Fault> {
        let no = |error: std::io::Error| Fault::new(format!("cannot watch the fence: {error}"));
        let (ear, mouth) = pipe().map_err(no)?;
        let alarm = Arc::new(OnceLock::new());
        let told = Arc::clone(&alarm);
        thread::Builder::new()
            .name("fence".into())
            .stack_size(STACK)
            .spawn(move || {
                let why = look(&fence, || round(&fence), thread::sleep);
                let _ = told.set(why);
                drop(mouth);
            })
            .map_err(no)?;
        Ok(Self { ear: ear.into(), alarm })
    }

    /// What hangs up at an alarm.
    #[must_use]
    pub fn ear(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }

    /// The alarm, if there was one.
    #[must_use]
    pub fn alarm(&self) -> Option<Alarm> {
        self.alarm.get().copied()
    }
}

/// Looks once, and again where that needs to be confirmed; gives the status to exit with. For a process that somebody else
/// starts from time to time.
#[must_use]
pub fn glance(fence: &FenceArgs) -> u8 {
    match confirmed(|| round(fence), thread::sleep) {
        Round::Open(address) => {
            eprintln!("{address} must not be reachable and is");
            EXIT_FENCE_OPEN
        }
        Round::Blind => {
            eprintln!("no connection could be tried");
            EXIT_GATEWAY_UNREACHABLE
        }
        // That the gateway is away for a while opens nothing.
        Round::Closed | Round::Missing(_) => 0,
    }
}

/// The first round that is good, or else the last of [`CONFIRM`].
fn confirmed(mut round: impl FnMut() -> Round, mut sleep: impl FnMut(Duration)) -> Round {
    let mut seen = round();
    for _ in 1..CONFIRM {
        if matches!(seen, Round::Closed | Round::Missing(_)) {
            break;
        }
        sleep(SOON);
        seen = round();
    }
    seen
}

/// Looks until there is an alarm.
fn look(fence: &FenceArgs, mut round: impl FnMut() -> Round, mut sleep: impl FnMut(Duration)) -> Alarm {
    let (mut open, mut blind) = (0, 0);
    loop {
        let seen = round();
        open = if matches!(seen, Round::Open(_)) { open + 1 } else { 0 };
        blind = if seen == Round::Blind { blind + 1 } else { 0 };
        match seen {
            Round::Open(address) if open >= CONFIRM => return Alarm::Open(address),
            Round::Blind if blind >= BLIND => return Alarm::Blind,
            Round::Open(_) => sleep(SOON),
            Round::Closed | Round::Missing(_) | Round::Blind => sleep(fence.every),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rounds: &[Round]) -> (Alarm, usize) {
        let fence = FenceArgs { every: Duration::from_secs(5), ..FenceArgs::default() };
        let mut at = 0;
        let alarm = look(
            &fence,
            || {
                at += 1;
                rounds[at - 1]
            },
            |_| {},
        );
        (alarm, at)
    }

    #[test]
    fn what_is_bad_is_seen_three_times_before_it_is_said() {
        let open = Round::Open("192.0.2.1:9".parse().unwrap());
        let missing = Round::Missing("192.0.2.1:9".parse().unwrap());
        for (rounds, said) in [
            (vec![Round::Closed], Round::Closed),
            (vec![missing], missing),
            (vec![open, Round::Closed], Round::Closed),
            (vec![open, Round::Blind, open], open),
            (vec![Round::Blind; 3], Round::Blind),
        ] {
            let mut left = rounds.iter().copied();
            assert_eq!(confirmed(|| left.next().unwrap(), |_| {}), said);
            assert_eq!(left.next(), None, "{rounds:?}");
        }
    }

    #[test]
    fn an_open_fence_is_told_once_it_is_confirmed() {
        let open = Round::Open("192.0.2.1:9".parse().unwrap());
        let rounds = [open, open, Round::Closed, open, open, open];
        assert_eq!(run(&rounds), (Alarm::Open("192.0.2.1:9".parse().unwrap()), 6));
    }

    #[test]
    fn a_gateway_that_is_away_is_no_alarm_and_blindness_is_one_in_the_end() {
        let missing = Round::Missing("192.0.2.1:9".parse().unwrap());
        let mut rounds = vec![missing; 20];
        rounds.extend([Round::Blind; 5]);
        rounds.push(Round::Closed);
        rounds.extend([Round::Blind; 6]);
        assert_eq!(run(&rounds), (Alarm::Blind, 32));
    }
}
