//! Which cell a value is of, in the words of the trailer behind it.

use crate::batch::NewRow;
use crate::extent::ValueOwner;
use crate::table::Row;

/// The cell that a value is of, as the trailer behind the value says it, for whoever writes that before the store does
/// ([`ExtentFiller::place_of`](super::ExtentFiller::place_of)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellName(pub(super) ValueOwner);

impl CellName {
    /// A cell of a row that is there. `column` counts the table's data columns, retired ones as well
    /// ([`Schema::index_of`](crate::Schema::index_of)).
    pub fn of(row: Row, column: u32) -> Self {
        CellName(row.owner(column))
    }

    /// A cell of a row that is about to be inserted into the table of that [number](crate::Table::id); none where the store is to
    /// give its trajectory a number.
    pub fn of_new(table: u32, row: &NewRow, column: u32) -> Option<Self> {
        let row_key = Row::key(row.policy_version, row.sample.key());
        (!row.numbered).then_some(CellName(ValueOwner { row_key, table, column }))
    }
}
