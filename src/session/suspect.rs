//! What calls and files say of a sandbox that looks like an attack: calls that run into their deadline one after the other, and paths
//! that lead to what is protected.

use tokio::time::{Duration, Instant};

use super::uses::Uses;
use crate::{
    audit::printable,
    call::{FileFailure, FileOperation, FileReason, FileRequest},
    detect::{Sign, Signs, Told, Weight},
};

/// So many calls that are ended at their deadline, within so long, are a storm.
const MANY: u32 = 10;
const WITHIN: Duration = Duration::from_secs(600);
/// Longest path in a sign, in characters.
const MOST_CHARS: usize = 128;

/// One sandbox under watch.
#[derive(Debug, Default)]
pub(super) struct Watch {
    signs: Signs,
    /// Since when calls that were late are counted, and how many there were.
    late: Option<(Instant, u32)>,
    /// Which change of the replica's was its last.
    version: u64,
}

impl Watch {
    fn late(&mut self, now: Instant) -> Option<Sign> {
        let counted = self.late.filter(|(since, _)| now.duration_since(*since) < WITHIN);
        let (since, count) = counted.map_or((now, 1), |(since, count)| (since, count + 1));
        self.late = Some((since, count));
        let what = "ten calls within ten minutes ran into their deadline";
        (count == MANY).then(|| Sign::new(Weight::Much, &[b"late"], what.to_owned()))
    }
}

/// What a file operation that was not done says of whom it was done for.
fn sign(request: &FileRequest, failure: &FileFailure) -> Option<Sign> {
    let writes = matches!(
        request.operation,
        FileOperation::Write { .. } | FileOperation::Delete { .. } | FileOperation::Unpack
    );
    let what = match failure.reason {
        FileReason::ReadOnly if writes => "what is protected was to be written",
        FileReason::LinkRefused => "a link out of the workspace was to be followed",
        _ => return None,
    };
    let path = printable(&request.path, MOST_CHARS);
    let words = format!("{what}: {path}");
    Some(Sign::new(Weight::Suspicious, &[what.as_bytes(), path.as_bytes()], words))
}

impl Uses {
    /// A call was ended at its deadline.
    pub(super) fn late(&self, uid: &str) {
        self.see(uid, |watch| watch.late(Instant::now()));
    }

    /// A file operation was not done.
    pub(super) fn not_done(&self, uid: &str, request: &FileRequest, failure: &FileFailure) {
        self.see(uid, |_| sign(request, failure));
    }

    /// What is seen again counts as one of another period: it takes a call, or ten.
    fn see(&self, uid: &str, look: impl FnOnce(&mut Watch) -> Option<Sign>) {
        self.with(uid, |watch| {
            let period = watch.version + 1;
            if let Some(sign) = look(watch)
                && watch.signs.see(sign, period)
            {
                self.board.post(|version| watch.version = version);
            }
        });
    }

    /// Sandboxes whose signs changed after this version.
    pub(super) fn told(&self, since: u64) -> Vec<Told> {
        self.each(|uid, watch| {
            let signs = || watch.signs.all().cloned().collect();
            (watch.version > since).then(|| Told {
                uid: uid.to_owned(),
                version: watch.version,
                signs: signs(),
                wanted: vec![],
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn request(operation: FileOperation, path: &str) -> FileRequest {
        FileRequest {
            id: "f".into(),
            operation,
            path: path.into(),
            timeout_ms: 1,
            max_bytes: 1,
            max_entries: 1,
        }
    }

    fn points(uses: &Uses) -> u32 {
        let mut signs = Signs::default();
        for sign in uses.told(0).into_iter().flat_map(|told| told.signs) {
            signs.hear(sign);
        }
        signs.score()
    }

    #[tokio::test(start_paused = true)]
    async fn ten_calls_that_are_late_within_ten_minutes_are_a_storm() {
        let uses = Arc::new(Uses::default());
        drop(uses.begin(&"u".into()));
        for _ in 0..9 {
            uses.late("u");
        }
        tokio::time::advance(WITHIN).await;
        for _ in 0..9 {
            uses.late("u");
        }
        assert!(uses.told(0).is_empty());
        uses.late("u");
        assert_eq!(points(&uses), 9);
        // Of one that is not known nothing is kept.
        uses.late("other");
        assert_eq!(uses.told(0).len(), 1);
    }

    #[test]
    fn each_path_that_is_protected_counts_once() {
        let uses = Arc::new(Uses::default());
        drop(uses.begin(&"u".into()));
        let refused = |reason| FileFailure { reason, at: None };
        let write = FileOperation::Write { mode: None, parents: false, replace: true };
        for path in [".git/hooks/pre-commit", ".git/hooks/pre-commit", ".bashrc\u{1b}"] {
            uses.not_done("u", &request(write, path), &refused(FileReason::ReadOnly));
        }
        uses.not_done("u", &request(FileOperation::Read, "out"), &refused(FileReason::LinkRefused));
        uses.not_done("u", &request(write, "a"), &refused(FileReason::NotFound));
        uses.not_done("u", &request(FileOperation::Read, "a"), &refused(FileReason::ReadOnly));
        assert_eq!(points(&uses), 9);
        let told = uses.told(0);
        assert!(told[0].signs.iter().all(|sign| !sign.what.contains('\u{1b}')));
        assert!(uses.told(told[0].version).is_empty());
    }
}
