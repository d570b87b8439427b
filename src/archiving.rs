//! Moves versions that are over into the archive while a store is written.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_query::Archiver;

/// How often it is looked whether a version is over.
const EVERY: Duration = Duration::from_secs(1);
/// How long it is waited after the archive could not be reached.
const AFTER_A_FAILURE: Duration = Duration::from_secs(30);
/// How old a file is that no version names, when whoever wrote it has surely ended.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// A thread that moves versions as an archiver's rule says, beside whoever writes the store; a store has one such thread.
///
/// It is a thread of its own because an object store may be slow, and the store's duties must not wait for it. While the archive
/// cannot be reached the rows stay in the store, and it is tried again. It ends when this is dropped, after the version that it
/// is about to move; what it has not moved by then, the next one moves, or `forebay archive`.
///
/// ```
/// use forebay::query::{Archive, ArchiveRule, Archiver};
/// use forebay::store::{Options, Store};
/// # let dir = tempfile::tempdir()?;
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let archive = Archive::open(dir.path().join("archive").to_str().ok_or("no text")?)?;
/// let archiver = Archiver::new(&store, &archive, ArchiveRule::keep_versions(8))?;
/// let archiving = forebay::Archiving::of(archiver)?;
/// drop(archiving); // before the store: it holds a handle
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Archiving {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Archiving {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn of(archiver: Archiver) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let work = move || {
            if let Err(error) = archiver.clean(ABANDONED_AFTER) {
                tracing::warn!(%error, "what was left half archived before could not be removed");
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
        let thread = std::thread::Builder::new().name("archiver".into()).spawn(work)?;
        Ok(Archiving { stop: Some(stop), thread: Some(thread) })
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
