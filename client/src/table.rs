//! A table of a store, wherever that is.

use std::sync::Arc;

use arrow_array::RecordBatch;
use forebay_store::{DataColumn, Delete, Deleted, Kind, NewRow, Row, SampleId, Schema, TableCounts, Value};

use crate::cell::CellValue;
use crate::changes::Changes;
use crate::client::Client;
use crate::connection::Declaration;
use crate::error::{Error, Result};
use crate::history::RowShown;

/// A table: the rows of one agent. Calls are as those of [`forebay_store::Table`], where their errors are said.
#[derive(Clone, Debug)]
pub struct Table {
    client: Client,
    name: Arc<str>,
}

#[allow(clippy::missing_errors_doc, reason = "said once, for all calls")]
impl Table {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Table { client, name: name.into() }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it looks like now.
    pub fn schema(&self) -> Result<Schema> {
        Ok(self.client.connection.table(&self.name)?.0)
    }

    /// How many rows it has, by what became of them.
    pub fn counts(&self) -> Result<TableCounts> {
        Ok(self.client.connection.table(&self.name)?.1)
    }

    /// Inserts a row, with the cells that are known already.
    pub fn insert<'v>(
        &self,
        row: NewRow,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Row> {
        let mut changes = Changes::new();
        changes.insert(self.name.clone(), row, cells);
        let rows = self.client.write(&changes)?;
        rows.first().copied().ok_or_else(|| {
            Error::new(Kind::Input, "Protocol", "the server did not say which row it inserted")
        })
    }

    /// Inserts a row and its replicas on the trajectories that follow, `rollouts` in all.
    pub fn insert_rollouts<'v>(
        &self,
        row: NewRow,
        rollouts: u32,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Vec<Row>> {
        let mut changes = Changes::new();
        changes.insert_rollouts(self.name.clone(), row, rollouts, cells);
        self.client.write(&changes)
    }

    /// Inserts the rows of a record batch, all or none; see [`Changes::insert_batch`].
    pub fn insert_batch(&self, policy_version: u64, batch: &RecordBatch) -> Result<Vec<Row>> {
        let mut changes = Changes::new();
        changes.insert_batch(self.name.clone(), policy_version, batch)?;
        self.client.write(&changes)
    }

    /// Turns cells of rows final, a row of the record batch each, all or none; see [`Changes::write_batch`].
    pub fn write_batch(&self, rows: &[Row], batch: &RecordBatch) -> Result<()> {
        let mut changes = Changes::new();
        changes.write_batch(self.name.clone(), rows, batch)?;
        self.client.write(&changes).map(drop)
    }

    /// Turns cells of a row final.
    pub fn write<'v>(&self, row: Row, cells: impl IntoIterator<Item = (&'v str, Value<'v>)>) -> Result<()> {
        let mut changes = Changes::new();
        changes.write(self.name.clone(), row, cells);
        self.client.write(&changes).map(drop)
    }

    /// Leaves a row out for good, with the reason that people will see.
    pub fn exclude(&self, row: Row, reason: &str) -> Result<()> {
        let mut changes = Changes::new();
        changes.exclude(self.name.clone(), row, reason);
        self.client.write(&changes).map(drop)
    }

    /// Adds to a cell that is still growing.
    pub fn append(&self, row: Row, column: &str, value: Value<'_>) -> Result<()> {
        self.client.connection.grow(&self.name, row, column, Some(value))
    }

    /// Closes a cell that was growing: it is final.
    pub fn finalize(&self, row: Row, column: &str) -> Result<()> {
        self.client.connection.grow(&self.name, row, column, None)
    }

    /// The live attempt of a row.
    pub fn find(&self, policy_version: u64, sample: &SampleId) -> Result<Option<Row>> {
        let found = self.find_all(&[(policy_version, sample)])?;
        let one = found.into_iter().next();
        one.ok_or_else(|| {
            Error::new(Kind::Input, "Protocol", "the server did not say whether the row is there")
        })
    }

    /// The same of each of many rows, by policy version and sample id, in that order. A server finds 10,000 in one call.
    pub fn find_all(&self, identities: &[(u64, &SampleId)]) -> Result<Vec<Option<Row>>> {
        self.client.connection.find(&self.name, identities)
    }

    /// The live attempt of a row, with what became of it: which step and gradient used it, or why it was left out.
    pub fn get(&self, policy_version: u64, sample: &SampleId) -> Result<Option<RowShown>> {
        self.client.connection.history().get(&self.name, policy_version, sample)
    }

    /// The same of a row that is named, also of one that a later attempt has taken the place of.
    pub fn show(&self, row: Row) -> Result<RowShown> {
        let mut shown = self.show_all(&[row])?;
        shown.pop().ok_or_else(|| Error::new(Kind::Input, "Protocol", "the server did not show the row"))
    }

    /// The same of each of many rows, as it is when it is looked at. A server shows hundreds in one call.
    ///
    /// # Errors
    /// `input` when one of them is of another table or none, `state` when it was deleted; then none is shown.
    pub fn show_all(&self, rows: &[Row]) -> Result<Vec<RowShown>> {
        self.client.connection.history().show(&self.name, rows)
    }

    /// What a cell holds now, partial values included.
    pub fn cell(&self, row: Row, column: &str) -> Result<CellValue> {
        self.client.connection.cell(&self.name, row, column)
    }

    /// What the cells of a data column hold now, a value a row, whoever holds the rows.
    pub fn cells(&self, rows: &[Row], column: &str) -> Result<Vec<CellValue>> {
        self.client.connection.read(&self.name, rows, column)
    }

    /// Deletes rows by a rule.
    pub fn delete(&self, rule: &Delete) -> Result<Deleted> {
        self.client.connection.delete(&self.name, rule)
    }

    /// Adds a data column.
    pub fn add_column(&self, column: DataColumn) -> Result<()> {
        self.client.connection.declare(&self.name, Declaration::AddColumn(column))
    }

    /// Gives a data column another name.
    pub fn rename_column(&self, column: &str, name: &str) -> Result<()> {
        let (column, name) = (column.to_owned(), name.to_owned());
        self.client.connection.declare(&self.name, Declaration::RenameColumn { column, name })
    }

    /// Takes a data column out of the table.
    pub fn retire_column(&self, column: &str) -> Result<()> {
        self.client.connection.declare(&self.name, Declaration::RetireColumn { column: column.to_owned() })
    }
}
