//! What this client knows of the tables that it writes to: their numbers and columns, as the trailers behind values name them.
//!
//! Nothing depends on it. What is not known, or is not so any more, the server writes itself when it takes a value. A table is asked for
//! when it is written to first, and again when it lacks a column that is named; where a name has passed from one column to another, the
//! server goes on writing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_store::{CellName, Schema};

use super::Lender;
use crate::wire::RowOf;

/// For how long a table is not asked for after it was not told.
const QUIET: Duration = Duration::from_secs(60);

/// Tables by name.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Mutex<HashMap<Arc<str>, Known>>);

#[derive(Clone, Debug)]
enum Known {
    Told(Arc<Layout>),
    NotSince(Instant),
}

/// How the trailers behind values of a table name its cells.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Of the table.
    pub(crate) number: u32,
    pub(crate) schema: Schema,
}

impl Layout {
    /// The number of a column, if there is one of that name.
    pub(super) fn column(&self, name: &str) -> Option<u32> {
        self.schema.index_of(name).ok().map(|index| index as u32) // a table has few
    }

    /// The cell of a row in a column; none where the store is to name the row.
    pub(super) fn cell(&self, row: RowOf<'_>, column: u32) -> Option<CellName> {
        match row {
            RowOf::There(row) => Some(CellName::of(row, column)),
            RowOf::New(row) | RowOf::Several(row) => CellName::of_new(self.number, row, column),
        }
    }
}

impl Layouts {
    fn tables(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// What is known of a table. Who lends is asked for what is not.
    pub(super) fn of(&self, table: &Arc<str>, lender: &dyn Lender) -> Option<Arc<Layout>> {
        match self.tables().get(table).cloned() {
            Some(Known::Told(layout)) => return Some(layout),
            Some(Known::NotSince(since)) if since.elapsed() < QUIET => return None,
            Some(Known::NotSince(_)) | None => {}
        }
        let told = lender.layout(table).inspect_err(
            |error| tracing::debug!(%table, %error, "the server writes the trailers behind values"),
        );
        let told = told.ok().flatten().map(Arc::new);
        let known = told.clone().map_or_else(|| Known::NotSince(Instant::now()), Known::Told);
        self.tables().insert(table.clone(), known);
        told
    }

    /// A column was not known, so the table has changed: it is asked for again.
    pub(super) fn forget(&self, table: &str) {
        self.tables().remove(table);
    }
}
