//! Batches of changes: all or none, in one record.

mod new_row;

pub use new_row::NewRow;

use crate::aside::Aside;
use crate::consumer::{ConsumerHandle, Wait};
use crate::copy::StoreFence;
use crate::durability::Durability;
use crate::error::{Cause, Error, Result};
use crate::extent::{Compared, Lifetime, NewContents, ValueOwner, ValueWriter, View};
use crate::local::Placed;
use crate::log::record::{CellRecord, Event, GroupChangeRecord, Operation, StoredValue};
use crate::schema::{DataColumn, Schema, StorageClass};
use crate::shared::Shared;
use crate::state::{Request, State};
use crate::store::Store;
use crate::table::{Row, Table, VersionSpan};
use crate::value::{Encoded, Value};

/// Changes over any tables that happen all or not at all, and in one record of the log.
///
/// Values go to their extents as they are added; nothing is visible before [`WriteBatch::commit`].
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct WriteBatch<'a> {
    store: &'a Store,
    values: ValueWriter<'a>,
    /// Values of shared columns that this batch brings.
    contents: NewContents,
    requests: Vec<Request>,
    durability: Durability,
    wait: Wait,
    aside: Aside,
}

/// What a batch's record says, and the rows that were inserted.
pub(crate) type Decided = (Vec<Operation>, Vec<Row>);

impl<'a> WriteBatch<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let values = store.0.values.writer(&*store.0);
        let (contents, durability) = (NewContents::default(), store.0.options.durability);
        let (wait, aside) = (Wait::For(store.0.options.capacity_wait), Aside::default());
        WriteBatch { store, values, contents, requests: Vec::new(), durability, wait, aside }
    }

    /// The level at which the batch is acknowledged. Default: the store's.
    pub fn durability(&mut self, level: Durability) -> &mut Self {
        self.durability = level;
        self
    }

    /// How long [`commit`](WriteBatch::commit) waits where a [rate limiter](crate::RateLimiter) holds the batch back,
    /// or the [memory budget](crate::Options::memory_bytes_max). Default:
    /// [`Options::capacity_wait`](crate::Options::capacity_wait).
    pub fn wait(&mut self, wait: Wait) -> &mut Self {
        self.wait = wait;
        self
    }

    /// Has every wait of the batch from now on run by `by`, which has to run what it is given once: for callers whose thread others
    /// need, as those of an async runtime do. It is called only where there is something to wait for: room within a budget, for
    /// values that are added and for the batch, and a rate limiter. Default: the thread waits.
    pub fn wait_aside(&mut self, by: fn(&mut dyn FnMut())) -> &mut Self {
        self.aside = Aside::by(by);
        self.values.wait_aside(self.aside);
        self
    }

    pub(crate) fn values(&mut self) -> &mut ValueWriter<'a> {
        &mut self.values
    }

    /// Adds a row, with the cells that are known already.
    pub fn insert<'v>(
        &mut self,
        table: &Table,
        mut row: NewRow,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<()> {
        table.check_store(self.store)?;
        if row.numbered {
            row.sample = self.store.0.number_trajectory(table.id(), &row)?;
        }
        row.check()?;
        let key = Row::key(row.policy_version, row.sample.key());
        let owner = ValueOwner { row_key: key, table: table.id(), column: 0 };
        let lifetime = Lifetime::Version(row.policy_version);
        let cells = self.store_cells(&table.current_schema(), lifetime, owner, cells)?;
        self.requests.push(Request::Insert(row.asked_for(table, key, cells)));
        Ok(())
    }

    /// Adds a row and its replicas, `rollouts` in all, that differ in their trajectories alone: numbers that follow on the
    /// row's own, or that the store gives out. A token makes all of them safe to repeat.
    ///
    /// # Errors
    /// As for [`WriteBatch::insert`]; `input` also for 0 rollouts.
    pub fn insert_rollouts<'v>(
        &mut self,
        table: &Table,
        row: NewRow,
        rollouts: u32,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<()> {
        let last = row.sample.trajectory().checked_add(rollouts.saturating_sub(1));
        if rollouts == 0 || last.is_none() {
            let reason = format!("{rollouts} of {} cannot be numbered; ask for at least 1", row.sample);
            return Err(Cause::Argument { what: "rollouts", reason }.into());
        }
        let cells: Vec<(&str, Value<'_>)> = cells.into_iter().collect();
        for replica in 0..rollouts {
            self.insert(table, row.replica(replica), cells.iter().cloned())?;
        }
        Ok(())
    }

    /// Says that a row goes on under a later version, from token `start` on.
    pub fn span(&mut self, table: &Table, row: Row, start: u32, version: u64) -> Result<()> {
        table.check_store(self.store)?;
        table.check_row(row)?;
        self.requests.push(Request::Span { row, span: VersionSpan { start, version } });
        Ok(())
    }

    /// Says that only the tokens of a row from `start` on are trained on: its loss mask leaves out those before.
    pub fn trainable_from(&mut self, table: &Table, row: Row, start: u32) -> Result<()> {
        table.check_store(self.store)?;
        table.check_row(row)?;
        self.requests.push(Request::Mask { row, start });
        Ok(())
    }

    /// Turns cells of a row final.
    pub fn write<'v>(
        &mut self,
        table: &Table,
        row: Row,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<()> {
        table.check_store(self.store)?;
        table.check_row(row)?;
        let cells = self.store_cells(&table.current_schema(), row.lifetime(), row.owner(0), cells)?;
        self.requests.push(Request::Write { row, cells });
        Ok(())
    }

    /// Leaves a row out for good, with the reason that people will see.
    pub fn exclude(&mut self, table: &Table, row: Row, reason: &str) -> Result<()> {
        table.check_store(self.store)?;
        table.check_row(row)?;
        if reason.is_empty() {
            return Err(no_reason());
        }
        self.requests.push(Request::Exclude { row, reason: reason.to_owned() });
        Ok(())
    }

    /// Says that a group of a consumer has exactly so many members (rows or trajectories, as it was declared), whether
    /// any of them has come or not.
    pub fn expect_group(
        &mut self,
        consumer: &ConsumerHandle,
        table: &Table,
        policy_version: u64,
        key: &str,
        members: u32,
    ) -> Result<()> {
        self.group(consumer, table, (policy_version, key), GroupChangeRecord::Expected(members))
    }

    /// Says that nobody more will come to a group: a member that has not come, or is not ready, is late, and the
    /// consumer's [`GroupRule`](crate::GroupRule) says what becomes of the group. Late rows are left out: by a trainer for
    /// good, with the reason `late`, by a task for that task only.
    pub fn close_group(
        &mut self,
        consumer: &ConsumerHandle,
        table: &Table,
        policy_version: u64,
        key: &str,
    ) -> Result<()> {
        self.group(consumer, table, (policy_version, key), GroupChangeRecord::Closed)
    }

    /// Says that a trajectory of a group has all its rows. One that has none is a member all the same: its agent took no
    /// turn.
    pub fn close_trajectory(
        &mut self,
        consumer: &ConsumerHandle,
        table: &Table,
        policy_version: u64,
        key: &str,
        trajectory: u32,
    ) -> Result<()> {
        let change = GroupChangeRecord::TrajectoryClosed(trajectory);
        self.group(consumer, table, (policy_version, key), change)
    }

    fn group(
        &mut self,
        consumer: &ConsumerHandle,
        table: &Table,
        (policy_version, key): (u64, &str),
        change: GroupChangeRecord,
    ) -> Result<()> {
        table.check_store(self.store)?;
        consumer.check_store(self.store)?;
        let (consumer, key) = (consumer.index() as u32, key.to_owned());
        self.requests.push(Request::Group { consumer, table: table.id(), policy_version, key, change });
        Ok(())
    }

    pub(crate) fn append(&mut self, row: Row, column: u16, view: View) {
        self.requests.push(Request::Append { row, column, view });
    }

    pub(crate) fn finalize(&mut self, row: Row, column: u16, fragments: usize, value: StoredValue) {
        self.requests.push(Request::Finalize { row, column, fragments, value });
    }

    /// Makes all changes of the batch at once. Gives the rows that were inserted, in the order of their insertion (for
    /// one whose token was seen before, the row that is there).
    ///
    /// # Errors
    /// The first change that cannot be made; then none was. `retry` when the rate limiter of a consumer held the batch back
    /// for too long; `capacity` when there was no memory for it in time.
    pub fn commit(mut self) -> Result<Vec<Row>> {
        self.bring_values()?;
        let requests = std::mem::take(&mut self.requests);
        self.store.0.write(self.durability, (self.wait, self.aside), requests, &self.contents)
    }

    /// Completes a task's claim together with the changes of the batch.
    pub(crate) fn finish(mut self, claim: u64) -> Result<Vec<Row>> {
        self.bring_values()?;
        let until = self.store.0.waits_until(self.wait);
        self.store.0.admit_growth(&self.requests, until, true, self.aside)?;
        let (shared, contents) = (&self.store.0, &self.contents);
        let mut requests = std::mem::take(&mut self.requests);
        let may_stop = Compared::may_stop(&requests);
        loop {
            let asked = if may_stop { requests.clone() } else { std::mem::take(&mut requests) };
            let outcome = shared.submit_at(self.durability, |state| {
                state.check_claim(claim, &["leased"])?;
                let (operations, rows) = shared.decide(state, asked, contents)?;
                Ok((Event::Finished { claim, operations }, rows))
            });
            if !contents.compared().go_on() {
                return outcome;
            }
        }
    }

    /// Brings every value into its extent, and lets shared ones stand for what others committed meanwhile.
    fn bring_values(&mut self) -> Result<()> {
        self.values.flush()?;
        let stands = self.contents.resolve(&self.store.0, &mut self.values)?;
        let cells = self.requests.iter_mut().flat_map(Request::cells_mut);
        for cell in cells.filter(|_| !stands.is_empty()) {
            if let StoredValue::View(view) = &mut cell.value
                && let Some(committed) = stands.get(&View(*view))
            {
                *view = committed.0;
            }
        }
        Ok(())
    }

    /// Checks cells against a schema and brings their values where they belong.
    fn store_cells<'v>(
        &mut self,
        schema: &Schema,
        lifetime: Lifetime,
        owner: ValueOwner,
        cells: impl IntoIterator<Item = (&'v str, Value<'v>)>,
    ) -> Result<Vec<CellRecord>> {
        self.store.0.check_writable("write to it")?;
        let cells = cells.into_iter();
        let expected = cells.size_hint().0.min(schema.data_columns().len());
        let mut records: Vec<CellRecord> = Vec::with_capacity(expected);
        let fence = StoreFence::default();
        for (name, value) in cells {
            let index = schema.index_of(name)?;
            if records.iter().any(|record| usize::from(record.column) == index) {
                return Err(Cause::ColumnTwice { column: name.to_owned() }.into());
            }
            let (column, owner) =
                (&schema.data_columns()[index], ValueOwner { column: index as u32, ..owner });
            let at = records.len();
            records.push(CellRecord { column: index as u16, value: StoredValue::Null });
            let place = &mut records[at].value;
            match value.encode(column)? {
                Encoded::Null => {}
                Encoded::Inline(bits) => *place = StoredValue::Inline(bits),
                Encoded::Bytes(bytes) => {
                    self.store_value(&bytes, column, lifetime, owner, &fence, View::within(place))?;
                }
                Encoded::Placed(placed) => {
                    self.store_placed(&placed, column, lifetime, owner, &fence, View::within(place))?;
                }
            }
        }
        Ok(records)
    }

    fn store_value(
        &mut self,
        bytes: &[u8],
        column: &DataColumn,
        lifetime: Lifetime,
        owner: ValueOwner,
        fence: &StoreFence,
        view: &mut View,
    ) -> Result<()> {
        let class = column.data_type.storage_class();
        if column.shared {
            fence.order(); // it may flush what came before it
            *view = self.contents.store(&self.store.0, &mut self.values, bytes, class, owner)?;
            return Ok(());
        }
        self.values.write_among(&[bytes], class, lifetime, owner, fence, view)
    }

    /// A value that lies in an extent already, and stays there unless its column shares values.
    fn store_placed(
        &mut self,
        placed: &Placed<'_>,
        column: &DataColumn,
        lifetime: Lifetime,
        owner: ValueOwner,
        fence: &StoreFence,
        view: &mut View,
    ) -> Result<()> {
        placed.check_store(self.store)?;
        if column.shared {
            return self.store_value(&placed.read()?, column, lifetime, owner, fence, view);
        }
        placed.take(&mut self.values, column.data_type.storage_class(), lifetime, owner, fence, view)
    }
}

fn no_reason() -> Error {
    let reason = "it is empty; say in a few words why the row is left out".to_owned();
    Cause::Argument { what: "reason", reason }.into()
}

impl Shared {
    pub(crate) fn decide(
        &self,
        state: &State,
        requests: Vec<Request>,
        contents: &NewContents,
    ) -> Result<Decided> {
        let (mut operations, rows) = state.decide_writes(requests, &|table, column, old, new| {
            let data_type = &state.tables[table as usize].schema.data_columns()[column as usize].data_type;
            self.same_bytes(contents.compared(), data_type.storage_class(), old, new)
        })?;
        contents.declare(state, &mut operations);
        Ok((operations, rows))
    }

    /// Whether two stored values are equal: by length first, then by their bytes.
    fn same_bytes(
        &self,
        compared: &Compared,
        class: StorageClass,
        old: StoredValue,
        new: StoredValue,
    ) -> Result<bool> {
        let (StoredValue::View(a), StoredValue::View(b)) = (old, new) else { return Ok(old == new) };
        let (a, b) = (View(a), View(b));
        Ok(a.length() == b.length() && compared.are_equal(&self.extents, class, a, b)?)
    }
}
