//! Moves versions that are over into the archive while a run goes on.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_query::{Archive, ArchiveRule, Archiver};
use forebay_store::Store;

use crate::config::ArchiveTo;

/// How often it is looked whether a version is over.
const EVERY: Duration = Duration::from_secs(1);
/// How long it is waited after the archive could not be reached.
const AFTER_A_FAILURE: Duration = Duration::from_secs(30);
/// How old a file is that no version names, when whoever wrote it has surely ended.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A thread of its own: an object store may be slow, and the store's duties must not wait for it. It ends when dropped, after
/// the version that it is about to move. What it has not moved by then, the next run moves, or `forebay archive`.
#[derive(Debug)]
pub(super) struct Archiving {
    archive: Archive,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Archiving {
    /// Begins to archive a store, where its run is configured so.
    ///
    /// # Errors
    /// When the archive is another store's, or out of reach: better told at the beginning of a run than in its middle.
    pub(super) fn of(store: &Store, to: &ArchiveTo) -> Result<Self> {
        let archive = Archive::open(&to.to).context("archive.to")?;
        let archiver = Archiver::new(store, &archive, ArchiveRule::keep_versions(to.keep_versions))?;
        let (stop, stopped) = channel();
        let work = move || {
            if let Err(error) = archiver.clean(ABANDONED_AFTER) {
                tracing::warn!(%error, "what a run before left half archived could not be removed");
            }
            let mut wait = EVERY;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = match archiver.run_once() {
                    Ok(Some(_)) => Duration::ZERO,
                    Ok(None) => EVERY,
                    Err(error) => {
                        tracing::warn!(%error, "nothing is archived for now; the rows stay in the store");
                        AFTER_A_FAILURE
                    }
                };
            }
        };
        let thread = std::thread::Builder::new().name("archiver".into()).spawn(work);
        let thread = thread.context("cannot start the archiver's thread")?;
        Ok(Archiving { archive, stop: Some(stop), thread: Some(thread) })
    }
}

impl Archiving {
    /// Where the versions go.
    pub(super) fn archive(&self) -> &Archive {
        &self.archive
    }
}

impl Drop for Archiving {
    fn drop(&mut self) {
        self.stop.take(); // the thread sees that nobody can send any more
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the archiver's thread panicked");
        }
    }
}
