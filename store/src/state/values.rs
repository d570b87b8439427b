//! Which values a record names that lie outside the log.

use super::State;
use crate::extent::View;
use crate::log::record::{CellRecord, Event, Operation, StoredValue};

impl State {
    /// Whether the event names a value that lies in an extent. What the state does not know counts as one.
    pub(crate) fn names_values(&self, event: &Event) -> bool {
        let operations = match event {
            Event::Written { operations } | Event::Finished { operations, .. } => operations,
            Event::Moved { .. } => return true,
            _ => return false,
        };
        operations.iter().any(|operation| match operation {
            Operation::Insert(insert) => self.any_outside(insert.table, &insert.cells),
            Operation::Write { table, cells, .. } => self.any_outside(*table, cells),
            Operation::Append { table, column, view, .. } => self.is_outside(*table, *column, View(*view)),
            Operation::Share { .. } => true,
            Operation::Exclude { .. } | Operation::Group { .. } => false,
        })
    }

    fn any_outside(&self, table: u32, cells: &[CellRecord]) -> bool {
        cells.iter().any(|cell| match cell.value {
            StoredValue::View(view) => self.is_outside(table, cell.column, View(view)),
            StoredValue::Null | StoredValue::Inline(_) => false,
        })
    }

    fn is_outside(&self, table: u32, column: u16, view: View) -> bool {
        let table = self.tables.get(table as usize);
        let column = table.and_then(|table| table.schema.data_columns().get(usize::from(column)));
        column.is_none_or(|column| !view.is_inline(column.data_type.storage_class()))
    }
}
