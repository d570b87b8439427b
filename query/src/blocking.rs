//! A runtime for callers who have none.
//!
//! A session makes it with the first question that is asked from synchronous code, and keeps it with its threads (one for
//! each partition, none for a single one: that one works on the caller's) until the last clone of the session is gone.

use std::sync::OnceLock;

use tokio::runtime::Builder;

use crate::error::{Cause, Result};
use crate::room::{STACK_BYTES, with_room};
use crate::threads::Unwaited;

/// Made when it is first needed.
pub(crate) struct Blocking {
    workers: usize,
    runtime: OnceLock<Unwaited>,
}

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
        with_room(|| running.block_on(work)) // it may compute here
    }

    fn make(&self) -> std::io::Result<Unwaited> {
        let mut builder = match self.workers {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let builder = builder.worker_threads(self.workers.max(1)).thread_name("forebay-sql");
        builder.thread_stack_size(STACK_BYTES).enable_all().build().map(Unwaited::new)
    }
}
