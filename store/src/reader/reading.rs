//! How a store that is open for reading takes in what its writer writes.

use crate::directory::Directory;
use crate::error::{Error, Result};
use crate::log::record::Record;
use crate::log::{Follower, LogEnd};
use crate::shared::Shared;
use crate::state::State;

/// Records that are held at once while the log is followed.
const RECORDS_AT_ONCE: usize = 4096;

/// How far a reader has come.
#[derive(Debug)]
pub(crate) struct Reading {
    follower: Follower,
    /// What the reader's slot says.
    needs_from: u64,
}

impl Reading {
    /// Replays a log from record `from` on, as far as it goes. The slot that was taken before holds everything until then.
    pub(crate) fn begin(directory: &Directory, state: &mut State, from: u64) -> Result<Self> {
        let mut follower = Follower::from_record(from);
        while follower.follow(directory, RECORDS_AT_ONCE, |record| state.apply(record).map(drop))? > 0 {}
        directory.reads_from(state.commits)?;
        Ok(Reading { follower, needs_from: state.commits })
    }

    /// What the reader's slot says.
    pub(crate) fn needs_from(&self) -> u64 {
        self.needs_from
    }

    /// The segment and the offset in it up to which the log was read.
    pub(crate) fn place(&self) -> (u32, u64) {
        self.follower.place()
    }

    /// What was read so far.
    pub(crate) fn end(&self) -> LogEnd {
        self.follower.end()
    }
}

impl Shared {
    /// Takes in what was written since the last time. Gives the number of records; none for a store that is not open for
    /// reading only.
    pub(crate) fn refresh(&self) -> Result<u64> {
        let mut reading = self.reading.lock();
        let Some(reading) = &mut *reading else { return Ok(0) };
        let taken = self.take_in(reading)?;
        self.let_go(reading)?;
        Ok(taken)
    }

    /// Takes in what was written, and lets the slot hold what it held.
    pub(crate) fn take_in(&self, reading: &mut Reading) -> Result<u64> {
        let mut taken = 0;
        loop {
            let mut records = Vec::new();
            let read = reading.follower.follow(&self.directory, RECORDS_AT_ONCE, |record| {
                records.push(record);
                Ok(())
            });
            if read.map_err(|error| self.close_reading(&error))? == 0 {
                break;
            }
            taken += records.len() as u64;
            // Before the records are shown, so that whoever sees a view can read its value.
            self.extents.take_in(&self.directory).map_err(|error| self.close_reading(&error))?;
            self.show(records)?;
        }
        Ok(taken)
    }

    fn show(&self, records: Vec<Record>) -> Result<()> {
        for record in records {
            let effects = {
                let mut state = self.state.lock();
                let effects = state.apply(record).map_err(|reason| self.close(reason))?;
                self.signals.publish(&state, &effects);
                effects
            };
            self.signals.announce(&effects);
        }
        Ok(())
    }

    /// Moves the slot on to what is shown now, if nobody in this process holds anything that was shown before.
    fn let_go(&self, reading: &mut Reading) -> Result<()> {
        let state = self.state.lock(); // nobody takes a snapshot in between
        if state.commits == reading.needs_from || self.is_held() {
            return Ok(());
        }
        self.directory.reads_from(state.commits)?;
        reading.needs_from = state.commits;
        Ok(())
    }

    fn close_reading(&self, error: &Error) -> Error {
        self.close(error.with_sources())
    }
}
