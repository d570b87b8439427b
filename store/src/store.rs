//! The store: one run, with all its tables, policies and objects.
//!
//! # Threads and locks
//! Any number of threads call; the store starts none. One lock guards the state. Value bytes move before it is taken;
//! the log is written after it is let go; waiters are woken last.
//!
//! Order: `state`, then inside it the log's buffer. The log's file, the pool of value writers and the list of wake-ups
//! are leaves that are taken with none of the others held (the buffer, by the holder of the file).

use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;

use event_listener::Event as WakeUp;
use parking_lot::{Mutex, RwLock};

use crate::batch::WriteBatch;
use crate::claim::ClaimInfo;
use crate::clock::{Clock, Timestamp};
use crate::consumer::{Consumer, ConsumerHandle, ConsumerKind, GroupBy};
use crate::directory::Directory;
use crate::error::{Cause, Error, Result};
use crate::extent::{Extents, ValueSource};
use crate::log;
use crate::log::record::{ColumnRecord, ConsumerRecord, Event, PlanRecord, Record, ReturnReason};
use crate::object::{self, ObjectRef};
use crate::options::Options;
use crate::policy::PolicyInfo;
use crate::schema::{Schema, check_name, nearest};
use crate::snapshot::Snapshot;
use crate::state::{ConsumerInfo, State};
use crate::stats::Stats;
use crate::step::{Step, StepInfo, StepPlan};
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

/// What all handles of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) directory: Arc<Directory>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) values: ValueSource,
    pub(crate) state: Mutex<State>,
    log: log::Writer,
    wake_ups: RwLock<Vec<Arc<WakeUp>>>,
    /// Why nothing more is accepted: the first failure of the log.
    closed: OnceLock<String>,
}

impl Store {
    /// Opens the store in a directory, and creates it where there is none (see [`Options::create`]).
    ///
    /// Opening replays the log. Claims of the process before are ended and their rows can be claimed again.
    ///
    /// # Errors
    /// `state` when another process writes the store (its pid is named), when the directory holds something else or
    /// another format version; `corrupt` with file and offset when stored bytes are damaged; nothing is changed then.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        options.validate()?;
        let directory = Arc::new(Directory::open(path.as_ref(), &options)?);
        let extents = Arc::new(Extents::open(&directory)?);
        let mut state = State::new(options.claims_kept);
        let end = log::read(&directory, |_, record| state.apply(record).map(drop))?;
        if end.torn_bytes > 0 {
            tracing::warn!(
                bytes = end.torn_bytes,
                "an append that was never acknowledged was cut short and is passed over"
            );
        }
        tracing::info!(path = %directory.path.display(), records = end.records, "store opened");
        let wake_ups = RwLock::new(state.consumers.iter().map(|_| Arc::default()).collect());
        let next_incarnation = state.incarnation + 1;
        let shared = Shared {
            values: ValueSource::new(
                directory.clone(),
                extents.clone(),
                options.extent_bytes_first,
                options.extent_bytes_max,
            ),
            log: log::Writer::new(
                directory.clone(),
                options.segment_bytes_max,
                end.last_segment,
                end.next_sequence,
            ),
            state: Mutex::new(state),
            closed: OnceLock::new(),
            options,
            directory,
            extents,
            wake_ups,
        };
        if !shared.options.read_only {
            let opened = Event::Opened { incarnation: next_incarnation, pid: std::process::id() };
            shared.submit(|_| Ok((opened, ())))?;
        }
        Ok(Store(Arc::new(shared)))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0.directory.path
    }

    /// The clock that the store was opened with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.options.clock
    }

    /// Creates a policy that stands at `version`, held by `objects`. Creating a table without one creates a policy of
    /// the table's name at version 0.
    pub fn create_policy(&self, name: &str, version: u64, objects: &[ObjectRef]) -> Result<()> {
        check_name("policy", name)?;
        self.0.submit(|state| {
            if state.policy_named(name).is_some() {
                return Err(Cause::Exists { what: "policy", name: name.to_owned() }.into());
            }
            let objects = objects.iter().map(ObjectRef::record).collect();
            Ok((Event::PolicyCreated { name: name.to_owned(), version, objects }, ()))
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
            let columns =
                schema.data_columns().iter().map(|c| ColumnRecord::new(&c.name, &c.data_type)).collect();
            let policy = state.policy_named(&policy).unwrap_or_default() as u32;
            Ok((Event::TableCreated { name: name.to_owned(), policy, columns }, ()))
        })?;
        self.table(name)
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Result<Table> {
        let state = self.0.state.lock();
        let index = state
            .table_named(name)
            .ok_or_else(|| unknown("table", name, state.tables.iter().map(|table| &*table.name)))?;
        let table = &state.tables[index];
        Ok(Table::new(self.clone(), table.id, table.name.clone(), table.schema.clone()))
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
        let state = self.0.state.lock();
        let index = state.consumer_named(name).ok_or_else(|| {
            unknown("consumer", name, state.consumers.iter().map(|consumer| &*consumer.name))
        })?;
        let kind = state.consumers[index].kind;
        Ok(ConsumerHandle::new(self.clone(), index, name.to_owned(), kind))
    }

    /// The policy of that name.
    pub fn policy(&self, name: &str) -> Result<PolicyInfo> {
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
        let number = self.0.submit(|state| {
            if let Some(step) = state.open_step() {
                let since = state.steps[&step].begun_at.to_string();
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

    /// Starts a batch of changes, over any tables, that happen all or not at all.
    pub fn batch(&self) -> WriteBatch<'_> {
        WriteBatch::new(self)
    }

    /// Writes one version of an object, whole. It is part of the store once a step's commit names it.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `input` when the key is not a legal name, or when a policy stands on this version
    /// of the object with other bytes.
    pub fn put_object(&self, key: &str, version: u64, payload: &[u8]) -> Result<ObjectRef> {
        self.0.check_writable("write objects")?;
        if let Some(there) = self.committed_object(key, version) {
            if there == ObjectRef::of(key, version, payload) {
                return Ok(there);
            }
            return Err(Cause::Exists { what: "object", name: format!("{key} version {version}") }.into());
        }
        object::write(&self.0.directory, key, version, payload)
    }

    fn committed_object(&self, key: &str, version: u64) -> Option<ObjectRef> {
        let state = self.0.state.lock();
        let objects = state.policies.iter().flat_map(|policy| &policy.objects);
        objects.clone().find(|object| object.key == key && object.version == version).cloned()
    }

    /// Reads an object, every byte checked.
    pub fn object(&self, object: &ObjectRef) -> Result<Vec<u8>> {
        object::read(&self.0.directory, object)
    }

    /// One instant of all tables. It blocks nobody and costs the number of chunks.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.0.state.lock();
        Snapshot::new(self.0.extents.clone(), &state)
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

    /// Why the store accepts nothing more, if so.
    pub fn closed(&self) -> Option<String> {
        self.0.closed.get().cloned()
    }

    /// Counters since the store was opened.
    pub fn stats(&self) -> Stats {
        let (extents, extent_bytes) = self.0.extents.totals();
        let commits = self.0.state.lock().commits;
        Stats {
            commits,
            log_bytes: self.0.log.bytes(),
            value_bytes_written: self.0.values.written_bytes(),
            value_reads: self.0.extents.value_reads(),
            extents: extents as u64,
            extent_bytes,
        }
    }

    /// Takes back the claims whose deadline has come, and says when to call again: a background duty that costs nothing
    /// when there is nothing to do. Claiming does it too, so a store whose consumers are waited on needs nobody to call
    /// this.
    pub fn run_once(&self) -> Result<Option<Timestamp>> {
        self.0.expire()?;
        Ok(self.0.state.lock().claims.next_deadline())
    }
}

impl Shared {
    /// Decides under the state's lock, applies, logs, and wakes.
    pub(crate) fn submit<T>(&self, decide: impl FnOnce(&State) -> Result<(Event, T)>) -> Result<T> {
        self.submit_if(|state| decide(state).map(|(event, outcome)| (Some(event), outcome)))
    }

    /// As [`submit`](Self::submit), where there may turn out to be nothing to do. The one way in which a live store
    /// changes.
    pub(crate) fn submit_if<T>(
        &self,
        decide: impl FnOnce(&State) -> Result<(Option<Event>, T)>,
    ) -> Result<T> {
        self.check_writable("change it")?;
        let mut state = self.state.lock();
        let (event, outcome) = decide(&state)?;
        let Some(event) = event else {
            // The answer may rest on what another thread has applied and not yet logged.
            drop(state);
            self.log.flush_all().map_err(|error| self.close_after(&error))?;
            return Ok(outcome);
        };
        let record = Record { time: self.options.clock.now().0, event };
        let logged = self.log.append(&record);
        let applied = logged.and_then(|sequence| {
            let effects = state.apply(record).map_err(|reason| self.close(reason))?;
            Ok((sequence, effects))
        });
        drop(state); // before `outcome`, which may be a claim that gives itself back
        let (sequence, effects) = applied?;
        self.log.flush(sequence).map_err(|error| self.close_after(&error))?;
        self.wake(&effects.wake);
        Ok(outcome)
    }

    pub(crate) fn check_writable(&self, verb: &'static str) -> Result<()> {
        if self.options.read_only {
            return Err(Cause::ReadOnly { path: self.directory.path.clone(), verb }.into());
        }
        match self.closed.get() {
            None => Ok(()),
            Some(reason) => Err(Cause::Closed { reason: reason.clone() }.into()),
        }
    }

    /// Nothing more is accepted: what is in memory may be ahead of the log.
    fn close(&self, reason: String) -> Error {
        tracing::error!(reason, "the store is closed");
        let reason = self.closed.get_or_init(|| reason).clone();
        self.wake_everyone();
        Cause::Closed { reason }.into()
    }

    fn close_after(&self, error: &Error) -> Error {
        use std::error::Error as _;
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        self.close(format!("{error}{source}"))
    }

    pub(crate) fn wake_up(&self, consumer: usize) -> Arc<WakeUp> {
        let mut wake_ups = self.wake_ups.write();
        if wake_ups.len() <= consumer {
            wake_ups.resize_with(consumer + 1, Arc::default);
        }
        wake_ups[consumer].clone()
    }

    fn wake(&self, consumers: &[usize]) {
        let wake_ups = self.wake_ups.read();
        for wake_up in consumers.iter().filter_map(|&consumer| wake_ups.get(consumer)) {
            wake_up.notify(usize::MAX);
        }
    }

    pub(crate) fn wake_everyone(&self) {
        self.wake_ups.read().iter().for_each(|wake_up| {
            wake_up.notify(usize::MAX);
        });
    }

    /// Returns leased claims whose deadline has come.
    pub(crate) fn expire(&self) -> Result<()> {
        let now = self.options.clock.now();
        self.submit_if(|state| {
            let claims = state.decide_expiry(now);
            let event =
                (!claims.is_empty()).then_some(Event::Returned { claims, why: ReturnReason::Expired });
            Ok((event, ()))
        })
    }
}

fn unknown<'a>(what: &'static str, name: &str, names: impl Iterator<Item = &'a str>) -> Error {
    Cause::Unknown { what, name: name.to_owned(), close: nearest(name, names) }.into()
}

/// Resolves the names of a consumer's declaration.
fn declare(state: &State, consumer: &Consumer) -> Result<ConsumerRecord> {
    let argument = |reason: String| Error::from(Cause::Argument { what: "consumer", reason });
    if consumer.tables.is_empty() {
        return Err(argument("it reads no table; name at least one".into()));
    }
    if consumer.group.is_some_and(|(_, members)| members == 0) {
        return Err(argument("a group of 0 members is never complete; give at least 1".into()));
    }
    let (mut tables, mut required) = (Vec::new(), Vec::new());
    for (at, name) in consumer.tables.iter().enumerate() {
        if consumer.tables[..at].contains(name) {
            return Err(argument(format!("it names table {name:?} twice")));
        }
        let index = state
            .table_named(name)
            .ok_or_else(|| unknown("table", name, state.tables.iter().map(|t| &*t.name)))?;
        let table = &state.tables[index];
        if table.consumers.len() >= CONSUMERS_MAX {
            return Err(
                Cause::TooMany { what: "consumers", limit: CONSUMERS_MAX, found: CONSUMERS_MAX + 1 }.into()
            );
        }
        if consumer.kind == ConsumerKind::Trainer && table.trainer.is_some() {
            return Err(argument(format!("table {name:?} has a trainer already; a row is trained on once")));
        }
        let mask = consumer
            .ready
            .iter()
            .try_fold(0, |mask, c| Ok::<_, Error>(mask | 1 << table.schema.index_of(c)?))?;
        tables.push(table.id);
        required.push(mask);
    }
    Ok(ConsumerRecord {
        trainer: consumer.kind == ConsumerKind::Trainer,
        tables,
        required,
        group: GroupBy::tag(consumer.group.map(|(by, _)| by)),
        group_size: consumer.group.map_or(0, |(_, members)| members),
    })
}

/// The most consumers that a table may have.
const CONSUMERS_MAX: usize = 16;

fn check_planned(state: &State, consumer: usize, groups: &[String], twice: bool) -> Result<()> {
    let planned = state.consumers.get(consumer).filter(|_| !twice).ok_or_else(|| {
        let reason = format!("consumer number {consumer} is named twice or is not of this store");
        Cause::Argument { what: "plan", reason }
    })?;
    let refuse = |hint| {
        let (consumer, found) = (planned.name.to_string(), planned.kind.as_str());
        Err(Cause::ConsumerKind { consumer, found, hint }.into())
    };
    if planned.kind != ConsumerKind::Trainer {
        return refuse("only a trainer takes part in steps; claim from a task directly");
    }
    if !groups.is_empty() && planned.group.is_none() {
        return refuse("it takes single rows; plan a number of rows instead of groups");
    }
    Ok(())
}
