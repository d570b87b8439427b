//! Which values a record names that lie outside the log.

use super::State;
use crate::extent::View;
use crate::log::record::{CellRecord, Event, MoveRecord, Operation, StoredValue};

impl State {
    /// The values in extents that an event names, in its order. A column that the state does not know has none.
    pub(crate) fn values_named<'a>(&'a self, event: &'a Event) -> impl Iterator<Item = View> + 'a {
        let (operations, moves): (&[Operation], &[MoveRecord]) = match event {
            Event::Written { operations } | Event::Finished { operations, .. } => (operations, &[]),
            Event::Moved { moves } => (&[], moves),
            _ => (&[], &[]),
        };
        let written = operations.iter().flat_map(|operation| self.values_of(operation));
        moves.iter().map(|moved| View(moved.to)).chain(written)
    }

    fn values_of<'a>(&'a self, operation: &'a Operation) -> impl Iterator<Item = View> + 'a {
        let (table, cells): (u32, &[CellRecord]) = match operation {
            Operation::Insert(insert) => (insert.table, &insert.cells),
            Operation::Write { table, cells, .. } => (*table, cells),
            _ => (0, &[]),
        };
        let one = match operation {
            Operation::Append { table, column, view, .. } => self.outside(*table, *column, View(*view)),
            Operation::Share { view, .. } => Some(View(*view)),
            _ => None,
        };
        let of_cell = move |cell: &CellRecord| match cell.value {
            StoredValue::View(view) => self.outside(table, cell.column, View(view)),
            StoredValue::Null | StoredValue::Inline(_) => None,
        };
        cells.iter().filter_map(of_cell).chain(one)
    }

    fn outside(&self, table: u32, column: u16, view: View) -> Option<View> {
        let column = self.tables.get(table as usize)?.schema.data_columns().get(usize::from(column))?;
        (!view.is_inline(column.data_type.storage_class())).then_some(view)
    }
}
