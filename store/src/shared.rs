//! What all handles of one store share, and the one way in which a live store changes.
//!
//! # Threads and locks
//! Any number of threads call; the store starts none. One lock guards the state. Value bytes move before it is taken;
//! waiters are woken, and the log is written, and synced where the level asks for it, after it is let go.
//!
//! In which order locks are taken is written in [`Rank`], whose debug builds refuse another.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::checkpoint::{Checkpointer, Manifest};
use crate::clock::Timestamp;
use crate::consumer::Signals;
use crate::directory::Directory;
use crate::durability::Durability;
use crate::error::{Cause, Error, Result};
use crate::extent::{Extents, Pin, ValueSource, stored_bytes};
use crate::limits::Limits;
use crate::log::record::{Event, Record, ReturnReason};
use crate::log::{self, Appended, Named};
use crate::memory::Memory;
use crate::object::{Core, Puts};
use crate::options::Options;
use crate::process;
use crate::reader::Reading;
use crate::recovery::{RecoveryReport, Replayed, replay};
use crate::state::{Forgetting, Numbering, State};
use crate::step::Retiring;
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::sync::{BusyMutex, Event as WakeUp, Mutex, Rank};
use crate::unsynced::Unsynced;

/// When this much waits in the log's buffer, whoever adds to it hands it to the kernel, at any level.
const BUFFER_BYTES_MAX: usize = log::BUFFER_BYTES / 2;
/// The most bytes of values that a record carries.
const CARRIED_BYTES_MAX: usize = 4096;

/// What all handles of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    /// Of the options those that may change.
    pub(crate) limits: Limits,
    /// The process whose handles these are.
    opened_by: u32,
    pub(crate) directory: Arc<Directory>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) values: Arc<ValueSource>,
    pub(crate) state: BusyMutex<State>,
    pub(crate) log: log::Writer,
    /// What opening found.
    pub(crate) recovery: RecoveryReport,
    /// Files that records name, beside live extents.
    pub(crate) unsynced: Unsynced,
    /// Objects that were put and are not committed.
    pub(crate) puts: Puts,
    /// Objects that go once the commits that made them needless are durable.
    pub(crate) retiring: Retiring,
    pub(crate) duties_failed: AtomicU64,
    /// When the background duty last synced, in microseconds since the Unix epoch.
    synced_at: AtomicI64,
    /// When extents were last made free, in the same unit.
    pub(crate) freed_at: AtomicI64,
    /// When all duties that wait for nobody were last looked at, in the same unit.
    pub(crate) tended_at: AtomicI64,
    /// A version that retention is to retire has to wait, in some table.
    pub(crate) retention_waits: AtomicBool,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) numbering: Numbering,
    pub(crate) forgetting: Forgetting,
    pub(crate) memory: Memory,
    /// How many records there were when the store was open: what was emptied before lies below.
    pub(crate) opened_commits: u64,
    /// The name that short pins go by.
    reader: Arc<str>,
    /// Notified when extents come free.
    pub(crate) space_freed: WakeUp,
    /// What claimers look at and wait on.
    pub(crate) signals: Signals,
    /// Why nothing more is accepted: the first failure of the log.
    pub(crate) closed: OnceLock<String>,
    /// How far a store that is open for reading has come.
    pub(crate) reading: Mutex<Option<Reading>>,
    /// What is set and got, once somebody has asked for it.
    pub(crate) objects: Mutex<Option<Arc<Core>>>,
}

impl Shared {
    /// Opens the directory, replays its log, and takes the store over from the process before.
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self> {
        options.validate()?;
        let directory = Arc::new(Directory::open(path, &options)?);
        let manifest = Manifest::read(&directory)?;
        let checkpointer = Checkpointer::after(manifest.as_ref());
        // Before the files of values are mapped: a record's files are there before it is, and recovery may mend some.
        let Replayed { state, end, report: recovery, reading } = replay(&directory, &options, manifest)?;
        let extents =
            Arc::new(Extents::open(&directory, !options.read_only)?.checking_values(options.check_values));
        tracing::info!(path = %directory.path.display(), records = end.records, "store opened");
        extents.check(&state.liveness)?;
        let opened_commits = state.commits + u64::from(!options.read_only); // with the record of this opening
        let next_incarnation = state.incarnation + 1;
        let values =
            ValueSource::new(directory.clone(), extents.clone(), state.liveness.greatest(), &options);
        let values = Arc::new(values);
        let shared = Shared {
            opened_by: process::current(),
            log: log::Writer::new(directory.clone(), options.segment_bytes_max, &end, values.clone()),
            values,
            unsynced: Unsynced::new(&directory, recovery.checked || end.next_sequence == 0)?,
            puts: Puts::default(),
            recovery,
            retiring: Retiring::default(),
            duties_failed: AtomicU64::new(0),
            synced_at: AtomicI64::new(options.clock.now().0),
            freed_at: AtomicI64::new(i64::MIN),
            tended_at: AtomicI64::new(i64::MIN),
            retention_waits: AtomicBool::new(false),
            checkpointer,
            state: BusyMutex::ranked(Rank::State, state),
            numbering: Numbering::default(),
            forgetting: Forgetting::default(),
            memory: Memory::default(),
            closed: OnceLock::new(),
            reading: Mutex::ranked(Rank::Reading, reading),
            objects: Mutex::ranked(Rank::Objects, None),
            opened_commits,
            reader: "a call that reads".into(),
            space_freed: WakeUp::new(),
            limits: Limits::new(&options),
            options,
            directory,
            extents,
            signals: Signals::default(),
        };
        if !shared.options.read_only {
            let opened =
                Event::Opened { incarnation: next_incarnation, pid: shared.directory.disk.process() };
            // Also where nothing else waits for the kernel: the incarnation of this life is not given out again.
            shared.submit_at(shared.options.durability.max(Durability::Logged), |_| Ok((opened, ())))?;
        }
        Ok(shared)
    }

    /// Decides under the state's lock, applies, logs, and wakes. Acknowledged at the store's level.
    pub(crate) fn submit<T>(&self, decide: impl FnOnce(&State) -> Result<(Event, T)>) -> Result<T> {
        self.submit_at(self.options.durability, decide)
    }

    /// As [`submit`](Self::submit), acknowledged at a level of its own.
    pub(crate) fn submit_at<T>(
        &self,
        level: Durability,
        decide: impl FnOnce(&State) -> Result<(Event, T)>,
    ) -> Result<T> {
        self.submit_if_at(level, |state| decide(state).map(|(event, outcome)| (Some(event), outcome)))
    }

    /// As [`submit`](Self::submit), where there may turn out to be nothing to do.
    pub(crate) fn submit_if<T>(
        &self,
        decide: impl FnOnce(&State) -> Result<(Option<Event>, T)>,
    ) -> Result<T> {
        self.submit_if_at(self.options.durability, decide)
    }

    /// As [`submit_if`](Self::submit_if), for a lease that is given or given back.
    ///
    /// A lease ends with the process, whatever the log says of it, and what its holder makes of it is a record that comes
    /// after its own. So nothing is lost when nobody waits for the disk here, at any level: not for the lease's record, and
    /// not for what other threads have applied that it rests on.
    pub(crate) fn submit_lease<T>(
        &self,
        decide: impl FnOnce(&State) -> Result<(Option<Event>, T)>,
    ) -> Result<T> {
        self.submit_if_at(Durability::Memory, decide)
    }

    /// As [`submit_if`](Self::submit_if), acknowledged at a level of its own. The one way in which a live store changes.
    pub(crate) fn submit_if_at<T>(
        &self,
        level: Durability,
        decide: impl FnOnce(&State) -> Result<(Option<Event>, T)>,
    ) -> Result<T> {
        self.check_writable("change it")?;
        let mut state = self.state.lock();
        let (event, outcome) = decide(&state)?;
        let Some(event) = event else {
            // The answer may rest on what another thread has applied and not yet logged.
            drop(state);
            self.bring_all_to(level)?;
            return Ok(outcome);
        };
        let carried = if level == Durability::Synced { self.carry(&state, &event) } else { Vec::new() };
        let names_values = carried.is_empty() && state.values_named(&event).next().is_some();
        let names_files = names_values || event.objects().next().is_some();
        let record = Record { time: self.options.clock.now().0, event, carried };
        let frees_memory = record.event.frees_memory();
        let logged = self.log.append(&record, names_files, level);
        let applied = logged.and_then(|appended| {
            let effects = state.apply(record).map_err(|reason| self.accept_nothing_more(reason))?;
            self.signals.publish(&state, &effects);
            Ok((appended, effects))
        });
        drop(state); // before `outcome`, which may be a claim that gives itself back, and before anybody is woken
        let (appended, effects) = applied.inspect_err(|error| self.wake_if_closed(error))?;
        // Before the log is written: who is woken needs longer than that, and its own record comes after this one.
        self.signals.announce(&effects);
        drop(effects); // what is gone takes memory until then
        if frees_memory {
            self.memory_may_be_free();
        }
        self.bring_to(level, appended)?;
        Ok(outcome)
    }

    /// The bytes of values that are few enough to ride in the log, as they stand in their files; nothing otherwise. It
    /// saves the call a sync of those files.
    fn carry(&self, state: &State, event: &Event) -> Vec<u8> {
        let mut carried = Vec::new();
        for view in state.values_named(event) {
            if carried.len() + stored_bytes(view) > CARRIED_BYTES_MAX {
                return Vec::new();
            }
            let Ok((extent, offset)) = self.extents.locate(view) else { return Vec::new() };
            let Some(bytes) = extent.stable(offset, stored_bytes(view)) else { return Vec::new() };
            carried.extend_from_slice(bytes);
        }
        carried
    }

    /// Returns once a record is where its level wants it.
    fn bring_to(&self, level: Durability, appended: Appended) -> Result<()> {
        let brought = match level {
            Durability::Memory if appended.buffered_bytes < BUFFER_BYTES_MAX => Ok(()),
            Durability::Memory | Durability::Logged => self.log.flush(appended.sequence),
            Durability::Synced => self.log.sync(appended.sequence, &|named| self.sync_named(named)),
        };
        if appended.buffered_bytes >= BUFFER_BYTES_MAX {
            self.memory_may_be_free(); // the buffer may have let go of what it had grown by
        }
        brought.map_err(|error| self.close_after(&error))
    }

    /// As [`bring_to`](Self::bring_to), for everything that is there so far.
    pub(crate) fn bring_all_to(&self, level: Durability) -> Result<()> {
        match level {
            Durability::Memory => Ok(()),
            Durability::Logged => {
                self.log.promise_all();
                self.flush_all()
            }
            Durability::Synced => self.sync_all(),
        }
    }

    /// Hands everything to the kernel.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.log.flush_all().map_err(|error| self.close_after(&error))
    }

    /// Brings everything to stable storage.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.log.sync_all(&|named| self.sync_named(named)).map_err(|error| self.close_after(&error))
    }

    /// As [`sync_all`](Self::sync_all), and with the extents of values that records carry: nothing then rests on the log
    /// but the records themselves, and those of them that a checkpoint holds may go.
    pub(crate) fn sync_all_and_carried(&self) -> Result<()> {
        let outside = self.values.sync_written(&[]).and_then(|()| self.unsynced.sync(&self.directory));
        outside.inspect_err(|error| self.directory.doubt(error)).map_err(|error| self.close_after(&error))?;
        self.sync_all()
    }

    /// Makes stable what records name outside the log, but for what is over with them.
    fn sync_named(&self, named: Named) -> Result<()> {
        self.unsynced.sync(&self.directory)?;
        if named.values { self.values.sync_written(&self.over_before(named.before)) } else { Ok(()) }
    }

    /// Syncs when something has been unsynced for long enough, and says when the next sync is due. What is promised to nobody
    /// beyond this process goes to the kernel then, and no further.
    pub(crate) fn sync_when_due(&self) -> Result<Option<Timestamp>> {
        let interval = self.options.sync_interval;
        let wants_sync = self.wants_sync();
        if interval == Duration::MAX || !(wants_sync || self.log.is_unflushed()) {
            return Ok(None);
        }
        let last = Timestamp(self.synced_at.load(Ordering::Relaxed)); // before the clock: a later moment of somebody else's is no setback
        let (now, due) = (self.options.clock.now(), last.after(interval));
        if (last..due).contains(&now) {
            return Ok(Some(due)); // a clock may have gone back behind the last one: then it counts from now on
        }
        self.synced_at.store(now.0, Ordering::Relaxed);
        let done = if wants_sync { self.sync_all() } else { self.flush_all() };
        done.map(|()| None)
    }

    /// Whether what is unsynced is promised to somebody, or waited for. At `memory` nothing is but what calls of another level
    /// wrote, and objects that go with a commit.
    fn wants_sync(&self) -> bool {
        match self.options.durability {
            Durability::Memory => {
                self.log.is_promised_unsynced() || self.retiring.waits_for_sync(self.log.durable_through())
            }
            Durability::Logged | Durability::Synced => self.log.is_unsynced(),
        }
    }

    /// Holds back recycling while a caller reads what it has just looked up in the state.
    pub(crate) fn pin_reader(&self, state: &State) -> Pin {
        self.extents.pins().take(state.commits, self.reader.clone(), None)
    }

    /// Refuses a child that was forked: it has the handles, but not the threads that may hold their locks, and writes of
    /// its own would go where the parent's go.
    pub(crate) fn check_process(&self) -> Result<()> {
        let pid = process::current();
        if pid == self.opened_by {
            Ok(())
        } else {
            Err(Cause::Forked { opened_by: self.opened_by, pid }.into())
        }
    }

    pub(crate) fn check_writable(&self, verb: &'static str) -> Result<()> {
        self.check_process()?;
        if self.options.read_only {
            return Err(Cause::ReadOnly { path: self.directory.path.clone(), verb }.into());
        }
        match self.closed.get() {
            None => Ok(()),
            Some(reason) => Err(Cause::Closed { reason: reason.clone() }.into()),
        }
    }

    /// Nothing more is accepted: what is in memory may be ahead of the log. Called with no lock held.
    pub(crate) fn close(&self, reason: String) -> Error {
        let error = self.accept_nothing_more(reason);
        self.wake_everyone();
        error
    }

    /// As [`close`](Self::close), with the state locked: whoever waits is still to be woken.
    fn accept_nothing_more(&self, reason: String) -> Error {
        tracing::error!(reason, "the store is closed");
        let reason = self.closed.get_or_init(|| reason).clone();
        Cause::Closed { reason }.into()
    }

    fn wake_if_closed(&self, error: &Error) {
        if matches!(error.cause(), Cause::Closed { .. }) {
            self.wake_everyone();
        }
    }

    /// The log could not be written: whoever comes to know of it first closes the store, all tell the same reason.
    pub(crate) fn close_after(&self, error: &Error) -> Error {
        self.close(error.closing_reason())
    }

    pub(crate) fn wake_everyone(&self) {
        self.signals.wake_all();
        self.memory_may_be_free();
        self.objects_if_open().iter().for_each(|core| core.wake_all());
    }

    /// What is set and got, when somebody has asked for it.
    pub(crate) fn objects_if_open(&self) -> Option<Arc<Core>> {
        self.objects.lock().clone()
    }

    /// Whether a snapshot, a value or a buffer of this process may still be read.
    pub(crate) fn is_held(&self) -> bool {
        const OURS: usize = 2; // this one and the value writers'
        Arc::strong_count(&self.extents) > OURS || self.extents.is_any_held()
    }

    /// When the next lease ends.
    fn next_deadline(&self) -> Option<Timestamp> {
        self.signals.next_deadline()
    }

    /// When whoever begins to wait now looks again, so that a waiting claimer takes over from a dead one without anybody's
    /// help: when the next lease ends. One may be given while he sleeps and wake nobody; it ends no earlier than one that were given
    /// now, so he looks then at the latest. `None` where leases never end.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        let given_now = self.options.clock.now().after(self.options.lease);
        let next = self.next_deadline().map_or(given_now, |next| next.min(given_now));
        (next.0 != i64::MAX).then_some(next)
    }

    /// Returns leased claims whose deadline has come.
    pub(crate) fn expire(&self) -> Result<()> {
        self.expire_at(self.options.clock.now())
    }

    /// The same, where it is known what time it is. Takes no lock while no deadline has come.
    pub(crate) fn expire_at(&self, now: Timestamp) -> Result<()> {
        self.check_writable("take leases back")?;
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return Ok(());
        }
        self.submit_lease(|state| {
            let claims = state.decide_expiry(now);
            let event = (!claims.is_empty()).then(|| state.returning(claims, ReturnReason::Expired));
            Ok((event, ()))
        })
    }
}

impl Drop for Shared {
    /// What the level `memory` left in the buffer outlives an orderly end.
    fn drop(&mut self) {
        if self.check_process().is_ok()
            && self.closed.get().is_none()
            && let Err(error) = self.log.flush_all()
        {
            tracing::warn!(%error, "the last records of the log could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Weak;
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::{Consumer, DataType, MicroBatch, Schema, SimulatedDisk, Store};

    /// Looks whether the state is locked when it is woken.
    #[derive(Debug)]
    struct Woken {
        shared: Weak<Shared>,
        locked: Mutex<Vec<bool>>,
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let is_locked = self.shared.upgrade().is_some_and(|shared| shared.state.try_lock().is_none());
            self.locked.lock().push(is_locked);
        }
    }

    #[test]
    fn nobody_is_woken_with_the_state_locked_when_a_record_cannot_be_applied() {
        let store =
            Store::open("/store", Options::default().disk(Arc::new(SimulatedDisk::default()))).unwrap();
        let schema = Schema::new().data("reward", DataType::Float32);
        store.create_table("solver", schema).unwrap();
        let judge = store.create_consumer("judge", Consumer::task(["solver"])).unwrap();
        let woken = Arc::new(Woken { shared: Arc::downgrade(&store.0), locked: Mutex::default() });
        let waker = Waker::from(woken.clone());
        let mut claim = pin!(judge.claim_async(MicroBatch::of(1), "me").unwrap());
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let nonsense = store.0.submit(|_| Ok((Event::RankAccumulated { claim: 7, rank: 0 }, ())));
        assert!(matches!(nonsense.unwrap_err().cause(), Cause::Closed { .. }));
        assert!(store.closed().is_some());
        assert_eq!(*woken.locked.lock(), [false]);
    }
}
