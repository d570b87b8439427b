//! Ctrl-C ends the query that runs, and not the program.
//!
//! While the prompt waits for a line the terminal sends no signal; the line editor clears the line instead. So the line's
//! end, while that still holds, is the moment to forget what was pressed before: what comes later is meant for the
//! statements of the line, also when none of them has begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

/// How often is looked for it: sooner than a person notices.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether Ctrl-C was pressed since the end of the line that is answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the signal is taken.
    pub(super) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        signal_hook::flag::register(signal_hook::consts::SIGINT, interrupt.0.clone())
            .context("cannot listen for Ctrl-C")?;
        Ok(interrupt)
    }

    /// A line is at its end: what was pressed before was meant for something else.
    pub(super) fn forget(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// The work's result, or none when Ctrl-C has ended it or came before it.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.pressed() => None,
            done = work => Some(done),
        }
    }

    async fn pressed(&self) {
        while !self.0.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

    use super::*;

    #[test]
    fn ctrl_c_ends_the_work_and_what_comes_after_it_until_the_next_line() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let interrupt = Interrupt::listen().unwrap();
        runtime.block_on(async {
            let endless = async {
                signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
                std::future::pending::<()>().await;
            };
            assert_eq!(interrupt.or(endless).await, None);
            assert_eq!(interrupt.or(async { 7 }).await, None, "it is of the same line");
            interrupt.forget();
            assert_eq!(interrupt.or(async { 7 }).await, Some(7));
        });
    }
}
