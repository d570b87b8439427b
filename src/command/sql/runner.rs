//! Runs statements, one after the other.

use anyhow::{Context, Result};
use forebay::query::{QueryThreads, Session};
use tokio::runtime::Runtime;

use super::output::{Output, Written};

/// What statements run in.
pub(super) struct Runner {
    pub(super) session: Session,
    pub(super) output: Output,
    runtime: Runtime,
}

impl Runner {
    pub(super) fn new(session: Session, output: Output) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Runner { session, output, runtime: runtime.context("cannot run queries")? })
    }

    /// Runs one statement and writes its answer.
    pub(super) fn run(&self, statement: &str) -> Result<Written> {
        let written = self.wait(self.answer(statement))?;
        self.tell(written);
        Ok(written)
    }

    pub(super) async fn answer(&self, statement: &str) -> Result<Written> {
        // A thread of its own computes, for this one has to be there for Ctrl-C; what that ends is in nobody's way.
        let threads = QueryThreads::new(1).context("no thread for the query")?;
        let (session, statement) = (self.session.clone(), statement.to_owned());
        let rows =
            threads.run(async move { session.stream(&statement).await }).await?.driven_by(&threads, ());
        self.output.write(rows).await
    }

    /// Waits for work that may take the clock.
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A table says itself that it was cut; of the other formats every byte is the answer's.
    pub(super) fn tell(&self, written: Written) {
        if written.cut && self.output.format() != forebay::query::Format::Table {
            eprintln!("{} rows; there are more, beyond the row limit", written.rows);
        }
    }
}
