//! Counts what is lost when the log is cut.

use std::collections::HashSet;

use crate::directory::Directory;
use crate::error::Result;
use crate::log::record::{Event, Operation};
use crate::log::{self, Found};

/// How many records from `first` on the log holds or held, and how many rows they changed, as far as can be told.
pub(super) fn count(directory: &Directory, first: u64) -> Result<(u64, u64)> {
    let mut next = first + 1; // what cannot be read at all was one, at least
    let mut rows = HashSet::new();
    log::scan(&*directory.disk, &directory.log(), Some(directory.store_id), |_, found| {
        if let Found::Record { sequence, record, .. } = found
            && sequence >= first
        {
            next = next.max(sequence.saturating_add(1));
            rows.extend(rows_of(&record.event));
        }
    })?;
    Ok((next - first, rows.len() as u64))
}

fn rows_of(event: &Event) -> Vec<(u32, u32)> {
    let (Event::Written { operations } | Event::Finished { operations, .. }) = event else {
        return Vec::new();
    };
    let row = |operation: &Operation| match operation {
        Operation::Insert(insert) => Some((insert.table, insert.row)),
        Operation::Write { table, row, .. }
        | Operation::Append { table, row, .. }
        | Operation::Exclude { table, row, .. } => Some((*table, *row)),
        #[allow(unreachable_patterns, reason = "operations that change no row")]
        _ => None,
    };
    operations.iter().filter_map(row).collect()
}
