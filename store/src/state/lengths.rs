//! Columns that have one entry a token have the same length in one row.

use super::State;
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::log::record::{CellRecord, StoredValue};
use crate::schema::Schema;

impl State {
    /// Checks cells that turn final against each other and against the row's other cells, which `known` gives.
    pub(super) fn check_lengths(
        &self,
        table: u32,
        cells: &[CellRecord],
        known: impl Fn(u16) -> Option<StoredValue>,
    ) -> Result<()> {
        let schema = &self.tables[table as usize].schema;
        let mut tokens = cells.iter().filter_map(|cell| tokens_of(schema, cell.column, cell.value));
        let Some((column, length)) = tokens.next() else { return Ok(()) };
        let others = (0..schema.data_columns().len() as u16).filter_map(|other| {
            known(other).and_then(|value| tokens_of(schema, other, value)) // the cells themselves may be among them
        });
        match tokens.chain(others).find(|(_, other_length)| *other_length != length) {
            None => Ok(()),
            Some((other, other_length)) => {
                let name = |column: u16| schema.data_columns()[column as usize].name.clone();
                Err(Cause::LengthMismatch { column: name(column), length, other: name(other), other_length }
                    .into())
            }
        }
    }
}

/// How many tokens a cell has entries for, where its column has one a token.
fn tokens_of(schema: &Schema, column: u16, value: StoredValue) -> Option<(u16, usize)> {
    let width = schema.data_columns()[column as usize].token_width_bytes()?;
    match value {
        StoredValue::View(view) => Some((column, View(view).length() / width)),
        StoredValue::Null | StoredValue::Inline(_) => None,
    }
}
