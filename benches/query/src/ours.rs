//! A session over the store.

use std::path::Path;
use std::time::Instant;

use forebay_query::{Options, Session};
use forebay_store::Store;

use crate::questions::QUESTIONS;
use crate::report::sum;
use crate::{Answered, Engine, Outcome};

pub(crate) struct Ours(Session);

impl Ours {
    pub(crate) fn new(store: &Store) -> Outcome<Self> {
        let cores = std::thread::available_parallelism()?.get();
        Ok(Ours(Session::with_options(store, &Options::default().partitions(cores))?))
    }
}

impl Engine for Ours {
    fn name(&self) -> &'static str {
        "forebay"
    }

    /// The store has them already.
    fn add(&mut self, _file: &Path) -> Outcome<()> {
        Ok(())
    }

    fn ask(&mut self, question: usize) -> Outcome<Answered> {
        let start = Instant::now();
        let answer = self.0.sql_blocking(QUESTIONS[question].sql)?;
        let time = start.elapsed();
        Ok(Answered { time, rows: answer.row_count(), sum: sum(&answer.batches)? })
    }
}
