//! Columns of some rows of a live table, by the rows' numbers.

use arrow_array::RecordBatch;

use super::array::Lists;
use super::columns::ColumnSet;
use super::gather::gather_rows;
use crate::error::Result;
use crate::shared::Shared;

impl Shared {
    /// Columns of rows as Arrow arrays, by name. What the rows name is held from the look at the state until the arrays hold
    /// it themselves: rows may be deleted, and their space used again, in between.
    pub(crate) fn columns_of<'a>(
        &self,
        table: u32,
        rows: &[u32],
        names: impl IntoIterator<Item = &'a str>,
        lists: Lists,
    ) -> Result<RecordBatch> {
        let (gathered, _pin) = {
            let state = self.state.lock();
            let table = &state.tables[table as usize];
            let columns = ColumnSet::named(&table.schema, &table.arrow_schema, names)?;
            let gathered = gather_rows(table, state.texts.pages(), rows, columns);
            (gathered, self.pin_reader(&state))
        };
        gathered.into_batch_with(lists, &self.extents)
    }
}
