//! The store: one run, with all its tables, policies and objects.
//!
//! What is here is the list of what one can ask of a store; [`shared`](crate::shared) is how it is done. Beside it: what a run declares
//! ([`declared`]), [`objects`], what an operator asks ([`operated`]), and what a store shows of itself ([`shown`]).

mod declared;
mod objects;
mod operated;
mod shown;

pub(crate) use self::objects::exists;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::WriteBatch;
use crate::checkpoint::CheckpointReport;
use crate::clock::{Clock, Timestamp};
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::extent::AgeLimit;
use crate::local::LentExtent;
use crate::log::record::{Event, PlanRecord};
use crate::object::Objects;
use crate::options::Options;
use crate::recovery::RecoveryReport;
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::state::check_planned;
use crate::step::{Begun, Step, StepPlan};
use crate::sync::atomic::Ordering;

/// A store, open in this process. Clones are handles on the same store; the last one to go closes it.
///
/// ```
/// use forebay_store::{Consumer, DataType, Element, GroupBy, MicroBatch, Options, Schema, StepPlan, Store, Wait};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let solver = store.create_table("solver", Schema::new()
///     .data("prompt", DataType::Utf8)
///     .data("response", DataType::list(Element::Int32))
///     .data("reward", DataType::Float32))?;
/// let train = store.create_consumer("train", Consumer::trainer(["solver"])
///     .ready(["response", "reward"]).group(GroupBy::Input, 2))?;
///
/// let rows = ["q17_0_0", "q17_0_1"].map(|id| solver.insert(0, id, [("prompt", "2 + 2 =".into())]).unwrap());
/// for (row, reward) in rows.into_iter().zip([1.0, 0.0]) {
///     solver.write(row, [("response", vec![4_i32].into())])?; // staged: each cell when it is known
///     solver.write(row, [("reward", reward.into())])?;
/// }
///
/// let step = store.begin_step(StepPlan::new().groups(&train, ["q17"]))?;
/// while let Some(batch) = step.next(&train, MicroBatch::of(2), Wait::Forever)? {
///     let columns = batch.columns(["sample_id", "response", "reward"])?; // an Arrow record batch
///     assert_eq!(columns.num_rows(), 2);
///     batch.accumulated()?; // its gradient is in the cache; dropping the claim instead would give it back
/// }
/// step.commit([("solver", vec![])])?; // rows consumed, version + 1
/// assert_eq!(store.policy("solver")?.version, 1);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Shared>);

impl Store {
    /// Opens the store in a directory, and creates it where there is none (see [`Options::create`]).
    ///
    /// Opening replays the log. Claims of the process before are ended and their rows can be claimed again.
    ///
    /// # Errors
    /// `state` when another process writes the store (its pid is named), when the directory holds something else or
    /// another format version; `corrupt` with file and offset when stored bytes are damaged; nothing is changed then.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Ok(Store(Arc::new(Shared::open(path.as_ref(), options)?)))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0.directory.path
    }

    /// The store's identity: drawn when it was created, kept by its backups.
    pub fn id(&self) -> u64 {
        self.0.directory.store_id
    }

    /// How long a claim is held before it goes to somebody else, unless it is extended.
    pub fn lease(&self) -> Duration {
        self.0.options.lease
    }

    /// The level of calls that name none.
    pub fn durability(&self) -> Durability {
        self.0.options.durability
    }

    /// The clock that the store was opened with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.options.clock
    }

    /// Begins a step. At most one is open at a time.
    ///
    /// # Errors
    /// `state` when a step is open, or the plan names a consumer that is not a trainer, or groups for one that takes rows;
    /// `input` when it names a consumer twice.
    pub fn begin_step(&self, plan: StepPlan) -> Result<Step> {
        let now = self.0.options.clock.now();
        let begun = self.0.submit(|state| {
            if let Some(step) = state.open_step() {
                let since = state.steps[&step].begun_at.shown_before(now);
                return Err(Cause::StepOpen { step, since }.into());
            }
            for (at, (consumer, groups, _)) in plan.entries.iter().enumerate() {
                let twice = plan.entries[..at].iter().any(|(other, ..)| other == consumer);
                check_planned(state, *consumer, groups, twice)?;
            }
            let entries = plan.entries.into_iter();
            let plan =
                entries.map(|(c, groups, rows)| PlanRecord { consumer: c as u32, groups, rows }).collect();
            let step = state.next_step();
            let begun = Begun { number: step, caches_from: state.next_first_cache_epoch(step) };
            Ok((Event::StepBegun { step, plan }, begun))
        })?;
        Ok(Step::new(self.clone(), begun))
    }

    /// The step of that number, which somebody has begun and has open: for ranks of a gang that do not hold it. It is not given
    /// up when this handle is dropped.
    ///
    /// # Errors
    /// `state` when no step of that number is open.
    pub fn step(&self, number: u64) -> Result<Step> {
        self.check_process()?;
        let state = self.0.state.lock();
        match state.open_begun().filter(|begun| begun.number == number) {
            Some(begun) => Ok(Step::of_another(self.clone(), begun)),
            None => Err(Cause::StepClosed { step: number }.into()),
        }
    }

    /// Lends an extent with room for `bytes` of values of rows of a policy version, or for as many as the largest extent has,
    /// to another process of this machine, which fills it with an [`ExtentFiller`](crate::ExtentFiller).
    ///
    /// ```
    /// use forebay_store::{DataType, ExtentFiller, Options, PlacedKind, Schema, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
    /// let lent = store.lend_extent(3, 1000)?;
    /// // In the other process:
    /// let mut filler = ExtentFiller::open(store.path(), store.id(), lent.loan())?;
    /// let spot = filler.place(b"what is two and two?")?.expect("there is room");
    /// filler.flush()?;
    /// // And in this one again:
    /// solver.insert(3, "q17_0_0", [("prompt", lent.value(PlacedKind::Utf8, spot))])?;
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `capacity` when there is no room in time; `state` when the store cannot be written.
    pub fn lend_extent(&self, policy_version: u64, bytes: usize) -> Result<LentExtent> {
        LentExtent::lend(self, policy_version, bytes)
    }

    /// How many records were written since the store was created: what
    /// [`ValueReader::knows`](crate::ValueReader::knows) is told.
    pub fn commits(&self) -> u64 {
        self.0.state.lock().commits
    }

    /// Starts a batch of changes, over any tables, that happen all or not at all.
    pub fn batch(&self) -> WriteBatch<'_> {
        WriteBatch::new(self)
    }

    /// Opens a store for reading, also beside a process that writes it: it shows what had been written when it was opened,
    /// and what has come since after a [`Store::refresh`]. The same as [`Store::open`] with
    /// [`Options::read_only`](crate::Options::read_only).
    ///
    /// # Errors
    /// `state` when there is no store; `corrupt` when the log is damaged.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path, Options::default().read_only(true))
    }

    /// Takes in what its writer has written since a store was opened for reading, or since the last call. Gives the
    /// number of records. What a snapshot shows stays as it is.
    ///
    /// # Errors
    /// `corrupt` when the log is damaged; the store is closed then. `state` when a file cannot be read.
    pub fn refresh(&self) -> Result<u64> {
        if let Some(reason) = self.closed() {
            return Err(Cause::Closed { reason }.into());
        }
        self.0.refresh()
    }

    /// One instant of all tables. It blocks nobody and costs the number of chunks. While it is held, the space of values
    /// that it shows is not used again (see [`Store::pins`]).
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_for("snapshot")
    }

    /// As [`snapshot`](Store::snapshot), under the name by which [`Store::pins`] shows who holds it.
    pub fn snapshot_for(&self, owner: &str) -> Snapshot {
        let Options { clock, snapshot_age_max, .. } = &self.0.options;
        let (now, limit) =
            (clock.now(), snapshot_age_max.map(|age_max| AgeLimit { clock: clock.clone(), age_max }));
        let state = self.0.state.lock();
        let pin = self.0.extents.pins().take(state.commits, owner.into(), Some(now)).limited(limit);
        Snapshot::new(self.0.extents.clone(), Arc::new(pin), &state, &self.0.memory.holdings)
    }

    /// Accepts nothing more, and ends every wait: for a part of the process that cannot go on and must not leave the
    /// others waiting. What was acknowledged stays; open the store again to go on.
    pub fn close(&self, reason: &str) {
        let is_sound = self.0.check_writable("close it").is_ok();
        self.0.close(reason.to_owned());
        // What was acknowledged at `memory` may still be in the buffer. A store that a failure closed before writes nothing more.
        if is_sound && let Err(error) = self.0.log.flush_all() {
            tracing::warn!(%error, "the last records of the log could not be written");
        }
    }

    /// Brings everything that was acknowledged so far, at any level, to stable storage.
    ///
    /// # Errors
    /// `closed` when a sync fails: what is on stable storage is then not known, and opening the store again finds out.
    pub fn sync(&self) -> Result<()> {
        self.0.check_writable("sync it")?;
        self.0.sync_all()?;
        self.0.retire_due();
        Ok(())
    }

    /// What opening the store found, and what it gave up.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// Refuses a child of the process that opened the store: another thread of the parent may have held any lock of it when it
    /// forked. Every call that can fail asks; so does who has locks of his own before them.
    ///
    /// # Errors
    /// `state` in a forked child.
    pub fn check_process(&self) -> Result<()> {
        self.0.check_process()
    }

    /// Whether it was opened to be read only.
    pub fn is_read_only(&self) -> bool {
        self.0.options.read_only
    }

    /// Why the store accepts nothing more, if so.
    pub fn closed(&self) -> Option<String> {
        self.0.closed.get().cloned()
    }

    /// Takes a checkpoint: opening the store then replays what comes after it, and the log before it is removed. Blocks
    /// nobody for longer than it takes to note what there is; pages that have not changed since the last one are not
    /// written again. [`run_once`](Self::run_once) takes one when it is due ([`Options::checkpoint_records`]).
    ///
    /// # Errors
    /// `capacity` when the disk is full; the checkpoint before stays then, and so does the log.
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        self.0.checkpoint()
    }

    /// Does the background duties that are due, and says when to call again: cheap when there is nothing to do.
    ///
    /// Takes back the claims whose deadline has come (claiming does it too, so a store whose consumers are waited on
    /// needs nobody to call this for it), deletes what the retention rule no longer keeps ([`Options::retention`]),
    /// forgets groups of peers of which no row is left,
    /// takes a checkpoint when one is due ([`Options::checkpoint_records`]), and syncs what has been unsynced for
    /// [`Options::sync_interval`]. Lets go of memory before the budget is reached ([`Options::memory_bytes_max`]).
    /// Looks after the extents: those of versions that are over are sealed, thin ones evacuated, those that nobody
    /// needs made free. Objects that no rewind can need go; of those that are set and got
    /// ([`Store::objects`]) what nobody holds is brought to the disk when their memory is nearly full. `None`: not before something is written.
    ///
    /// # Errors
    /// The first one's of the duties that failed ([`Stats::duties_failed`](crate::Stats::duties_failed)). The others were done all the same, and while the store
    /// is not [closed](Self::closed) the next call tries again: on a full disk no checkpoint can be taken, and what retention and
    /// the extents' care give back makes room for it.
    pub fn run_once(&self) -> Result<Option<Timestamp>> {
        let mut sync = None;
        let next = self.duties(true, || {
            let covered = self.0.checkpoint_if_due().map(drop);
            let memory = self.0.tend_memory();
            let synced = self.0.sync_when_due().map(|due| sync = due);
            [covered, memory, synced]
        })?;
        Ok(next.into_iter().chain(sync).min())
    }

    /// As [`run_once`](Self::run_once), and leaves what waits for the disk to two other threads, of which one calls [`sync_if_due`](Self::sync_if_due)
    /// and the other [`checkpoint_if_due`](Self::checkpoint_if_due): a sync of a gigabyte and a checkpoint of millions of rows take a second
    /// each, in which nothing that is over would be made free. Called by itself it leaves everything unsynced at levels
    /// below `synced`.
    ///
    /// While extents come and go it asks to be called again 20 ms later, and frees what versions that are over leave behind each time, unless
    /// a version has to wait that a rewind may need; the rest has its turn every 200 ms.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub fn tend(&self) -> Result<Option<Timestamp>> {
        self.duties(self.0.is_due_for_all(), || [])
    }

    /// Syncs what has been unsynced for [`Options::sync_interval`], and says when to call again; `None`: not before something is written.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); what could not be done is counted as a duty that failed.
    pub fn sync_if_due(&self) -> Result<Option<Timestamp>> {
        self.0.check_writable("sync")?;
        self.counted(self.0.sync_when_due())
    }

    /// Takes a checkpoint if one is due ([`Options::checkpoint_records`]) and nobody is taking one, and lets go of memory before the budget
    /// is reached, which takes one too. Whether none is due any more: it is `false` while somebody else takes the one that is.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint); what could not be done is counted as a duty that failed.
    pub fn checkpoint_if_due(&self) -> Result<bool> {
        self.0.check_writable("take a checkpoint")?;
        let (covered, memory) = (self.0.checkpoint_if_due(), self.0.tend_memory());
        self.counted(covered.and_then(|covered| memory.map(|()| covered)))
    }

    /// What waits for nobody, with what one that does all duties has in its midst; all of it, or what comes and goes with versions alone.
    /// Gives when to call again for the former.
    fn duties<const OTHERS: usize>(
        &self,
        all: bool,
        others: impl FnOnce() -> [Result<()>; OTHERS],
    ) -> Result<Option<Timestamp>> {
        self.0.check_writable("look after it")?;
        let objects = || match self.0.objects_if_open().filter(|_| all) {
            Some(core) => Objects::new(self.clone(), core).run_once().map(drop),
            None => Ok(()),
        };
        let extents = || if all { self.0.tend_extents() } else { self.0.free_extents() };
        // In this order, each whatever came of those before it.
        let before = [self.0.expire().map(drop), self.apply_retention(all), self.0.forget_groups_when_due()];
        let others = others();
        let after = [self.0.prove_and_retire(), extents(), objects()];
        let outcomes = before.into_iter().chain(others).chain(after);
        // Each failure counts, and the first is told.
        outcomes.map(|outcome| self.counted(outcome)).fold(Ok(()), Result::and)?;
        let lease = self.0.state.lock().claims.next_deadline();
        Ok(lease.into_iter().chain(self.0.tend_again()).min())
    }

    /// Counts a duty that failed.
    fn counted<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|_| _ = self.0.duties_failed.fetch_add(1, Ordering::Relaxed))
    }
}
