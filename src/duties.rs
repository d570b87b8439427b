//! Drives a store's background duties: the store itself starts no thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_store::Store;

/// How often the store is asked whether something is due.
const EVERY: Duration = Duration::from_millis(250);

/// A thread that syncs, takes checkpoints, applies retention and looks after space, as the store says that it is due. It
/// ends when this is dropped, which waits for what it is doing.
///
/// ```
/// use forebay::store::{Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let duties = forebay::Duties::of(&store)?;
/// drop(duties); // before the store: it holds a handle
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Duties {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Duties {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn of(store: &Store) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let store = store.clone();
        let work = move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = store.run_once() {
                    // A store that is closed says so to whoever uses it next; nothing is lost by stopping here.
                    tracing::warn!(%error, "the store's background duties ended");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("store-duties".into()).spawn(work)?;
        Ok(Duties { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Duties {
    fn drop(&mut self) {
        self.stop.take(); // the thread sees that nobody can send any more
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the thread of the store's background duties panicked");
        }
    }
}
