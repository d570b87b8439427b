//! What all handles of one store share, and the one way in which a live store changes.
//!
//! # Threads and locks
//! Any number of threads call; the store starts none. One lock guards the state. Value bytes move before it is taken;
//! the log is written after it is let go; waiters are woken last.
//!
//! Order: `state`, then inside it the log's buffer. The log's file, the pool of value writers and the list of wake-ups
//! are leaves that are taken with none of the others held (the buffer, by the holder of the file).

use std::path::Path;
use std::sync::{Arc, OnceLock};

use event_listener::Event as WakeUp;
use parking_lot::{Mutex, RwLock};

use crate::directory::Directory;
use crate::error::{Cause, Error, Result};
use crate::extent::{Extents, ValueSource};
use crate::log;
use crate::log::record::{Event, Record, ReturnReason};
use crate::options::Options;
use crate::state::State;

/// What all handles of one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) directory: Arc<Directory>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) values: ValueSource,
    pub(crate) state: Mutex<State>,
    pub(crate) log: log::Writer,
    wake_ups: RwLock<Vec<Arc<WakeUp>>>,
    /// Why nothing more is accepted: the first failure of the log.
    pub(crate) closed: OnceLock<String>,
}

impl Shared {
    /// Opens the directory, replays its log, and takes the store over from the process before.
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self> {
        options.validate()?;
        let directory = Arc::new(Directory::open(path, &options)?);
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
        Ok(shared)
    }

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
    pub(crate) fn close(&self, reason: String) -> Error {
        tracing::error!(reason, "the store is closed");
        let reason = self.closed.get_or_init(|| reason).clone();
        self.wake_everyone();
        Cause::Closed { reason }.into()
    }

    /// The log could not be written: whoever comes to know of it first closes the store, all tell the same reason.
    fn close_after(&self, error: &Error) -> Error {
        match error.cause() {
            Cause::Closed { reason } => self.close(reason.clone()),
            _ => self.close(error.with_sources()),
        }
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
