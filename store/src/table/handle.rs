//! What callers hold of a table.

use std::borrow::Cow;
use std::sync::Arc;

use crate::batch::{NewRow, WriteBatch};
use crate::error::{Cause, Result};
use crate::extent::{Lifetime, ValueBytes, View};
use crate::log::record::{ColumnRecord, Event, SchemaChange, StoredValue};
use crate::sample_id::SampleId;
use crate::schema::{DataColumn, DataType, Schema};
use crate::store::Store;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::table::{Row, RowInfo, TableCounts, TableState};
use crate::value::{Encoded, Value};

/// What a data cell holds.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Nothing yet.
    Empty,
    /// A value that is still growing: its fragments so far, in one piece.
    Partial(Vec<u8>),
    /// Known to be absent.
    Null,
    /// The bits of a bool or number, low bytes first.
    Inline(u64),
    /// The bytes of a text, binary, list or tensor.
    Bytes(ValueBytes),
}

/// A table: the rows of one agent. Handles are cheap to clone and may be used from any thread.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) store: Store,
    id: u32,
    name: Arc<str>,
    schema: Arc<Schema>,
    schema_version: Arc<AtomicU32>,
}

impl Table {
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn new(store: Store, table: &TableState) -> Self {
        let TableState { id, name, schema, schema_version, .. } = table;
        let (name, schema, schema_version) = (name.clone(), schema.clone(), schema_version.clone());
        Table { store, id: *id, name, schema, schema_version }
    }

    /// Its number in the store: tables are numbered as they were created, from 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Refuses a store that the table is not of.
    pub(crate) fn check_store(&self, store: &Store) -> Result<()> {
        if Arc::ptr_eq(&self.store.0, &store.0) {
            return Ok(());
        }
        let reason = format!("{:?} is a table of another store", self.name);
        Err(Cause::Argument { what: "table", reason }.into())
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table's columns, as they were when this handle was asked for. Calls go by the columns as they are.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The columns as they are now.
    pub(crate) fn current_schema(&self) -> Cow<'_, Schema> {
        if self.schema_version.load(Ordering::Acquire) == self.schema.version() {
            return Cow::Borrowed(&self.schema);
        }
        Cow::Owned(Schema::clone(&self.store.0.state.lock().tables[self.id as usize].schema))
    }

    /// Adds a data column while others write and read. Rows that are there have nothing in it, their status is false; no
    /// consumer waits for it.
    ///
    /// # Errors
    /// `input` when the name is taken or illegal, or the table would have too many columns, retired ones counted.
    pub fn add_column(&self, column: DataColumn) -> Result<()> {
        self.change_schema(|_| Ok(SchemaChange::Add(ColumnRecord::new(&column))))
    }

    /// Gives a data column another name. What is in it stays, and so does who waits for it.
    ///
    /// # Errors
    /// `input` when there is no column of that name, or the new one is taken or illegal.
    pub fn rename_column(&self, column: &str, name: &str) -> Result<()> {
        self.change_schema(|table| {
            let column = table.schema.index_of(column)? as u16;
            Ok(SchemaChange::Rename { column, name: name.to_owned() })
        })
    }

    /// Takes a data column out of the table: nobody sees or writes it any more. Its values go with their rows.
    ///
    /// # Errors
    /// `input` when there is no column of that name; `state` when a consumer waits for it.
    pub fn retire_column(&self, column: &str) -> Result<()> {
        self.change_schema(|table| Ok(SchemaChange::Retire { column: table.schema.index_of(column)? as u16 }))
    }

    fn change_schema(&self, change: impl FnOnce(&TableState) -> Result<SchemaChange>) -> Result<()> {
        self.store.0.submit(|state| {
            let change = change(&state.tables[self.id as usize])?;
            let schema = state.decide_schema(self.id, &change)?;
            Ok((Event::SchemaChanged { table: self.id, version: schema.version(), change }, ()))
        })
    }

    /// How many rows there are, by what became of them.
    pub fn counts(&self) -> TableCounts {
        self.store.0.state.lock().tables[self.id as usize].counts.clone()
    }

    /// Inserts a row of a policy version, with the cells that are known already.
    ///
    /// # Errors
    /// `input` for a malformed id, an unknown column or a value of another type; `state` when the row exists or the
    /// version is stale.
    pub fn insert<'v>(
        &self,
        policy_version: u64,
        sample_id: &str,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Row> {
        self.insert_row(NewRow::new(policy_version, sample_id)?, cells)
    }

    /// Inserts a row of which more is known than its identity.
    pub fn insert_row<'v>(
        &self,
        row: NewRow,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Row> {
        let sample = row.sample.to_string();
        let mut batch = self.store.batch();
        batch.insert(self, row, cells)?;
        let row = batch.commit()?.first().copied();
        row.ok_or_else(|| Cause::Unknown { what: "row", name: sample, close: None }.into())
    }

    /// Inserts a row and its replicas, `rollouts` in all; see [`WriteBatch::insert_rollouts`].
    pub fn insert_rollouts<'v>(
        &self,
        row: NewRow,
        rollouts: u32,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Vec<Row>> {
        let mut batch = self.store.batch();
        batch.insert_rollouts(self, row, rollouts, cells)?;
        batch.commit()
    }

    /// Says that a row goes on under a later version, from token `start` on: its rollout was cut by new weights and
    /// resumed. Telling the last span again is success.
    ///
    /// # Errors
    /// `input` when the span does not begin after the one before it, or is not of a later version; `state` when the row
    /// was excluded.
    pub fn span(&self, row: Row, start: u32, version: u64) -> Result<()> {
        let mut batch = self.store.batch();
        batch.span(self, row, start, version)?;
        batch.commit().map(drop)
    }

    /// Says that only the tokens of a row from `start` on are trained on: its loss mask leaves out those before. The spans
    /// that lie before it do not make the row [stale](crate::Consumer::staleness). Telling the same again is success.
    ///
    /// # Errors
    /// `input` when more was masked before; `state` when the row was excluded.
    pub fn trainable_from(&self, row: Row, start: u32) -> Result<()> {
        let mut batch = self.store.batch();
        batch.trainable_from(self, row, start)?;
        batch.commit().map(drop)
    }

    /// Turns cells of a row final. Writing a final cell again with the same bytes is success.
    ///
    /// # Errors
    /// `state` when a cell is final with other bytes or partial, or the row was excluded; `input` as for inserts.
    pub fn write<'v>(&self, row: Row, cells: impl IntoIterator<Item = (&'v str, Value<'v>)>) -> Result<()> {
        let mut batch = self.store.batch();
        batch.write(self, row, cells)?;
        batch.commit().map(drop)
    }

    /// Lets a text, binary or list cell grow. Nobody sees it before [`Table::finalize`] who does not ask for partials.
    ///
    /// # Errors
    /// `state` when the cell is final; `input` when values of the column's type cannot grow.
    pub fn append(&self, row: Row, column: &str, value: Value<'_>) -> Result<()> {
        self.check_row(row)?;
        let index = self.growing_column(column)?;
        let schema = self.current_schema();
        let declared = &schema.data_columns()[index];
        let Encoded::Bytes(bytes) = value.encode(declared)? else {
            let reason = "null cannot be appended; write it instead".to_owned();
            return Err(Cause::Argument { what: "value", reason }.into());
        };
        let class = declared.data_type.storage_class();
        let shared = &self.store.0;
        shared.check_writable("append to a cell")?;
        let mut batch = self.store.batch();
        let lifetime = Lifetime::Fragments(row.version);
        let view = batch.values().write(&[&bytes], class, lifetime, row.owner(index as u32))?;
        batch.append(row, index as u16, view);
        batch.commit().map(drop)
    }

    /// Closes a partial cell: its fragments become one final value.
    ///
    /// # Errors
    /// `state` when the cell is not partial.
    pub fn finalize(&self, row: Row, column: &str) -> Result<()> {
        self.check_row(row)?;
        let index = self.growing_column(column)?;
        let class = self.current_schema().data_columns()[index].data_type.storage_class();
        self.store.0.check_writable("finalize a cell")?;
        let (views, pin) = {
            let state = self.store.0.state.lock();
            let fragments = state.tables[self.id as usize].fragments(row.index, index as u16);
            (fragments.to_vec(), self.store.0.pin_reader(&state))
        };
        let fragments = self.store.0.extents.read_all(views.iter().copied().map(Some), class)?;
        drop(pin); // from here on the fragments are held themselves
        let parts: Vec<&[u8]> = fragments.iter().flatten().map(|fragment| &**fragment).collect();
        let mut batch = self.store.batch();
        let view = batch.values().write(&parts, class, row.lifetime(), row.owner(index as u32))?;
        batch.finalize(row, index as u16, fragments.len(), StoredValue::View(view.0));
        batch.commit().map(drop)
    }

    /// Leaves a row out for good. The reason is shown in SQL and in the counts.
    pub fn exclude(&self, row: Row, reason: &str) -> Result<()> {
        let mut batch: WriteBatch<'_> = self.store.batch();
        batch.exclude(self, row, reason)?;
        batch.commit().map(drop)
    }

    /// The live row of that identity.
    pub fn find(&self, policy_version: u64, sample: &SampleId) -> Option<Row> {
        let state = self.store.0.state.lock();
        let index = state.find_row(self.id, policy_version, sample)?;
        Some(Row::new(self.id, index, policy_version, sample))
    }

    /// The live row of that identity, with what is known of it.
    pub fn get(&self, policy_version: u64, sample: &SampleId) -> Option<RowInfo> {
        let state = self.store.0.state.lock();
        let index = state.find_row(self.id, policy_version, sample)?;
        Some(RowInfo::new(self, &state, index))
    }

    /// The bytes of a partial cell so far; `None` when the cell is empty or final.
    ///
    /// # Errors
    /// As for [`Table::cell`].
    pub fn partial(&self, row: Row, column: &str) -> Result<Option<Vec<u8>>> {
        Ok(match self.cell(row, column)? {
            Cell::Partial(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// What a cell holds now, partial values included.
    ///
    /// # Errors
    /// `input` when the column is unknown; `corrupt` when the value's place cannot be read.
    pub fn cell(&self, row: Row, column: &str) -> Result<Cell> {
        self.store.0.check_process()?;
        self.check_row(row)?;
        let index = self.current_schema().index_of(column)?;
        let class = self.current_schema().data_columns()[index].data_type.storage_class();
        let (value, fragments, extents, _pin) = {
            let state = self.store.0.state.lock(); // both in one look: a cell may turn final in between
            let table = &state.tables[self.id as usize];
            let fragments = table.fragments(row.index, index as u16).to_vec();
            let extents = self.store.0.extents.clone();
            (table.cell(index, row.index), fragments, extents, self.store.0.pin_reader(&state))
        }; // a reader's slot does not move on while `extents` is held
        let read = |view: View| extents.read(view, class);
        Ok(match value {
            Some(StoredValue::Null) => Cell::Null,
            Some(StoredValue::Inline(bits)) => Cell::Inline(bits),
            Some(StoredValue::View(view)) => Cell::Bytes(read(View(view))?),
            None if fragments.is_empty() => Cell::Empty,
            None => {
                let fragments: Vec<ValueBytes> = fragments.into_iter().map(read).collect::<Result<_>>()?;
                Cell::Partial(fragments.iter().flat_map(|fragment| fragment.iter().copied()).collect())
            }
        })
    }

    fn growing_column(&self, column: &str) -> Result<usize> {
        let schema = self.current_schema();
        let index = schema.index_of(column)?;
        match &schema.data_columns()[index].data_type {
            DataType::Utf8 | DataType::Binary | DataType::List(_) => Ok(index),
            other => {
                let reason = format!(
                    "{column:?} holds {other}, which is written whole; only text, binary and lists grow"
                );
                Err(Cause::Argument { what: "column", reason }.into())
            }
        }
    }

    /// Refuses a row of another table.
    pub(crate) fn check_row(&self, row: Row) -> Result<()> {
        if row.table == self.id {
            return Ok(());
        }
        let reason =
            format!("row {} of table number {} is not a row of {:?}", row.index, row.table, self.name);
        Err(Cause::Argument { what: "row", reason }.into())
    }
}
