//! A runtime for callers who have none.
//!
//! A session makes it with the first question that is asked from synchronous code, and keeps it with its threads (one for
//! each partition, none for a single one: that one works on the caller's) until the last clone of the session is gone.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

use crate::error::{Cause, Error, Result};
use crate::room::{STACK_BYTES, with_room};

/// Made when it is first needed.
pub(crate) struct Blocking {
    workers: usize,
    runtime: OnceLock<Running>,
}

/// Ended without waiting for it: the last clone of a session may be dropped inside of another runtime, where waiting is a
/// panic. Nothing runs in it by then, for a query ends with its caller.
struct Running(Option<Runtime>);

impl Blocking {
    /// For queries of so many partitions.
    pub(crate) fn new(workers: usize) -> Self {
        Blocking { workers, runtime: OnceLock::new() }
    }

    /// The output of a future, for a thread that is in no runtime.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let running = match self.runtime.get() {
            Some(running) => running,
            None => {
                let made = self.make().map_err(|error| Cause::Bug { reason: error.to_string() })?;
                self.runtime.get_or_init(|| made)
            }
        };
        let none = || Error::from(Cause::Bug { reason: "a runtime that is over was asked".to_owned() });
        let running = running.0.as_ref().ok_or_else(none)?;
        with_room(|| running.block_on(work)) // it may compute here
    }

    fn make(&self) -> std::io::Result<Running> {
        let mut builder = match self.workers {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let builder = builder.worker_threads(self.workers.max(1)).thread_name("forebay-sql");
        builder.thread_stack_size(STACK_BYTES).enable_all().build().map(Some).map(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
