//! Columns that come, change their names and go.

use super::State;
use crate::error::{Cause, Result};
use crate::log::record::{CellRecord, SchemaChange};
use crate::schema::Schema;

impl State {
    /// The schema that a change leads to.
    pub(crate) fn decide_schema(&self, table: u32, change: &SchemaChange) -> Result<Schema> {
        let state = &self.tables[table as usize];
        if let SchemaChange::Retire { column } = change {
            let waits = |&&index: &&usize| {
                let consumed = self.consumers[index].tables.iter().filter(|consumed| consumed.table == table);
                consumed.fold(0, |mask, consumed| mask | consumed.required) >> column & 1 == 1
            };
            if let Some(&index) = state.consumers.iter().find(waits) {
                let column = state.schema.data_columns()[*column as usize].name.clone();
                let consumer = self.consumers[index].name.to_string();
                return Err(Cause::ColumnRequired { column, consumer }.into());
            }
        }
        let schema =
            self.schema_after(table, change).map_err(|reason| Cause::Argument { what: "column", reason })?;
        schema.validate()?;
        Ok(schema)
    }

    fn schema_after(&self, table: u32, change: &SchemaChange) -> Result<Schema, String> {
        let state = self.tables.get(table as usize).ok_or_else(|| format!("no table {table}"))?;
        let known = |column: u16| match state.schema.data_columns().get(column as usize) {
            Some(declared) if !declared.retired => Ok(column as usize),
            _ => Err(format!("no column {column} of table {:?}", state.name)),
        };
        Ok(match change {
            SchemaChange::Add(column) => {
                let column = column.column()?;
                state.schema.changed(|columns| columns.push(column))
            }
            SchemaChange::Rename { column, name } => {
                let column = known(*column)?;
                state.schema.changed(|columns| columns[column].name.clone_from(name))
            }
            SchemaChange::Retire { column } => {
                let column = known(*column)?;
                state.schema.changed(|columns| columns[column].retired = true)
            }
        })
    }

    /// Applies a change of columns.
    pub(super) fn change_schema(
        &mut self,
        table: u32,
        version: u32,
        change: SchemaChange,
    ) -> Result<(), String> {
        let schema = self.schema_after(table, &change)?;
        schema.validate().map_err(|error| error.to_string())?;
        if schema.version() != version {
            return Err(format!(
                "schema version {version} of table {table} stands where {} should",
                schema.version()
            ));
        }
        self.tables[table as usize].set_schema(schema);
        Ok(())
    }

    /// Refuses cells of retired columns: their writer went by an older schema.
    pub(super) fn check_columns(&self, table: u32, cells: &[CellRecord]) -> Result<()> {
        cells.iter().try_for_each(|cell| self.check_column(table, cell.column))
    }

    pub(super) fn check_column(&self, table: u32, column: u16) -> Result<()> {
        let state = &self.tables[table as usize];
        let declared = &state.schema.data_columns()[column as usize];
        if declared.retired {
            let (table, column) = (state.name.to_string(), declared.name.clone());
            return Err(Cause::ColumnRetired { table, column }.into());
        }
        Ok(())
    }
}
