//! Object stores are async; an archiver is called by threads.

use std::future::Future;

use crate::error::{Cause, Error, Result};

/// Runs a future to its end, on a thread that may be in an async runtime, which it then blocks.
pub(super) fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    if tokio::runtime::Handle::try_current().is_err() {
        return run(future);
    }
    // A runtime cannot be entered from inside another one, but a fresh thread is in none.
    std::thread::scope(|scope| match scope.spawn(|| run(future)).join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Error::from(Cause::Bug { reason: error.to_string() }))?.block_on(future)
}
