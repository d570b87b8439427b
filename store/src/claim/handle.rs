//! What a holder has of its claim.

mod size;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;

use super::book::{ClaimProgress, ClaimState};
use crate::batch::WriteBatch;
use crate::clock::Timestamp;
use crate::consumer::ConsumerKind;
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::local::Places;
use crate::log::record::{ClaimRecord, Event, ReturnReason, StoredValue};
use crate::sample_id::SampleId;
use crate::snapshot::{ColumnSet, Lists, gather_rows};
use crate::state::State;
use crate::step::{GradientId, ReliedCaches, Share};
use crate::store::Store;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::{Cell, Row};

/// A leased micro-batch: rows of one table, in sample-id order, that nobody else of this consumer can have.
///
/// Dropping it gives the rows back. A task ends it with [`finish`](Claim::finish), a trainer with
/// [`accumulated`](Claim::accumulated). A holder that comes after its deadline is refused with `state`: its rows have
/// gone to somebody else.
///
/// It may be shared, and ended by reference ([`finish_shared`](Claim::finish_shared) and its like) while others read it: what
/// they read is held until they have it. The rows go back with the last of them only where nobody has ended it.
#[derive(Debug)]
#[must_use = "a claim that is dropped gives its rows back"]
pub struct Claim {
    store: Store,
    number: u64,
    incarnation: u64,
    table: String,
    table_id: u32,
    kind: ConsumerKind,
    step: u64,
    sequence_in_step: u32,
    indexes: Arc<[u32]>,
    rows: Vec<Row>,
    samples: Vec<SampleId>,
    share: Option<Share>,
    /// Of one that was taken by a step's handle.
    caches: Option<Arc<ReliedCaches>>,
    /// Somebody has ended it: dropping it gives nothing back.
    settled: AtomicBool,
}

impl Claim {
    pub(crate) fn new(store: Store, state: &State, record: &ClaimRecord, kind: ConsumerKind) -> Self {
        let table = &state.tables[record.table as usize];
        let sample = |&row: &u32| table.meta(row).sample(state.texts.pages()).to_id();
        let samples: Vec<SampleId> = record.rows.iter().map(sample).collect();
        let versions = record.rows.iter().map(|&row| table.meta(row).policy_version);
        let named = record.rows.iter().zip(versions).zip(&samples);
        Claim {
            store,
            number: record.claim,
            incarnation: state.incarnation,
            table: table.name.to_string(),
            table_id: record.table,
            kind,
            step: record.step,
            sequence_in_step: record.sequence_in_step,
            indexes: record.rows.as_slice().into(),
            rows: named
                .map(|((&row, version), sample)| Row::new(record.table, row, version, sample))
                .collect(),
            samples,
            share: None,
            caches: None,
            settled: AtomicBool::new(false),
        }
    }

    /// The same, as a rank's part of it.
    pub(crate) fn with_share(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    /// The same, whose gradient goes to these caches.
    pub(crate) fn relying_on(mut self, caches: Arc<ReliedCaches>) -> Self {
        self.caches = Some(caches);
        self
    }

    /// How many rows the micro-batch has over all ranks of its gang; those of this claim where there is no gang.
    pub fn rows_in_gang(&self) -> u64 {
        self.share.as_ref().map_or(self.rows.len() as u64, |share| share.rows)
    }

    /// How many elements of the column that the micro-batch rule counts it has over all ranks of its gang; 0 where there
    /// is no gang or nothing is counted.
    pub fn tokens_in_gang(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.tokens)
    }

    /// The claim's epoch: incarnation of the store, and number in it.
    pub fn epoch(&self) -> (u64, u64) {
        (self.incarnation, self.number)
    }

    /// The table of the rows. A micro-batch never mixes tables.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The step that the claim belongs to, for a trainer's.
    pub fn step(&self) -> Option<u64> {
        (self.step != 0).then_some(self.step)
    }

    /// The claim's place among its step's claims of the same consumer, from 0.
    pub fn sequence_in_step(&self) -> u32 {
        self.sequence_in_step
    }

    /// The name of the gradient of these rows, for a trainer's claim: what [`Store::accumulate`] takes.
    pub fn gradient_id(&self) -> Option<GradientId> {
        self.store.0.state.lock().gradient_id(self.step, self.number)
    }

    /// The rows, in sample-id order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows' sample ids, in the same order.
    pub fn sample_ids(&self) -> &[SampleId] {
        &self.samples
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows. A granted claim has at least one; a rank's part of one may have none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether the claim still is somebody's: leased, or accumulated in a step that is open.
    pub fn is_live(&self) -> bool {
        self.store.0.state.lock().claims.get(self.number).is_some_and(|claim| claim.progress.is_live())
    }

    /// Columns of the rows as Arrow arrays: meta, data or status columns, by name. Cells that are not final are null.
    ///
    /// # Errors
    /// `input` when a column is unknown.
    pub fn columns<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<RecordBatch> {
        self.store.0.check_process()?;
        self.store.0.columns_of(self.table_id, &self.indexes, names, Lists::Together)
    }

    /// As [`columns`](Claim::columns), with lists and tensors left where they lie: they are list views, a tensor that of its
    /// elements, over the part of an extent that the rows span, and nothing of them is copied. Values of a column that lie in
    /// several extents are gathered, and so is bfloat16, which is shown as float32; the types do not depend on it.
    ///
    /// For whoever reads row by row, or puts rows into tensors of his own. Such a batch holds its extents, and carries along
    /// what lies between its values: [`compact`](crate::compact) it before it goes out or is kept.
    ///
    /// # Errors
    /// As [`columns`](Claim::columns); also for more elements of tensors that lie in several extents than a list can count.
    pub fn columns_in_place<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<RecordBatch> {
        self.store.0.check_process()?;
        self.store.0.columns_of(self.table_id, &self.indexes, names, Lists::InPlace)
    }

    /// As [`columns`](Claim::columns), with texts, bytes, lists and tensors left where they lie: for a process of this machine
    /// that reads them itself, with a [`Hold`](crate::Hold) that it had before it asked.
    ///
    /// # Errors
    /// `input` when a column is unknown.
    pub fn places<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Places> {
        self.store.0.check_process()?;
        let (rows, commits) = {
            let state = self.store.0.state.lock();
            let table = &state.tables[self.table_id as usize];
            let columns = ColumnSet::named(&table.schema, &table.arrow_schema, names)?;
            (gather_rows(table, state.texts.pages(), &self.indexes, columns), state.commits)
        };
        rows.into_places(commits)
    }

    /// What the cells of a data column hold, row by row: bytes where they lie, not copied, and alive for as long as they
    /// are held. Cells that are not final are [`Cell::Empty`].
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("response", DataType::list(Element::Int32)))?;
    /// let read = store.create_consumer("read", Consumer::task(["solver"]).ready(["response"]))?;
    /// solver.insert(0, "q17_0_0", [("response", vec![4_i32, 2].into())])?;
    /// let claim = read.claim(MicroBatch::of(1), "me", Wait::No)?.unwrap();
    /// let cells = claim.cells("response")?;
    /// drop((claim, store));
    /// assert!(matches!(&cells[0], Cell::Bytes(bytes) if **bytes == [4, 0, 0, 0, 2, 0, 0, 0]));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `input` when there is no data column of that name; `corrupt` when a value's place cannot be read.
    pub fn cells(&self, column: &str) -> Result<Vec<Cell>> {
        let shared = &self.store.0;
        shared.check_process()?;
        let (values, class, _pin) = {
            let state = shared.state.lock();
            let table = &state.tables[self.table_id as usize];
            let index = table.schema.index_of(column)?;
            let class = table.schema.data_columns()[index].data_type.storage_class();
            let values: Vec<_> = self.indexes.iter().map(|&row| table.cell(index, row)).collect();
            (values, class, shared.pin_reader(&state))
        };
        let views = values.iter().map(|value| value.and_then(View::of));
        let bytes = shared.extents.read_all(views, class)?;
        let cell = |(value, bytes)| match (value, bytes) {
            (_, Some(bytes)) => Cell::Bytes(bytes),
            (Some(StoredValue::Inline(bits)), None) => Cell::Inline(bits),
            (Some(StoredValue::Null), None) => Cell::Null,
            (_, None) => Cell::Empty,
        };
        Ok(values.into_iter().zip(bytes).map(cell).collect())
    }

    /// Completes a task: the changes that `write` puts into the batch and the end of the claim are one record.
    ///
    /// # Errors
    /// `state` when the claim's lease has ended or it is a trainer's; otherwise as for the changes themselves. After an
    /// error the rows go back.
    pub fn finish(self, write: impl FnOnce(&mut WriteBatch<'_>) -> Result<()>) -> Result<Vec<Row>> {
        let store = self.store.clone();
        let mut batch = store.batch();
        write(&mut batch)?;
        self.finish_batch(batch)
    }

    /// As [`finish`](Claim::finish), with a batch that was filled before.
    pub fn finish_batch(self, batch: WriteBatch<'_>) -> Result<Vec<Row>> {
        self.finish_shared(batch)
    }

    /// As [`finish_batch`](Claim::finish_batch), of a claim that others may be reading.
    ///
    /// # Errors
    /// As [`finish`](Claim::finish).
    pub fn finish_shared(&self, batch: WriteBatch<'_>) -> Result<Vec<Row>> {
        self.end(|| {
            if self.kind == ConsumerKind::Trainer {
                let (consumer, found) = (self.table.clone(), self.kind.as_str());
                let hint = "report the micro-batch as accumulated and commit its step";
                return Err(Cause::ConsumerKind { consumer, found, hint }.into());
            }
            batch.finish(self.number)
        })
    }

    /// Ends it. Where that fails the rows go back now, whoever still reads it.
    fn end<T>(&self, end: impl FnOnce() -> Result<T>) -> Result<T> {
        let ended = end();
        if ended.is_err() {
            self.let_go();
        }
        self.settled.store(true, Ordering::Relaxed);
        ended
    }

    /// Says that the gradient of these rows is in their policy's cache; for a rank of a gang, that its part is, which
    /// may be said again. From now on only the step's commit, or the loss of the cache, ends the claim.
    ///
    /// # Errors
    /// `state` when the lease has ended, the step is closed, others have dropped the cache that has what was accumulated before by this
    /// handle of the step, or the claim is a task's. The caller must then take the gradient of these rows out of its cache, that is,
    /// drop the cache, and [say so](crate::Step::drop_cache).
    pub fn accumulated(self) -> Result<()> {
        self.accumulated_shared()
    }

    /// As [`accumulated`](Claim::accumulated), of a claim that others may be reading.
    ///
    /// # Errors
    /// As [`accumulated`](Claim::accumulated).
    pub fn accumulated_shared(&self) -> Result<()> {
        let (number, step) = (self.number, self.step);
        self.end(|| {
            if self.kind == ConsumerKind::Task {
                let (consumer, found) = (self.table.clone(), self.kind.as_str());
                let hint = "finish its claims with what they wrote";
                return Err(Cause::ConsumerKind { consumer, found, hint }.into());
            }
            self.store.0.submit_if(|state| {
                if let Some(share) = &self.share {
                    return Ok((state.decide_rank_done(number, step, share)?, ()));
                }
                if state.open_step() != Some(step) {
                    return Err(Cause::StepClosed { step }.into());
                }
                state.check_claim(number, &["leased"])?;
                state.check_granted_in(step, number)?;
                if let Some(caches) = &self.caches {
                    caches.rely_on(state, step, self.table_id)?;
                }
                Ok((Some(Event::Accumulated { claim: number }), ()))
            })
        })
    }

    /// Holds the rows for `time` from now on, and no shorter than they are held already. Gives the new deadline. For holders
    /// that take longer than a [lease](crate::Options::lease), and say so while they have it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = Store::open(dir.path().join("store"), Options::default())?;
    /// # let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
    /// # let judge = store.create_consumer("judge", Consumer::task(["solver"]))?;
    /// solver.insert(0, "q17_0_0", [])?;
    /// let claim = judge.claim(MicroBatch::of(1), "slow judge", Wait::No)?.unwrap();
    /// let until = claim.extend(Duration::from_secs(3600))?;
    /// assert!(until > store.clock().now().after(Duration::from_secs(3599)));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `state` when the lease has ended, or has no end because the claim is accumulated.
    pub fn extend(&self, time: Duration) -> Result<Timestamp> {
        let (shared, number) = (&self.store.0, self.number);
        let now = shared.options.clock.now();
        shared.expire_at(now)?; // a lease that is over is over, also where nobody looked since
        shared.submit_lease(|state| {
            let old = state.check_claim(number, &["leased"])?.deadline;
            let deadline = now.after(time).max(old);
            let event = Event::Extended { claim: number, deadline: deadline.0 };
            Ok(((deadline > old).then_some(event), deadline))
        })
    }

    /// Gives the rows back, to be claimed again.
    pub fn release(self) -> Result<()> {
        self.release_shared()
    }

    /// As [`release`](Claim::release), of a claim that others may be reading.
    ///
    /// # Errors
    /// As [`release`](Claim::release).
    pub fn release_shared(&self) -> Result<()> {
        self.settled.store(true, Ordering::Relaxed);
        self.give_back()
    }

    /// Gives the rows back where nobody hears of a failure.
    fn let_go(&self) {
        if let Err(error) = self.give_back() {
            tracing::debug!(claim = self.number, %error, "a claim was not given back; its lease or the store ends it");
        }
    }

    fn give_back(&self) -> Result<()> {
        let number = self.number;
        self.store.0.submit_lease(|state| {
            // A rank that has said that it has its part's gradient has nothing to give back.
            let done =
                |claim: &ClaimState| self.share.as_ref().is_some_and(|s| claim.ranks_done.contains(&s.rank));
            let leased = |claim: &ClaimState| claim.progress == ClaimProgress::Leased && !done(claim);
            let live = state.claims.get(number).is_some_and(leased);
            let event = live.then(|| state.returning(vec![number], ReturnReason::Released));
            Ok((event, ()))
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.settled.load(Ordering::Relaxed) {
            self.let_go();
        }
    }
}
