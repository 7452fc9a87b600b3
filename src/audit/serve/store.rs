//! The thread that writes: what comes while the disk is busy is written by the next turn, with one checkpoint and one flush.

use std::{path::Path, sync::Arc};

use tokio::sync::{mpsc, oneshot, watch};

use crate::audit::{
    Record,
    directory::Directory,
    entry::Source,
    note::Signer,
    now,
    writer::{Committed, WriteError, Writer},
};

/// Most batches that wait, and that are written at once.
const MOST_WAITING: usize = 256;

/// The trail does not take it now.
#[derive(Clone, Debug)]
pub(super) struct NotTaken(pub(super) String);

struct Command {
    batch: Vec<(Source, Record)>,
    done: oneshot::Sender<Result<u64, NotTaken>>,
}

/// The trail, for whoever writes to it and reads it.
#[derive(Clone)]
pub(super) struct Store {
    commands: mpsc::Sender<Command>,
    pub(super) committed: watch::Receiver<Arc<Committed>>,
    pub(super) directory: Directory,
}

impl Store {
    /// Opens it, and writes in a thread of its own. What comes second ends when that thread does, with the reason.
    pub(super) fn open(
        path: &Path,
        origin: &str,
        signers: Vec<Signer>,
        keep: Option<u64>,
    ) -> Result<(Self, oneshot::Receiver<WriteError>), WriteError> {
        let writer = Writer::open(path, origin, signers, now())?;
        let (commands, taken) = mpsc::channel(MOST_WAITING);
        let (told, committed) = watch::channel(Arc::new(writer.committed().clone()));
        let directory = writer.directory().clone();
        let (failed, ended) = oneshot::channel();
        std::thread::spawn(move || {
            if let Err(error) = write(writer, taken, &told, keep) {
                // Nobody listens any more when the process ends.
                let _ = failed.send(error);
            }
        });
        Ok((Self { commands, committed, directory }, ended))
    }

    /// Writes a batch. How many entries there are then.
    pub(super) async fn append(&self, batch: Vec<(Source, Record)>) -> Result<u64, NotTaken> {
        let gone = || NotTaken("the writer has ended".to_owned());
        let (done, size) = oneshot::channel();
        self.commands.send(Command { batch, done }).await.map_err(|_| gone())?;
        size.await.map_err(|_| gone())?
    }
}

fn write(
    mut writer: Writer,
    mut commands: mpsc::Receiver<Command>,
    told: &watch::Sender<Arc<Committed>>,
    keep: Option<u64>,
) -> Result<(), WriteError> {
    let mut pruned_at = 0;
    while let Some(first) = commands.blocking_recv() {
        let mut group = vec![first];
        while let Some(next) = (group.len() < MOST_WAITING).then(|| commands.try_recv().ok()).flatten() {
            group.push(next);
        }
        let (batches, done): (Vec<_>, Vec<_>) =
            group.into_iter().map(|command| (command.batch, command.done)).unzip();
        let all = batches.into_iter().flatten().map(|(source, record)| (Some(source), record));
        let mut written = writer.write(all, now());
        if let (Ok(()), Some(keep)) = (&written, keep.filter(|_| writer.committed().segment > pruned_at)) {
            pruned_at = writer.committed().segment;
            written = writer.prune(keep, now());
        }
        told.send_replace(Arc::new(writer.committed().clone()));
        let size = writer.committed().size;
        for done in done {
            let answer = written.as_ref().map(|()| size).map_err(|error| NotTaken(error.to_string()));
            // Whoever waited may have gone.
            let _ = done.send(answer);
        }
        match written {
            Err(error @ (WriteError::Unsure(_) | WriteError::Altered(_))) => return Err(error),
            Err(error) => tracing::error!(%error, "records are not taken"),
            Ok(()) => {}
        }
    }
    Ok(())
}
