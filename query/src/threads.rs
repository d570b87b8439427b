//! Threads that compute queries: for callers who have to stay awake, and for those who have no runtime.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::ending::ASKER;
use crate::error::{Cause, Result};
use crate::room::STACK_BYTES;

/// Threads of their own, on which [`RowStream::driven_by`](crate::RowStream::driven_by) has queries computed.
///
/// Those who poll such a stream have a clock and a network that nobody's computing holds up, so they see when its time is up, hear
/// that a client has left, and can drop it. Dropping the threads waits for nothing: what they are at ends at its next look.
///
/// ```
/// use forebay_query::{QueryThreads, Session};
/// use forebay_store::{Options, Store};
/// # let dir = tempfile::tempdir()?;
/// # let store = Store::open(dir.path().join("store"), Options::default())?;
/// let (session, threads) = (Session::new(&store)?, QueryThreads::new(1)?);
/// let asker = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// let answer = asker.block_on(async {
///     session.stream("SELECT 40 + 2 AS answer").await?.driven_by(&threads, ()).collect().await
/// })?;
/// assert_eq!(answer.row_count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct QueryThreads(Unwaited);

/// A runtime that is ended without waiting for it: its last owner may be dropped inside of another one, where waiting is a
/// panic.
#[derive(Debug)]
pub(crate) struct Unwaited(Option<Runtime>);

impl QueryThreads {
    /// So many threads, at least one.
    ///
    /// # Errors
    /// When the operating system gives none.
    pub fn new(count: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder =
            builder.worker_threads(count.max(1)).thread_name("forebay-query").thread_stack_size(STACK_BYTES);
        builder.enable_all().build().map(Unwaited::new).map(QueryThreads)
    }

    /// Has something done there, such as the planning of a statement, which may compute for seconds without a pause. It ends with
    /// its caller, at its next look.
    ///
    /// # Errors
    /// Those of the work; [`Kind::Bug`](crate::Kind::Bug) when it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let left = Arc::new(AtomicBool::new(false));
        let mut running =
            Running { task: self.handle().spawn(ASKER.scope(left.clone(), work)), left, is_done: false };
        let done = (&mut running.task).await;
        running.is_done = true;
        done.map_err(|error| Cause::Bug { reason: error.to_string() })?
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.0.handle()
    }
}

/// Ended when nobody waits for it.
struct Running<T> {
    task: JoinHandle<T>,
    /// What work that comes back to nobody looks at.
    left: Arc<AtomicBool>,
    is_done: bool,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if !self.is_done {
            self.left.store(true, Ordering::Relaxed);
            self.task.abort();
        }
    }
}

impl Unwaited {
    pub(crate) fn new(runtime: Runtime) -> Self {
        Unwaited(Some(runtime))
    }
}

impl Deref for Unwaited {
    type Target = Runtime;

    fn deref(&self) -> &Runtime {
        let Unwaited(Some(runtime)) = self else { unreachable!("taken when it is dropped, and not before") };
        runtime
    }
}

impl Drop for Unwaited {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
