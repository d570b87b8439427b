//! The store: one run, with all its tables, policies and objects.
//!
//! What is here is the list of what one can ask of a store; [`shared`](crate::shared) is how it is done. What an operator asks is in
//! [`operated`].

mod operated;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::WriteBatch;
use crate::checkpoint::CheckpointReport;
use crate::claim::ClaimInfo;
use crate::clock::{Clock, Timestamp};
use crate::consumer::{Consumer, ConsumerHandle};
use crate::durability::Durability;
use crate::error::{Cause, Error, Result};
use crate::extent::{ExtentInfo, PinInfo};
use crate::local::LentExtent;
use crate::log::record::{ColumnRecord, Event, PlanRecord};
use crate::object::{self, Core, ObjectPut, ObjectReader, ObjectRef, ObjectStats, Objects, Unnamed};
use crate::options::Options;
use crate::policy::{Policy, PolicyInfo};
use crate::recovery::RecoveryReport;
use crate::schema::{Schema, check_name};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::state::{ConsumerInfo, State, check_planned, declare, unknown};
use crate::stats::Stats;
use crate::step::{Step, StepInfo, StepPlan};
use crate::sync::atomic::Ordering;
use crate::table::Table;

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

    /// Creates a policy that stands at `version`, held by `objects`. Creating a table without one creates a policy of
    /// the table's name at version 0.
    /// It is volatile; see [`Store::declare_policy`] for one whose commits have to name the trainer's state.
    pub fn create_policy(&self, name: &str, version: u64, objects: &[ObjectRef]) -> Result<()> {
        self.declare_policy(name, Policy::volatile().version(version).objects(objects))
    }

    /// Creates a policy as it is declared.
    ///
    /// # Errors
    /// `input` when one of that name exists, or it is named by an object that is not there.
    pub fn declare_policy(&self, name: &str, policy: Policy) -> Result<()> {
        check_name("policy", name)?;
        policy.state_keys.iter().try_for_each(|key| check_name("object", key))?;
        policy.objects.iter().try_for_each(|object| self.0.puts.check(&self.0.directory, object))?;
        self.0.submit(|state| {
            if state.policy_named(name).is_some() {
                return Err(Cause::Exists { what: "policy", name: name.to_owned() }.into());
            }
            let Policy { version, objects, state_keys } = &policy;
            objects.iter().try_for_each(|object| self.0.puts.check_still(&self.0.directory, object))?;
            let objects = objects.iter().map(ObjectRef::record).collect();
            let (name, state_keys) = (name.to_owned(), state_keys.clone());
            Ok((Event::PolicyCreated { name, version: *version, objects, state_keys }, ()))
        })
    }

    /// Creates a table, and its policy when there is none of that name yet.
    ///
    /// # Errors
    /// `input` when a table of that name exists, or the schema breaks a limit or a name rule.
    pub fn create_table(&self, name: &str, schema: Schema) -> Result<Table> {
        check_name("table", name)?;
        schema.validate()?;
        let policy = schema.policy_name().unwrap_or(name).to_owned();
        let taken = |state: &State| state.table_named(name).is_some();
        let exists = || Error::from(Cause::Exists { what: "table", name: name.to_owned() });
        let known = {
            let state = self.0.state.lock();
            if taken(&state) {
                return Err(exists());
            }
            state.policy_named(&policy).is_some()
        };
        if !known
            && let Err(error) = self.create_policy(&policy, 0, &[])
            && !matches!(error.cause(), Cause::Exists { .. })
        {
            return Err(error); // one that exists now was created by another thread
        }
        self.0.submit(|state| {
            if taken(state) {
                return Err(exists());
            }
            let columns = schema.data_columns().iter().map(ColumnRecord::new).collect();
            let policy = state.policy_named(&policy).unwrap_or_default() as u32;
            Ok((Event::TableCreated { name: name.to_owned(), policy, columns }, ()))
        })?;
        self.table(name)
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state
            .table_named(name)
            .ok_or_else(|| unknown("table", name, state.tables.iter().map(|table| &*table.name)))?;
        let table = &state.tables[index];
        Ok(Table::new(self.clone(), table))
    }

    /// The names of all tables, in the order of their creation.
    pub fn tables(&self) -> Vec<String> {
        self.0.state.lock().tables.iter().map(|table| table.name.to_string()).collect()
    }

    /// Declares a consumer. Rows that are there already are indexed for it at once.
    ///
    /// # Errors
    /// `input` when one of that name exists, a table or column is unknown, a table already has a trainer, or a group
    /// has no members.
    pub fn create_consumer(&self, name: &str, consumer: Consumer) -> Result<ConsumerHandle> {
        check_name("consumer", name)?;
        self.0.submit(|state| {
            if state.consumer_named(name).is_some() {
                return Err(Cause::Exists { what: "consumer", name: name.to_owned() }.into());
            }
            let declaration = declare(state, &consumer)?;
            Ok((Event::ConsumerCreated { name: name.to_owned(), declaration }, ()))
        })?;
        self.consumer(name)
    }

    /// The consumer of that name.
    pub fn consumer(&self, name: &str) -> Result<ConsumerHandle> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state.consumer_named(name).ok_or_else(|| {
            unknown("consumer", name, state.consumers.iter().map(|consumer| &*consumer.name))
        })?;
        let kind = state.consumers[index].kind;
        Ok(ConsumerHandle::new(self.clone(), index, name.to_owned(), kind))
    }

    /// The policy of that name.
    pub fn policy(&self, name: &str) -> Result<PolicyInfo> {
        self.0.check_process()?;
        let state = self.0.state.lock();
        let index = state
            .policy_named(name)
            .ok_or_else(|| unknown("policy", name, state.policies.iter().map(|policy| &*policy.name)))?;
        Ok(PolicyInfo::from(&state.policies[index]))
    }

    /// Begins a step. At most one is open at a time.
    ///
    /// # Errors
    /// `state` when a step is open, or the plan names a consumer that is not a trainer, or groups for one that takes rows;
    /// `input` when it names a consumer twice.
    pub fn begin_step(&self, plan: StepPlan) -> Result<Step> {
        let now = self.0.options.clock.now();
        let number = self.0.submit(|state| {
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
            Ok((Event::StepBegun { step, plan }, step))
        })?;
        Ok(Step::new(self.clone(), number))
    }

    /// The step of that number, which somebody has begun and has open: for ranks of a gang that do not hold it. It is not given
    /// up when this handle is dropped.
    ///
    /// # Errors
    /// `state` when no step of that number is open.
    pub fn step(&self, number: u64) -> Result<Step> {
        match self.0.state.lock().open_step() == Some(number) {
            true => Ok(Step::of_another(self.clone(), number)),
            false => Err(Cause::StepClosed { step: number }.into()),
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

    /// Writes one version of an object, whole. It is part of the store once a step's commit names it.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `input` when the key is not a legal name, or when a step that stands names this
    /// version of the object with other bytes, also one that was committed while these were written.
    pub fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        self.0.check_writable("write objects")?;
        let there = self.0.state.lock().committed_object(key, version).cloned();
        match there {
            Some(there) if there != ObjectRef::of(key, version, payload) => {
                return Err(exists(key, version));
            }
            Some(there) if object::check(&self.0.directory, &there).is_ok() => return Ok(there),
            Some(_) => {} // retired, and wanted again
            None => self.check_unset(key, version)?,
        }
        let mut unnamed = self.0.puts.begin(&self.0.directory, (key, version))?;
        unnamed.append(payload)?;
        self.finish_put(unnamed)
    }

    /// As [`put_object`](Self::put_object), in parts: for an object that is not in memory as a whole.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `input` when the key is not a legal name, or the version was set.
    pub fn begin_put(&self, key: &str, version: u64) -> Result<ObjectPut> {
        self.0.check_writable("write objects")?;
        let is_named = self.0.state.lock().committed_object(key, version).is_some();
        if !is_named {
            self.check_unset(key, version)?;
        }
        Ok(ObjectPut::new(self.clone(), self.0.puts.begin(&self.0.directory, (key, version))?))
    }

    /// Gives a version that was written its name, unless its file is there already under it.
    pub(crate) fn finish_put(&self, unnamed: Unnamed) -> Result<ObjectRef> {
        let ObjectRef { key, version, .. } = unnamed.object().clone();
        let there = self.0.state.lock().committed_object(&key, version).cloned();
        // A file that was synced is not replaced by one that was not.
        if let Some(there) = there.filter(|there| there == unnamed.object())
            && object::check(&self.0.directory, &there).is_ok()
        {
            return Ok(there);
        }
        let object = self.name_put(unnamed)?;
        self.0.unsynced.note(object::path_of(&self.0.directory, &object));
        Ok(object)
    }

    /// Gives a version that was written its name, unless a step has come to name the version with other bytes meanwhile.
    fn name_put(&self, unnamed: Unnamed) -> Result<ObjectRef> {
        let ObjectRef { key, version, .. } = unnamed.object().clone();
        loop {
            let settled = self.0.settle_undone(&key, version)?;
            let state = self.0.state.lock();
            if state.committed_object(&key, version).is_some_and(|there| there != unnamed.object()) {
                return Err(exists(&key, version));
            }
            if settled || !state.was_named(&key, version) {
                return self.0.puts.name(unnamed);
            }
        }
    }

    /// Refuses a version that was set, which never changes.
    pub(crate) fn check_unset(&self, key: &str, version: u64) -> Result<()> {
        check_name("object", key)?;
        let path = object::path_in(&self.0.directory.objects(), key, version);
        let is_set = match self.0.objects_if_open() {
            Some(core) => !core.take_number(key, version, path),
            None => object::check_ours(&*self.0.directory.disk, &path)?,
        };
        if is_set {
            return Err(exists(key, version));
        }
        Ok(())
    }

    /// The objects that are set and got. What earlier processes have left of them is found out by the first call.
    ///
    /// # Errors
    /// `state` when the store is read only (see [`object_reader`](Self::object_reader)); `input` when
    /// [`ObjectOptions`](crate::ObjectOptions) do not fit together.
    pub fn objects(&self) -> Result<Objects> {
        self.0.check_writable("set and lease objects, or read them with `Store::object_reader`")?;
        let mut opened = self.0.objects.lock();
        let is_first = opened.is_none();
        let core = match &*opened {
            Some(core) => core.clone(),
            None => opened.insert(Core::open(&self.0.directory, &self.0.options)?).clone(),
        };
        drop(opened);
        let objects = Objects::new(self.clone(), core);
        if is_first {
            objects.bury_deleted();
        }
        Ok(objects)
    }

    /// The objects that are set, for whoever only reads, also beside the process that sets them: each version as a copy of its
    /// own, or as a file that stays open. It sees what was committed when it looks, without a [`refresh`](Self::refresh): the
    /// files of the disk tier, and the host tier where this machine's process has a folder for it and this store was opened with
    /// the same [`HostFolder`](crate::HostFolder).
    ///
    /// ```
    /// # use forebay_store::*;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let host = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    /// let options = Options::default().objects(host);
    /// let store = Store::open(dir.path().join("store"), options.clone())?;
    /// let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[3], bytes: &[1, 2, 3] };
    /// store.objects()?.set("solver", &[bytes])?;
    /// // In another process:
    /// let beside = Store::open(dir.path().join("store"), options.read_only(true))?;
    /// let solver = beside.object_reader()?.newest("solver")?;
    /// assert_eq!((solver.version(), solver.tensor("w")?), (1, vec![1, 2, 3]));
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `state` in a forked child.
    pub fn object_reader(&self) -> Result<ObjectReader> {
        self.0.check_process()?;
        Ok(ObjectReader::new(self.0.directory.clone(), self.0.options.objects.host_folder.clone()))
    }

    /// What its objects have done since it was opened; `None` where nobody has asked for them yet.
    pub fn object_stats(&self) -> Option<ObjectStats> {
        let core = self.0.objects.lock().clone()?;
        Some(Objects::new(self.clone(), core).stats())
    }

    /// Reads an object, every byte checked.
    pub fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        object::read(&self.0.directory, object)
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
        let now = self.0.options.clock.now();
        let state = self.0.state.lock();
        let pin = self.0.extents.pins().take(state.commits, owner.into(), Some(now));
        Snapshot::new(self.0.extents.clone(), Arc::new(pin), &state, &self.0.memory.holdings)
    }

    /// Who holds back the space of values that are no longer part of any table, the greatest first.
    pub fn pins(&self) -> Vec<PinInfo> {
        self.0.pins()
    }

    /// How the store was opened: each setting by the name of its method of [`Options`], times in milliseconds; `None` for
    /// a limit that is not set. Budgets and retention are those that hold now.
    pub fn settings(&self) -> Vec<(&'static str, Option<String>)> {
        self.0.options.shown(&self.0.limits)
    }

    /// Every extent that may hold something to read, with what is live in it.
    pub fn extents(&self) -> Vec<ExtentInfo> {
        self.0.show_extents()
    }

    /// Every live claim, and the last ones that ended.
    pub fn claims(&self) -> Vec<ClaimInfo> {
        self.0.state.lock().show_claims()
    }

    /// Every step.
    pub fn steps(&self) -> Vec<StepInfo> {
        self.0.state.lock().show_steps()
    }

    /// Every policy.
    pub fn policies(&self) -> Vec<PolicyInfo> {
        self.0.state.lock().show_policies()
    }

    /// Every consumer, once for each of its tables.
    pub fn consumers(&self) -> Vec<ConsumerInfo> {
        self.0.state.lock().show_consumers()
    }

    /// Accepts nothing more, and ends every wait: for a part of the process that cannot go on and must not leave the
    /// others waiting. What was acknowledged stays; open the store again to go on.
    pub fn close(&self, reason: &str) {
        self.0.close(reason.to_owned());
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
    /// forked. Every call asks; so does who has locks of his own before them.
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

    /// Counters since the store was opened.
    pub fn stats(&self) -> Stats {
        let (extents, extent_bytes) = self.0.extents.totals();
        let commits = self.0.state.lock().commits;
        Stats {
            commits,
            log_bytes: self.0.log.bytes(),
            syncs: self.0.log.syncs(),
            durable_commits: self.0.log.durable_through(),
            value_bytes_written: self.0.values.written_bytes(),
            value_reads: self.0.extents.value_reads(),
            extents: extents as u64,
            extent_bytes,
            memory_bytes: self.0.memory_bytes(),
            free_extent_bytes: self.0.values.free_bytes(),
            extents_recycled: self.0.values.recycled(),
            duties_failed: self.0.duties_failed.load(Ordering::Relaxed),
        }
    }

    /// Does the background duties that are due, and says when to call again: cheap when there is nothing to do.
    ///
    /// Takes back the claims whose deadline has come (claiming does it too, so a store whose consumers are waited on
    /// needs nobody to call this for it), deletes what the retention rule no longer keeps ([`Options::retention`]),
    /// takes a checkpoint when one is due ([`Options::checkpoint_records`]), and syncs what has been unsynced for
    /// [`Options::sync_interval`]. Lets go of memory before the budget is reached ([`Options::memory_bytes_max`]).
    /// Looks after the extents: those of versions that are over are sealed, thin ones evacuated, those that nobody
    /// needs made free. Objects that no rewind can need go; of those that are set and got
    /// ([`Store::objects`]) what nobody holds is brought to the disk when their memory is nearly full. `None`: not before something is written.
    ///
    /// # Errors
    /// The first one's of the duties that failed ([`Stats::duties_failed`]). The others were done all the same, and while the store
    /// is not [closed](Self::closed) the next call tries again: on a full disk no checkpoint can be taken, and what retention and
    /// the extents' care give back makes room for it.
    pub fn run_once(&self) -> Result<Option<Timestamp>> {
        self.0.check_writable("look after it")?;
        let mut sync = None;
        let objects = || match self.0.objects_if_open() {
            Some(core) => Objects::new(self.clone(), core).run_once().map(drop),
            None => Ok(()),
        };
        // In this order, each whatever came of those before it.
        let outcomes = [
            self.0.expire().map(drop),
            self.apply_retention().map(drop),
            self.0.checkpoint_if_due(),
            self.0.tend_memory().map(drop),
            self.0.sync_when_due().map(|due| sync = due),
            self.0.prove_and_retire(),
            self.0.tend_extents().map(drop),
            objects(),
        ];
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        self.0.duties_failed.fetch_add(failed as u64, Ordering::Relaxed);
        outcomes.into_iter().collect::<Result<()>>()?;
        let lease = self.0.state.lock().claims.next_deadline();
        Ok(lease.into_iter().chain(sync).min())
    }
}

/// A version of an object is there, with other bytes than are to be put.
pub(crate) fn exists(key: &str, version: u64) -> Error {
    Cause::Exists { what: "object", name: format!("{key} version {version}") }.into()
}
