//! `system.tables`: a row a table, with what became of its rows. From the query's snapshot.
//!
//! `written = consumed + excluded + open` at every instant.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use forebay_store::{ScanOrder, TableSnapshot};

use super::Moment;
use super::fields::Fields;
use crate::error::from_store;

/// Rows whose fate is counted at a time.
const COUNT_BATCH_ROWS: usize = 1 << 16;

struct Fate {
    consumed: u64,
    excluded: u64,
}

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let tables: Vec<&TableSnapshot> = moment.tables().collect();
    let fates = tables.iter().copied().map(fate).collect::<Result<Vec<_>, _>>()?;
    let seen = || tables.iter().copied();
    let rows = || seen().zip(&fates);
    Fields::default()
        .texts("table_name", seen().map(TableSnapshot::name))
        .texts("policy", seen().map(TableSnapshot::policy))
        .numbers("current_version", seen().map(TableSnapshot::current_version))
        .numbers("written", seen().map(written))
        .numbers("consumed", fates.iter().map(|fate| fate.consumed))
        .numbers("excluded", fates.iter().map(|fate| fate.excluded))
        .numbers("open", rows().map(|(table, fate)| written(table) - fate.consumed - fate.excluded))
        .batch(tables.len())
}

fn written(table: &TableSnapshot) -> u64 {
    table.row_count() as u64
}

/// Counts over two meta columns: a row that was consumed names its step, one that was excluded its reason.
fn fate(table: &TableSnapshot) -> Result<Fate, ArrowError> {
    let positions =
        ["step", "excluded_reason"].map(|column| table.arrow_schema().index_of(column)).into_iter();
    let positions = positions.collect::<Result<Vec<_>, _>>()?;
    let outside = |error| ArrowError::ExternalError(Box::new(from_store(error)));
    let mut fate = Fate { consumed: 0, excluded: 0 };
    for batch in table.scan(Some(&positions), ScanOrder::Arrival, COUNT_BATCH_ROWS).map_err(outside)? {
        let batch = batch.map_err(outside)?;
        let present = |column: usize| (batch.num_rows() - batch.column(column).null_count()) as u64;
        fate.consumed += present(0);
        fate.excluded += present(1);
    }
    Ok(fate)
}
