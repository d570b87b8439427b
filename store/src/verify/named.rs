//! The values that rows name.

use crate::extent::View;
use crate::schema::StorageClass;
use crate::state::State;
use crate::table::TableState;

/// A value in an extent, and the cell that names it. A partial cell names one a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedValue {
    pub(crate) extent: u32,
    pub(crate) offset: u32,
    pub(crate) generation: u32,
    pub(crate) length: u32,
    pub(crate) table: u32,
    pub(crate) row: u32,
    pub(crate) column: u16,
}

impl NamedValue {
    /// How a record names it.
    pub(crate) fn view(&self) -> View {
        View::located(self.length, self.extent, self.generation, self.offset)
    }
}

/// Every value in an extent that a cell of the state names, in the order in which they lie there; and how many cells
/// hold something. Twenty-eight bytes a value, beside the state itself.
pub(crate) fn named_values(state: &State) -> (Vec<NamedValue>, u64) {
    let (mut values, mut cells) = (Vec::new(), 0);
    for table in &state.tables {
        for row in (0..table.row_count()).filter(|row| !table.is_removed(*row)) {
            for column in 0..table.schema.data_columns().len() {
                cells += u64::from(add_cell(table, row, column, &mut values));
            }
        }
    }
    values.sort_unstable();
    (values, cells)
}

/// True where the cell holds something.
fn add_cell(table: &TableState, row: u32, column: usize, values: &mut Vec<NamedValue>) -> bool {
    let class = table.schema.data_columns()[column].data_type.storage_class();
    let mut add = |view: View| {
        if class != StorageClass::Inline && !view.is_inline(class) {
            values.push(NamedValue {
                extent: view.extent(),
                offset: view.offset() as u32,
                generation: view.generation(),
                length: view.length() as u32,
                table: table.id,
                row,
                column: column as u16,
            });
        }
    };
    match table.cell(column, row) {
        Some(crate::log::record::StoredValue::View(view)) => {
            add(View(view));
            true
        }
        Some(_) => true,
        None => {
            let fragments = table.fragments(row, column as u16);
            fragments.iter().for_each(|view| add(*view));
            !fragments.is_empty()
        }
    }
}
