//! Deleting rows by a rule.

use std::ops::RangeInclusive;

use super::{Row, Table};
use crate::error::Result;
use crate::log::record::{DeleteRecord, Event};

/// Which rows of a table are to be deleted. What is deleted is gone for good: its identity is never free again.
///
/// ```
/// use forebay_store::Delete;
/// let old = Delete::versions_up_to(4);
/// let all = Delete::all_confirmed();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a rule deletes nothing until it is given to a table"]
#[non_exhaustive]
pub struct Delete {
    /// Every row of these versions.
    pub versions: Option<RangeInclusive<u64>>,
    /// These rows.
    pub rows: Option<Vec<Row>>,
    /// Every row there is.
    pub all: bool,
    /// Also rows that somebody holds, or that a rewind may need.
    pub force: bool,
}

impl Delete {
    /// Every row of a version. The version is retired: nothing can be inserted under it again.
    pub fn version(version: u64) -> Self {
        Delete { versions: Some(version..=version), ..Delete::default() }
    }

    /// Every row of a version and of all before it, and retires these versions.
    pub fn versions_up_to(version: u64) -> Self {
        Delete { versions: Some(0..=version), ..Delete::default() }
    }

    /// These rows, for instance those that a query gave.
    pub fn rows(rows: impl IntoIterator<Item = Row>) -> Self {
        Delete { rows: Some(rows.into_iter().collect()), ..Delete::default() }
    }

    /// Every row of the table. Said in so many words, for a rule that names neither a version nor rows is refused.
    pub fn all_confirmed() -> Self {
        Delete { all: true, ..Delete::default() }
    }

    /// Deletes also rows that somebody holds, or that a rewind may need.
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }
}

/// What a deletion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Rows that are gone.
    pub rows: u64,
    /// Of those, rows that were neither trained on nor excluded before; they are counted as excluded, as `deleted`.
    pub open: u64,
}

impl Table {
    /// Deletes rows and frees what they hold. All of them, or none.
    ///
    /// # Errors
    /// `input` when the rule names nothing, or rows of another table; `state` when a row is held or may be needed by a
    /// rewind, or a version is the current one: [`Delete::force`] deletes those too.
    pub fn delete(&self, rule: &Delete) -> Result<Deleted> {
        for row in rule.rows.iter().flatten() {
            self.check_row(*row)?;
        }
        let kept = self.store.0.options.object_versions_kept;
        self.store.0.submit_if(|state| {
            let (record, deleted) = state.decide_delete(self.id(), rule, kept)?;
            let nothing = record == DeleteRecord { table: self.id(), ..DeleteRecord::default() };
            Ok(((!nothing).then_some(Event::Deleted { deletions: vec![record] }), deleted))
        })
    }
}
