//! What one call says that is to be changed, with its values read already: nothing of it is Python's to change any more.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use forebay::client::{Changes, Error};
use forebay::store::{Kind, NewRow, Row};

use super::Terms;
use crate::failure::Result;
use crate::handle::Open;
use crate::input::{Column, cells};

/// Changes of one table, as one call says them.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) table: Arc<str>,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    /// New rows, each with its replicas, and a cell a row of them in each column.
    Insert { rows: Vec<NewRow>, rollouts: NonZeroU32, columns: Vec<Column> },
    /// Cells that turn final.
    Write { rows: Vec<Row>, columns: Vec<Column> },
    /// Rows that go on under a later version, each from its token on.
    Span { rows: Vec<Row>, starts: Vec<u32>, version: u64 },
    /// Rows of which only the tokens from there on are trained on.
    TrainableFrom { rows: Vec<Row>, starts: Vec<u32> },
    /// Rows that are left out.
    Exclude { rows: Vec<Row>, reason: String },
    /// Something of a consumer's group.
    Group { consumer: Arc<str>, policy_version: u64, key: String, about: About },
}

/// What is said of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    Expected(u32),
    Closed,
    TrajectoryClosed(u32),
}

/// Makes changes, all or none. Gives the rows that were inserted, in the order of their insertion. To be called without the
/// interpreter's lock. What was said is of no use afterwards, and is left to be dropped with that lock: its values may be Python's.
pub(crate) fn make(open: &Open, terms: Terms, said: &mut [Said]) -> Result<Vec<Row>> {
    let tables: BTreeSet<Arc<str>> = said.iter().map(|said| said.table.clone()).collect();
    let count: usize = said.iter().map(Said::inserted).sum();
    let mut changes = terms.changes();
    said.iter_mut().for_each(|said| said.add_to(&mut changes));
    let rows = open.write(&tables, &changes)?;
    if rows.len() != count {
        let (reason, told) = ("the server did not say which rows it inserted", rows.len());
        return Err(Error::new(Kind::Input, "Protocol", format!("{reason}: {told} of {count}")).into());
    }
    Ok(rows)
}

impl Said {
    /// How many rows it inserts.
    pub(crate) fn inserted(&self) -> usize {
        match &self.what {
            What::Insert { rows, rollouts, .. } => rows.len() * rollouts.get() as usize,
            _ => 0,
        }
    }

    /// Says it to the client, once: new rows are taken out of it.
    fn add_to<'v>(&'v mut self, changes: &mut Changes<'v>) {
        let table = || self.table.clone();
        match &mut self.what {
            What::Insert { rows, rollouts, columns } => {
                let columns: &'v [Column] = columns;
                for (at, row) in std::mem::take(rows).into_iter().enumerate() {
                    changes.insert_rollouts(table(), row, rollouts.get(), cells(columns, at));
                }
            }
            What::Write { rows, columns } => write_rows(changes, &self.table, rows, columns),
            What::Span { rows, starts, version } => rows.iter().zip(starts).for_each(|(row, start)| {
                changes.span(table(), *row, *start, *version);
            }),
            What::TrainableFrom { rows, starts } => rows.iter().zip(starts).for_each(|(row, start)| {
                changes.trainable_from(table(), *row, *start);
            }),
            What::Exclude { rows, reason } => rows.iter().for_each(|row| {
                changes.exclude(table(), *row, &**reason);
            }),
            What::Group { consumer, policy_version, key, about } => {
                about.add_to(changes, consumer, &self.table, *policy_version, key);
            }
        }
    }
}

impl About {
    fn add_to<'v>(
        self,
        changes: &mut Changes<'v>,
        consumer: &Arc<str>,
        table: &Arc<str>,
        version: u64,
        key: &'v str,
    ) {
        let (consumer, table) = (consumer.clone(), table.clone());
        match self {
            About::Expected(members) => changes.expect_group(consumer, table, version, key, members),
            About::Closed => changes.close_group(consumer, table, version, key),
            About::TrajectoryClosed(trajectory) => {
                changes.close_trajectory(consumer, table, version, key, trajectory)
            }
        };
    }
}

/// Adds the cells of columns, one a row.
pub(crate) fn write_rows<'v>(
    changes: &mut Changes<'v>,
    table: &Arc<str>,
    rows: &[Row],
    columns: &'v [Column],
) {
    rows.iter().enumerate().for_each(|(at, row)| _ = changes.write(table.clone(), *row, cells(columns, at)));
}
