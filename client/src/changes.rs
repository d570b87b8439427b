//! Changes over any tables, that happen all or not at all: what a caller says, before anything is done with it.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use forebay_store::{
    BatchCells, ConsumerHandle, Durability, NewRow, Row, Store, Table, Value, Wait, WriteBatch,
};

use crate::error::Result;

/// Cells of one row, by column.
pub type Cells<'v> = Vec<(&'v str, Value<'v>)>;

/// Changes over any tables, that happen all or not at all: see [`Client::write`](crate::Client::write).
///
/// ```
/// use forebay_client::{Changes, Client};
/// use forebay_store::{DataType, NewRow, Options, Schema, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let client = Client::embedded(Store::open(dir.path().join("store"), Options::default())?);
/// client.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
/// client.create_table("checker", Schema::new().data("reward", DataType::Float32))?;
/// let mut changes = Changes::new();
/// changes.insert("solver", NewRow::new(0, "q17_0_0")?, [("reward", 1.0.into())]);
/// changes.insert("checker", NewRow::new(0, "q17_1_0")?.parent("solver/q17_0_0"), []);
/// assert_eq!(client.write(&changes)?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes<'v> {
    pub(crate) list: Vec<Change<'v>>,
    pub(crate) durability: Option<Durability>,
    pub(crate) wait: Option<Wait>,
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change<'v> {
    pub(crate) table: Arc<str>,
    pub(crate) what: What<'v>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What<'v> {
    Insert { row: Box<NewRow>, rollouts: u32, cells: Cells<'v> },
    Write { row: Row, cells: Cells<'v> },
    Span { row: Row, start: u32, version: u64 },
    TrainableFrom { row: Row, start: u32 },
    Exclude { row: Row, reason: Cow<'v, str> },
    Group { consumer: Arc<str>, policy_version: u64, key: Cow<'v, str>, change: GroupChange },
}

/// What is said of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupChange {
    Expected(u32),
    Closed,
    TrajectoryClosed(u32),
}

impl<'v> Changes<'v> {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The level at which they are acknowledged. Default: the store's.
    pub fn durability(&mut self, level: Durability) -> &mut Self {
        self.durability = Some(level);
        self
    }

    /// How long they wait where there is no room for them, or a rate limiter holds them back; over a connection five minutes at most.
    /// Default: as the store is set.
    pub fn wait(&mut self, wait: Wait) -> &mut Self {
        self.wait = Some(wait);
        self
    }

    fn add(&mut self, table: impl Into<Arc<str>>, what: What<'v>) -> &mut Self {
        self.list.push(Change { table: table.into(), what });
        self
    }

    /// Adds a row, with the cells that are known already.
    pub fn insert(
        &mut self,
        table: impl Into<Arc<str>>,
        row: NewRow,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> &mut Self {
        self.insert_rollouts(table, row, 1, cells)
    }

    /// Adds a row and its replicas on the trajectories that follow, `rollouts` in all.
    pub fn insert_rollouts(
        &mut self,
        table: impl Into<Arc<str>>,
        row: NewRow,
        rollouts: u32,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> &mut Self {
        self.add(table, What::Insert { row: Box::new(row), rollouts, cells: cells.into_iter().collect() })
    }

    /// Adds the rows of a record batch, of one policy version; see [`forebay_store::WriteBatch::insert_batch`].
    ///
    /// # Errors
    /// `input`, as for [`BatchCells::named`]. Columns and their types are compared with the table's when the changes are made.
    pub fn insert_batch(
        &mut self,
        table: impl Into<Arc<str>>,
        policy_version: u64,
        batch: &'v RecordBatch,
    ) -> Result<&mut Self> {
        let ((names, cells), table) = (BatchCells::named(batch)?, table.into());
        for (at, name) in names.iter().enumerate() {
            self.insert(table.clone(), NewRow::new(policy_version, name)?, cells.row(at));
        }
        Ok(self)
    }

    /// Turns cells of rows final, a row of the record batch each; see [`forebay_store::WriteBatch::write_batch`].
    ///
    /// # Errors
    /// `input`, as for [`BatchCells::of`], or when there are not as many rows in both.
    pub fn write_batch(
        &mut self,
        table: impl Into<Arc<str>>,
        rows: &[Row],
        batch: &'v RecordBatch,
    ) -> Result<&mut Self> {
        let (cells, table) = (BatchCells::of(batch)?, table.into());
        cells.check_rows(rows)?;
        for (at, row) in rows.iter().enumerate() {
            self.write(table.clone(), *row, cells.row(at));
        }
        Ok(self)
    }

    /// Turns cells of a row final.
    pub fn write(
        &mut self,
        table: impl Into<Arc<str>>,
        row: Row,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> &mut Self {
        self.add(table, What::Write { row, cells: cells.into_iter().collect() })
    }

    /// Says that a row goes on under a later version, from token `start` on.
    pub fn span(&mut self, table: impl Into<Arc<str>>, row: Row, start: u32, version: u64) -> &mut Self {
        self.add(table, What::Span { row, start, version })
    }

    /// Says that only the tokens of a row from `start` on are trained on.
    pub fn trainable_from(&mut self, table: impl Into<Arc<str>>, row: Row, start: u32) -> &mut Self {
        self.add(table, What::TrainableFrom { row, start })
    }

    /// Leaves a row out for good, with the reason that people will see.
    pub fn exclude(
        &mut self,
        table: impl Into<Arc<str>>,
        row: Row,
        reason: impl Into<Cow<'v, str>>,
    ) -> &mut Self {
        self.add(table, What::Exclude { row, reason: reason.into() })
    }

    /// Says that a group of a consumer has exactly so many members.
    pub fn expect_group(
        &mut self,
        consumer: impl Into<Arc<str>>,
        table: impl Into<Arc<str>>,
        policy_version: u64,
        key: impl Into<Cow<'v, str>>,
        members: u32,
    ) -> &mut Self {
        let (consumer, key, change) = (consumer.into(), key.into(), GroupChange::Expected(members));
        self.add(table, What::Group { consumer, policy_version, key, change })
    }

    /// Says that nobody more will come to a group.
    pub fn close_group(
        &mut self,
        consumer: impl Into<Arc<str>>,
        table: impl Into<Arc<str>>,
        policy_version: u64,
        key: impl Into<Cow<'v, str>>,
    ) -> &mut Self {
        let (consumer, key, change) = (consumer.into(), key.into(), GroupChange::Closed);
        self.add(table, What::Group { consumer, policy_version, key, change })
    }

    /// Says that a trajectory of a group has all its rows.
    pub fn close_trajectory(
        &mut self,
        consumer: impl Into<Arc<str>>,
        table: impl Into<Arc<str>>,
        policy_version: u64,
        key: impl Into<Cow<'v, str>>,
        trajectory: u32,
    ) -> &mut Self {
        let (consumer, key) = (consumer.into(), key.into());
        let change = GroupChange::TrajectoryClosed(trajectory);
        self.add(table, What::Group { consumer, policy_version, key, change })
    }

    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Makes the changes in a store of this process.
    ///
    /// # Errors
    /// As [`WriteBatch::commit`].
    pub fn apply(&self, store: &Store) -> Result<Vec<Row>> {
        let mut batch = store.batch();
        self.fill(store, &mut batch)?;
        Ok(batch.commit()?)
    }

    /// Puts the changes into a batch of the store that is given.
    ///
    /// # Errors
    /// `input` for names that nothing has, rows that are none, and values that do not fit; `capacity` where values have no room.
    pub fn fill(&self, store: &Store, batch: &mut WriteBatch<'_>) -> Result<()> {
        self.durability.into_iter().for_each(|level| _ = batch.durability(level));
        self.wait.into_iter().for_each(|wait| _ = batch.wait(wait));
        let mut names = Names { store, table: None, consumer: None };
        self.list.iter().try_for_each(|change| change.fill(&mut names, batch))
    }

    /// The values that the changes bring.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value<'v>> {
        let cells = self.list.iter().flat_map(|change| match &change.what {
            What::Insert { cells, .. } | What::Write { cells, .. } => &cells[..],
            _ => &[],
        });
        cells.map(|(_, value)| value)
    }

    /// The rows that the changes name.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.list.iter().filter_map(|change| match change.what {
            What::Write { row, .. }
            | What::Span { row, .. }
            | What::TrainableFrom { row, .. }
            | What::Exclude { row, .. } => Some(row),
            What::Insert { .. } | What::Group { .. } => None,
        })
    }
}

/// A value that borrows from another.
fn borrowed<'v>(value: &'v Value<'_>) -> Value<'v> {
    match value {
        Value::Null => Value::Null,
        Value::Bool(value) => Value::Bool(*value),
        Value::Integer(value) => Value::Integer(*value),
        Value::Float(value) => Value::Float(*value),
        Value::Utf8(text) => Value::Utf8(Cow::Borrowed(text)),
        Value::Binary(bytes) => Value::Binary(Cow::Borrowed(bytes)),
        Value::Numbers(element, bytes) => Value::Numbers(*element, Cow::Borrowed(bytes)),
        Value::Placed(placed) => Value::Placed(*placed),
    }
}

/// Handles by name: changes of one batch mostly name the same ones.
struct Names<'s> {
    store: &'s Store,
    table: Option<Table>,
    consumer: Option<ConsumerHandle>,
}

impl Names<'_> {
    fn table(&mut self, name: &str) -> Result<Table> {
        if let Some(table) = self.table.as_ref().filter(|table| table.name() == name) {
            return Ok(table.clone());
        }
        Ok(self.table.insert(self.store.table(name)?).clone())
    }

    fn consumer(&mut self, name: &str) -> Result<ConsumerHandle> {
        if let Some(consumer) = self.consumer.as_ref().filter(|consumer| consumer.name() == name) {
            return Ok(consumer.clone());
        }
        Ok(self.consumer.insert(self.store.consumer(name)?).clone())
    }
}

impl Change<'_> {
    fn fill(&self, names: &mut Names<'_>, batch: &mut WriteBatch<'_>) -> Result<()> {
        let table = names.table(&self.table)?;
        match &self.what {
            What::Insert { row, rollouts, cells } => {
                batch.insert_rollouts(&table, (**row).clone(), *rollouts, pairs(cells))?;
            }
            What::Write { row, cells } => batch.write(&table, *row, pairs(cells))?,
            What::Span { row, start, version } => batch.span(&table, *row, *start, *version)?,
            What::TrainableFrom { row, start } => batch.trainable_from(&table, *row, *start)?,
            What::Exclude { row, reason } => batch.exclude(&table, *row, reason)?,
            What::Group { consumer, policy_version, key, change } => {
                let consumer = names.consumer(consumer)?;
                match change {
                    GroupChange::Expected(members) => {
                        batch.expect_group(&consumer, &table, *policy_version, key, *members)?;
                    }
                    GroupChange::Closed => batch.close_group(&consumer, &table, *policy_version, key)?,
                    GroupChange::TrajectoryClosed(trajectory) => {
                        batch.close_trajectory(&consumer, &table, *policy_version, key, *trajectory)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn pairs<'c>(cells: &'c Cells<'_>) -> impl Iterator<Item = (&'c str, Value<'c>)> {
    cells.iter().map(|(column, value)| (*column, borrowed(value)))
}
