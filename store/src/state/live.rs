//! What each change of a cell means for the extents: see [`Liveness`](crate::extent::Liveness).

use super::State;
use crate::extent::View;
use crate::log::record::{CellRecord, StoredValue};
use crate::schema::StorageClass;

impl State {
    /// Cells turn final: their values live from here on, and what they held before is dead: fragments that they grew from, and
    /// what a repair empties. Called before the table is changed.
    pub(super) fn cells_turn_final(
        &mut self,
        table: u32,
        row: u32,
        cells: &[CellRecord],
    ) -> Result<(), String> {
        for cell in cells {
            let fragments = self.tables[table as usize].fragments(row, cell.column).to_vec();
            for fragment in fragments {
                self.let_go(table, cell.column, fragment)?;
            }
            if let Some(StoredValue::View(view)) = self.final_cell(table, row, cell.column) {
                self.let_go(table, cell.column, View(view))?;
            }
            if let StoredValue::View(view) = cell.value
                && self.lies_in_extent(table, cell.column, View(view))
            {
                self.liveness.add(View(view), self.commits);
            }
        }
        Ok(())
    }

    /// What a cell holds that is final already; none of a row that is about to come.
    fn final_cell(&self, table: u32, row: u32, column: u16) -> Option<StoredValue> {
        let table = &self.tables[table as usize];
        let is_there = row < table.row_count() && usize::from(column) < table.schema.data_columns().len();
        if is_there { table.cell(usize::from(column), row) } else { None }
    }

    /// A partial cell grows by a fragment.
    pub(super) fn fragment_lives(&mut self, table: u32, column: u16, view: View) {
        if self.lies_in_extent(table, column, view) {
            self.liveness.add(view, self.commits);
        }
    }

    /// A cell or fragment stands for a value no more: its row is removed, or its cell closed.
    ///
    /// # Errors
    /// When the value was not live: the record cannot follow on this state.
    pub(crate) fn let_go(&mut self, table: u32, column: u16, view: View) -> Result<(), String> {
        if self.lies_in_extent(table, column, view) {
            self.liveness.remove(view, self.commits)?;
        }
        Ok(())
    }

    pub(super) fn lies_in_extent(&self, table: u32, column: u16, view: View) -> bool {
        let columns = self.tables.get(table as usize).map(|table| table.schema.data_columns());
        let class = columns
            .and_then(|columns| columns.get(column as usize))
            .map_or(StorageClass::Inline, |column| column.data_type.storage_class());
        class != StorageClass::Inline && !view.is_inline(class)
    }
}

#[cfg(test)]
impl State {
    /// Bytes and values that live in each generation, counted through the tables: what the liveness must say.
    pub(crate) fn counted_lives(&self) -> std::collections::BTreeMap<(u32, u32), (u64, u64)> {
        let mut views = std::collections::BTreeSet::new();
        for (index, table) in self.tables.iter().enumerate() {
            let columns = 0..table.schema.data_columns().len() as u16;
            for (row, column) in
                (0..table.row_count()).flat_map(|row| columns.clone().map(move |column| (row, column)))
            {
                let view = match table.cell(usize::from(column), row) {
                    Some(StoredValue::View(view)) => vec![View(view)],
                    Some(_) => vec![],
                    None => table.fragments(row, column).to_vec(),
                };
                let there = view.into_iter().filter(|view| self.lies_in_extent(index as u32, column, *view));
                views.extend(there.map(|view| (view.place(), view.offset(), view.length())));
            }
        }
        let mut counted = std::collections::BTreeMap::new();
        for (place, _, length) in views {
            let (bytes, values): &mut (u64, u64) = counted.entry(place).or_default();
            (*bytes, *values) = (*bytes + length as u64, *values + 1);
        }
        counted
    }
}
