//! Drives a store's background duties: the store itself starts no thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_store::Store;

/// How often the store is asked whether something is due.
const EVERY: Duration = Duration::from_millis(250);

/// A thread that syncs, takes checkpoints, applies retention and looks after space, as the store says that it is due. What
/// fails is logged and tried again. It ends when this is dropped, which waits for what it is doing, or when the store is closed.
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
            let mut told = None;
            // A store that is closed says so to whoever uses it next.
            while store.closed().is_none() && stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let failed = store.run_once().err().map(|error| error.to_string());
                tell(failed.as_deref(), told.as_deref());
                told = failed;
            }
        };
        let thread = std::thread::Builder::new().name("store-duties".into()).spawn(work)?;
        Ok(Duties { stop: Some(stop), thread: Some(thread) })
    }
}

/// Tells what fails once and not four times a second, and when it is over.
fn tell(failed: Option<&str>, told: Option<&str>) {
    match failed {
        Some(error) if told != Some(error) => {
            tracing::warn!(error, "a background duty of the store failed; it is tried again");
        }
        None if told.is_some() => tracing::info!("the store's background duties work again"),
        _ => {}
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
