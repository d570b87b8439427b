//! What a row has to be for a change to be one.

use super::Decision;
use crate::error::{Cause, Result};
use crate::table::{Progress, Row};

impl Decision<'_> {
    /// A row that is there, as a message shows it.
    pub(super) fn shown(&self, row: Row) -> String {
        self.state.shown_row(row.table, row.index)
    }

    pub(super) fn check_not_excluded(&self, row: Row) -> Result<()> {
        let status = self.state.tables[row.table as usize].status(row.index);
        let here = self.left_out.get(&(row.table, row.index)).map(String::as_str);
        let there = status.is_excluded().then(|| self.state.texts.get(status.excluded));
        match there.or(here) {
            None => Ok(()),
            Some(reason) => {
                Err(Cause::RowExcluded { row: self.shown(row), reason: reason.to_owned() }.into())
            }
        }
    }

    pub(super) fn check_row(&self, row: Row) -> Result<()> {
        let table = self.state.tables.get(row.table as usize);
        let known = table.is_some_and(|t| row.index < t.row_count() && !t.is_removed(row.index));
        if known {
            return Ok(());
        }
        let name = format!("{} of table {}", row.index, row.table);
        Err(Cause::Unknown { what: "row", name, close: None }.into())
    }

    pub(super) fn check_open_cell(&self, row: Row, column: u16, verb: &'static str) -> Result<()> {
        self.check_row(row)?;
        self.state.check_column(row.table, column)?;
        self.check_not_excluded(row)?;
        let status = self.state.tables[row.table as usize].status(row.index);
        if status.finals >> column & 1 == 1 {
            return Err(self.not_partial(row, column, "final", verb));
        }
        Ok(())
    }

    pub(super) fn not_partial(
        &self,
        row: Row,
        column: u16,
        found: &'static str,
        verb: &'static str,
    ) -> crate::Error {
        let columns = self.state.tables[row.table as usize].schema.data_columns();
        let column = columns[column as usize].name.clone();
        Cause::CellNotPartial { column, row: self.shown(row), found, verb }.into()
    }

    /// A row whose gradient a trainer holds cannot be taken out from under it.
    pub(super) fn check_can_leave(&self, table: u32, row: u32, verb: &'static str) -> Result<()> {
        let state = &self.state.tables[table as usize];
        let status = state.status(row);
        if status.step != 0 {
            let row = self.state.shown_row(table, row);
            return Err(Cause::RowConsumed { row, step: status.step.into(), verb }.into());
        }
        let Some(slot) = state.trainer else { return Ok(()) };
        let word = state.word(slot, row);
        if matches!(word.progress, Progress::Leased | Progress::Accumulated) {
            let (claim, found) = (word.ticket_or_claim, "held by a trainer");
            return Err(Cause::ClaimFenced { claim, found, expected: "released" }.into());
        }
        Ok(())
    }
}
