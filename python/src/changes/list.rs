//! Changes that were said and are not made yet.
//!
//! A list is used up once: by making it, whether that succeeds or not, or by giving it up. Rows that it inserts are told to whoever
//! holds them when it was made, and to nobody else.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;

use super::Terms;
use super::said::{Said, make};
use crate::failure::{Failure, Result, input, state};
use crate::handle::Handle;
use crate::rows::{Awaited, Rows};

/// What calls have said so far; nothing once it was made or given up. The lock is held for no longer than it takes to add an entry.
#[derive(Debug)]
pub(crate) struct List {
    terms: Terms,
    entries: Mutex<Option<Vec<Entry>>>,
}

/// What one call said, and who waits for the rows that it inserts.
#[derive(Debug)]
struct Entry {
    said: Said,
    rows: Arc<Awaited>,
}

impl List {
    pub(crate) fn new(terms: Terms) -> Self {
        List { terms, entries: Mutex::new(Some(Vec::new())) }
    }

    /// Adds what a call said. Gives the rows that will be inserted.
    pub(crate) fn add(&self, said: Said, terms: Terms) -> Result<Rows> {
        if terms != Terms::default() {
            return Err(input(
                "durability and timeout are those of all changes together; give them to store.changes()",
            ));
        }
        let rows = Arc::new(Awaited::of(said.inserted()));
        let given = Rows::awaited(&said.table, &rows);
        self.entries.lock().as_mut().ok_or_else(used_up)?.push(Entry { said, rows });
        Ok(given)
    }

    /// Makes all of it, or nothing.
    pub(crate) fn make(&self, py: Python<'_>, handle: &Handle) -> Result<()> {
        let entries = self.entries.lock().take().ok_or_else(used_up)?;
        let (mut said, waiting): (Vec<Said>, Vec<Arc<Awaited>>) =
            entries.into_iter().map(|entry| (entry.said, entry.rows)).unzip();
        let rows = match said.is_empty() {
            true => Vec::new(),
            false => handle.run(py, |open| make(open, self.terms, &mut said))?,
        };
        let mut rows = rows.into_iter();
        waiting.iter().for_each(|waiting| waiting.come(rows.by_ref()));
        Ok(())
    }

    /// Gives all of it up, if it was not made.
    pub(crate) fn give_up(&self) {
        let entries = self.entries.lock().take();
        drop(entries); // with the lock free again
    }

    /// How many calls have said something; nothing once it was made or given up.
    pub(crate) fn len(&self) -> Option<usize> {
        self.entries.lock().as_ref().map(Vec::len)
    }
}

fn used_up() -> Failure {
    state("these changes were made or given up before; begin others with store.changes()")
}
