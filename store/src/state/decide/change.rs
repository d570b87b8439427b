//! Changes of rows that are there.

use super::{Decision, Request};
use crate::error::{Cause, Result};
use crate::log::record::{CellRecord, Operation};
use crate::table::{Row, VersionSpan};

impl Decision<'_> {
    pub(super) fn change(&mut self, request: Request) -> Result<Option<Operation>> {
        Ok(match request {
            Request::Insert(_) => None,
            Request::Write { row, cells } => self.write(row, cells)?,
            Request::Append { row, column, view } => {
                self.check_open_cell(row, column, "appended to")?;
                Some(Operation::Append { table: row.table, row: row.index, column, view: view.0 })
            }
            Request::Finalize { row, column, fragments, value } => {
                let state = &self.state.tables[row.table as usize];
                self.check_open_cell(row, column, "finalized")?;
                if fragments == 0 || state.fragments(row.index, column).len() != fragments {
                    let found = if fragments == 0 { "empty" } else { "growing in another thread" };
                    return Err(self.not_partial(row, column, found, "finalized"));
                }
                let cells = vec![CellRecord { column, value }];
                self.check_lengths(row, &cells)?;
                Some(Operation::Write { table: row.table, row: row.index, cells })
            }
            Request::Group { consumer, table, policy_version, key, change } => {
                let changes = self.state.check_group(consumer, table, (policy_version, &key), change)?;
                changes.then_some(Operation::Group { consumer, table, policy_version, key, change })
            }
            Request::Span { row, span } => self.span(row, span)?,
            Request::Mask { row, start } => self.mask(row, start)?,
            Request::Exclude { row, reason } => {
                self.check_row(row)?;
                self.check_can_leave(row.table, row.index, "excluded")?;
                self.left_out.entry((row.table, row.index)).or_insert_with(|| reason.clone());
                Some(Operation::Exclude { table: row.table, row: row.index, reason })
            }
        })
    }

    /// Cells that are final already with the same bytes are dropped: writing them again is success.
    fn write(&mut self, row: Row, mut cells: Vec<CellRecord>) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.state.check_columns(row.table, &cells)?;
        let mut looked = Ok(());
        cells.retain(|cell| {
            looked.is_err()
                || self.turns_final(row, cell).unwrap_or_else(|refused| {
                    looked = Err(refused);
                    true
                })
        });
        looked?;
        if cells.is_empty() {
            return Ok(None);
        }
        self.check_not_excluded(row)?;
        self.check_lengths(row, &cells)?;
        Ok(Some(Operation::Write { table: row.table, row: row.index, cells }))
    }

    /// Whether a cell is to turn final with a value; not, when it has the same one.
    fn turns_final(&mut self, row: Row, cell: &CellRecord) -> Result<bool> {
        let state = &self.state.tables[row.table as usize];
        let column = || state.schema.data_columns()[cell.column as usize].name.clone();
        if state.is_partial(row.index, cell.column) {
            return Err(Cause::CellPartial { column: column(), row: self.shown(row) }.into());
        }
        let place = (row.table, row.index, cell.column);
        let old = state.cell(cell.column as usize, row.index).or(self.cells.get(&place).copied());
        match old {
            None => {
                self.cells.insert(place, cell.value);
                Ok(true)
            }
            Some(old) if (self.same_bytes)(row.table, cell.column, old, cell.value)? => Ok(false),
            Some(_) => Err(Cause::CellFinal { column: column(), row: self.shown(row) }.into()),
        }
    }

    fn check_lengths(&self, row: Row, cells: &[CellRecord]) -> Result<()> {
        let table = &self.state.tables[row.table as usize];
        let known = |column: u16| {
            let here = self.cells.get(&(row.table, row.index, column)).copied();
            table.cell(column as usize, row.index).or(here)
        };
        self.state.check_lengths(row.table, cells, known)
    }

    /// Spans come in their order; the last one may be told again.
    fn span(&mut self, row: Row, span: VersionSpan) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.check_not_excluded(row)?;
        let table = &self.state.tables[row.table as usize];
        let first = VersionSpan { start: 0, version: table.meta(row.index).policy_version };
        let known = table.rare.spans().get(row.index).last().copied().unwrap_or(first);
        let last = self.spans.insert((row.table, row.index), span).unwrap_or(known);
        let named = || format!("row {}", row.index);
        self.next_span(row, last, span, named)
    }

    /// The span that comes after `last`; none where that is told again.
    pub(super) fn next_span(
        &self,
        row: Row,
        last: VersionSpan,
        span: VersionSpan,
        named: impl Fn() -> String,
    ) -> Result<Option<Operation>> {
        if span == last {
            return Ok(None);
        }
        let VersionSpan { start, version } = span;
        if start <= last.start || version <= last.version {
            let table = &self.state.tables[row.table as usize].name;
            let reason = format!(
                "version {version} from token {start} on does not follow on version {} from token {} on, in {} of table \
                 {table:?}",
                last.version,
                last.start,
                named()
            );
            return Err(Cause::Argument { what: "span", reason }.into());
        }
        Ok(Some(Operation::Span { table: row.table, row: row.index, start, version }))
    }

    /// What is masked stays masked; the same may be told again.
    fn mask(&mut self, row: Row, start: u32) -> Result<Option<Operation>> {
        self.check_row(row)?;
        self.check_not_excluded(row)?;
        let table = &self.state.tables[row.table as usize];
        let known = table.rare.trainable_from(row.index);
        let last = self.masks.insert((row.table, row.index), start).unwrap_or(known);
        if start < last {
            let (table, row) = (table.name.to_string(), row.index);
            let reason = format!(
                "row {row} of table {table:?} is trained on from token {last} on, not from {start}; what is masked \
                 stays masked"
            );
            return Err(Cause::Argument { what: "mask", reason }.into());
        }
        Ok((start > last).then_some(Operation::Mask { table: row.table, row: row.index, start }))
    }
}
