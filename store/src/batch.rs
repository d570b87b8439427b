//! Batches of changes: all or none, in one record.

use crate::aside::Aside;
use crate::consumer::{ConsumerHandle, Wait};
use crate::durability::Durability;
use crate::error::{Cause, Error, Result};
use crate::extent::{Compared, Lifetime, NewContents, ValueOwner, ValueWriter, View};
use crate::local::Placed;
use crate::log::record::{CellRecord, Event, GroupChangeRecord, Operation, StoredValue};
use crate::origin::Origin;
use crate::sample_id::SampleId;
use crate::schema::{DataColumn, Schema, StorageClass};
use crate::shared::Shared;
use crate::state::{Insertion, Request, State};
use crate::store::Store;
use crate::table::{Purpose, Row, Table, VersionSpan};
use crate::value::{Encoded, Value};

/// A new row: its identity, and what is known of it from the start.
///
/// ```
/// use forebay_store::{NewRow, Purpose};
/// let row = NewRow::new(3, "q17_1_0")?.parent("solver/q17_0_0").token(17);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewRow {
    /// Its sample id; the number of its trajectory says nothing where the store gives one.
    pub sample: SampleId,
    /// The store gives the trajectory its number.
    pub numbered: bool,
    /// The version that its rollout starts under.
    pub policy_version: u64,
    /// See [`NewRow::agent`].
    pub agent: Option<String>,
    /// See [`NewRow::purpose`].
    pub purpose: Purpose,
    /// See [`NewRow::external`].
    pub origin: Option<Origin>,
    /// See [`NewRow::parent`]; empty for none.
    pub parent: String,
    /// See [`NewRow::weights`]; empty where they are not known.
    pub weights: String,
    /// See [`NewRow::token`]; 0 for none.
    pub token: u128,
    /// See [`NewRow::span`].
    pub spans: Vec<VersionSpan>,
    /// See [`NewRow::trainable_from`]; 0 for all tokens.
    pub trainable_from: u32,
    /// See [`NewRow::next_attempt`].
    pub next_attempt: bool,
    /// See [`NewRow::late`].
    pub late: bool,
    /// See [`NewRow::excluded`].
    pub excluded: Option<String>,
}

impl NewRow {
    /// A row of the policy version that its rollout starts under. An id that ends in `_?` leaves the number of the
    /// trajectory to the store, as [`NewRow::next_trajectory`] does.
    ///
    /// # Errors
    /// `input` when the sample id does not parse.
    pub fn new(policy_version: u64, sample_id: &str) -> Result<Self> {
        match sample_id.strip_suffix("_?") {
            None => Ok(Self::of(policy_version, sample_id.parse()?)),
            Some(start) => {
                let first: SampleId = format!("{start}_0").parse()?;
                Ok(NewRow { numbered: true, ..Self::of(policy_version, first) })
            }
        }
    }

    /// A row on a trajectory of its own: the store gives it the next number that is free for the input and turn. With a
    /// [token](NewRow::token), a repetition gives the row that the first insert made.
    ///
    /// # Errors
    /// `input` when the input id is empty.
    pub fn next_trajectory(policy_version: u64, input: &str, turn: u32) -> Result<Self> {
        Ok(NewRow { numbered: true, ..Self::of(policy_version, SampleId::new(input, turn, 0)?) })
    }

    /// As [`NewRow::new`], from a sample id that is parsed already.
    pub fn of(policy_version: u64, sample: SampleId) -> Self {
        NewRow {
            sample,
            numbered: false,
            policy_version,
            agent: None,
            purpose: Purpose::Train,
            origin: None,
            parent: String::new(),
            weights: String::new(),
            token: 0,
            spans: Vec::new(),
            trainable_from: 0,
            next_attempt: false,
            late: false,
            excluded: None,
        }
    }

    /// The same row on the trajectory that is `offset` further on, with a token of its own.
    fn replica(&self, offset: u32) -> Self {
        let mut replica = self.clone();
        if !self.numbered {
            replica.sample = self.sample.on_trajectory(self.sample.trajectory().saturating_add(offset));
        }
        if self.token != 0 && offset > 0 {
            let parts = [&self.token.to_le_bytes()[..], &offset.to_le_bytes()].concat();
            replica.token = xxhash_rust::xxh3::xxh3_128(&parts).max(1);
        }
        replica
    }

    /// The agent that the row belongs to. Default: the table's name.
    pub fn agent(mut self, agent: &str) -> Self {
        self.agent = Some(agent.to_owned());
        self
    }

    /// What the row is for. Default: [`Purpose::Train`].
    pub fn purpose(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }

    /// Says that the row comes from a peer: it is external from here on. Trainers take such rows only where they are
    /// [declared](crate::Consumer::origins) to, and are not bound by its version then; in other trainers' tables it is left
    /// out as `external`. Members of a group are of one origin. The version names the row, together with its sample id, and
    /// counts for retention: give the one that the policy has now.
    pub fn external(mut self, origin: &Origin) -> Self {
        self.origin = Some(origin.clone());
        self
    }

    /// The row that this one continues, as `TABLE/SAMPLE_ID`.
    pub fn parent(mut self, parent: &str) -> Self {
        self.parent = parent.to_owned();
        self
    }

    /// The fingerprint of the weights that the rollout runs on.
    pub fn weights(mut self, fingerprint: &str) -> Self {
        self.weights = fingerprint.to_owned();
        self
    }

    /// Makes the insert safe to repeat: a row that was inserted with the same token is returned as it is. 0 is no token.
    pub fn token(mut self, token: u128) -> Self {
        self.token = token;
        self
    }

    /// Says that the rollout went on under a later version, from token `start` on: it was cut by new weights and resumed before
    /// the row was inserted. To be said once for each version, in their order. As [`Table::span`] says of a row that is there, but
    /// with nothing in between: no trainer is given a row of this run before its policy has reached the last of them. A trainer
    /// without [`staleness`](crate::Consumer::staleness) is not given it then either, for the row's own version is left behind.
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// let row = solver.insert_row(NewRow::new(3, "q17_0_0")?.span(120, 4).trainable_from(120), [])?;
    /// # assert_eq!(row.policy_version(), 3);
    /// let info = solver.get(3, &"q17_0_0".parse()?).unwrap();
    /// assert_eq!((info.version_spans[1], info.trainable_from), (VersionSpan { start: 120, version: 4 }, 120));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn span(mut self, start: u32, version: u64) -> Self {
        self.spans.push(VersionSpan { start, version });
        self
    }

    /// Says that only the tokens from `start` on are trained on, as [`Table::trainable_from`] does of a row that is there. Whether
    /// the row may still be inserted goes by the version that its rollout started under. Default: all of them.
    pub fn trainable_from(mut self, start: u32) -> Self {
        self.trainable_from = start;
        self
    }

    /// Says that the rollout began before its version was left behind. Such a row is kept, and left out as `stale` where it
    /// would be refused otherwise.
    pub fn late(mut self) -> Self {
        self.late = true;
        self
    }

    /// The row is left out from the start, with this reason: its place is taken, and nobody waits for it.
    pub fn excluded(mut self, reason: &str) -> Self {
        self.excluded = Some(reason.to_owned());
        self
    }

    /// The row is the next attempt of the one with this identity, which is left out as `superseded`.
    pub fn next_attempt(mut self) -> Self {
        self.next_attempt = true;
        self
    }
}

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
        if row.excluded.as_deref() == Some("") {
            return Err(no_reason());
        }
        if let Some(fault) = row.origin.as_ref().and_then(Origin::fault) {
            return Err(Cause::Argument { what: "origin", reason: fault.to_owned() }.into());
        }
        let owner = ValueOwner {
            row_key: Row::key(row.policy_version, row.sample.key()),
            table: table.id(),
            column: 0,
        };
        let lifetime = Lifetime::Version(row.policy_version);
        let cells = self.store_cells(&table.current_schema(), lifetime, owner, cells)?;
        let NewRow {
            sample,
            numbered,
            policy_version,
            agent,
            purpose,
            origin,
            parent,
            weights,
            token,
            spans,
            trainable_from,
            next_attempt,
            late,
            excluded,
        } = row;
        self.requests.push(Request::Insert(Insertion {
            table: table.id(),
            sample,
            numbered,
            policy_version,
            next_attempt,
            late,
            agent,
            purpose: purpose as u8,
            origin: origin.map_or(String::new(), |origin| origin.to_string()),
            parent,
            weights,
            token,
            spans,
            trainable_from,
            excluded,
            cells,
        }));
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
        let mut records: Vec<CellRecord> = Vec::new();
        for (name, value) in cells {
            let index = schema.index_of(name)?;
            if records.iter().any(|record| usize::from(record.column) == index) {
                return Err(Cause::ColumnTwice { column: name.to_owned() }.into());
            }
            let column = &schema.data_columns()[index];
            let value = match value.encode(column)? {
                Encoded::Null => StoredValue::Null,
                Encoded::Inline(bits) => StoredValue::Inline(bits),
                Encoded::Bytes(bytes) => {
                    let owner = ValueOwner { column: index as u32, ..owner };
                    StoredValue::View(self.store_value(&bytes, column, lifetime, owner)?.0)
                }
                Encoded::Placed(placed) => {
                    let owner = ValueOwner { column: index as u32, ..owner };
                    StoredValue::View(self.store_placed(&placed, column, lifetime, owner)?.0)
                }
            };
            records.push(CellRecord { column: index as u16, value });
        }
        Ok(records)
    }

    fn store_value(
        &mut self,
        bytes: &[u8],
        column: &DataColumn,
        lifetime: Lifetime,
        owner: ValueOwner,
    ) -> Result<View> {
        let class = column.data_type.storage_class();
        if column.shared {
            return self.contents.store(&self.store.0, &mut self.values, bytes, class, owner);
        }
        self.values.write(&[bytes], class, lifetime, owner)
    }

    /// A value that lies in an extent already, and stays there unless its column shares values.
    fn store_placed(
        &mut self,
        placed: &Placed<'_>,
        column: &DataColumn,
        lifetime: Lifetime,
        owner: ValueOwner,
    ) -> Result<View> {
        placed.check_store(self.store)?;
        if column.shared {
            return self.store_value(&placed.read()?, column, lifetime, owner);
        }
        placed.take(&mut self.values, column.data_type.storage_class(), lifetime, owner)
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
