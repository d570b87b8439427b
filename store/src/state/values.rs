//! Which values a record names that lie outside the log.

use super::State;
use crate::extent::View;
use crate::log::record::{CellRecord, Event, Operation, StoredValue};

impl State {
    /// The values in extents that an event names, in its order. A column that the state does not know has none.
    pub(crate) fn values_named(&self, event: &Event) -> Vec<View> {
        let operations = match event {
            Event::Written { operations } | Event::Finished { operations, .. } => operations,
            Event::Moved { moves } => return moves.iter().map(|moved| View(moved.to)).collect(),
            _ => return Vec::new(),
        };
        let mut views = Vec::new();
        for operation in operations {
            match operation {
                Operation::Insert(insert) => self.add_outside(insert.table, &insert.cells, &mut views),
                Operation::Write { table, cells, .. } => self.add_outside(*table, cells, &mut views),
                Operation::Append { table, column, view, .. } => {
                    views.extend(self.outside(*table, *column, View(*view)));
                }
                Operation::Share { view, .. } => views.push(View(*view)),
                Operation::Exclude { .. } | Operation::Group { .. } => {}
                Operation::Span { .. } | Operation::Mask { .. } => {}
            }
        }
        views
    }

    fn add_outside(&self, table: u32, cells: &[CellRecord], views: &mut Vec<View>) {
        views.extend(cells.iter().filter_map(|cell| match cell.value {
            StoredValue::View(view) => self.outside(table, cell.column, View(view)),
            StoredValue::Null | StoredValue::Inline(_) => None,
        }));
    }

    fn outside(&self, table: u32, column: u16, view: View) -> Option<View> {
        let column = self.tables.get(table as usize)?.schema.data_columns().get(usize::from(column))?;
        (!view.is_inline(column.data_type.storage_class())).then_some(view)
    }
}
