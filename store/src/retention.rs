//! Retention: which rows go by themselves, and when.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::durability::Durability;
use crate::error::Result;
use crate::log::record::DeleteRecord;
use crate::state::{NeededByRewind, State, runs_of};
use crate::step::StepProgress;
use crate::store::Store;

/// Which rows are deleted by [`Store::run_once`]. Default: none, ever.
///
/// A row that somebody holds, or that a rewind may need, is never deleted by a rule: whoever keeps more states to go back
/// to keeps more rows.
///
/// ```
/// use std::time::Duration;
/// use forebay_store::Retention;
/// let retention = Retention::default().versions(4).consumed_for(Duration::from_secs(3600));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    versions: Option<u64>,
    consumed_for: Option<Duration>,
}

impl Retention {
    /// Keeps the rows of the newest `versions` versions of each table's policy, the current one among them, at least 1.
    /// Older versions are retired, and their rows deleted, some at a time.
    pub fn versions(mut self, versions: u64) -> Self {
        self.versions = Some(versions.max(1));
        self
    }

    /// Keeps a row for this long after the step that trained on it was committed.
    pub fn consumed_for(mut self, time: Duration) -> Self {
        self.consumed_for = Some(time);
        self
    }
}

/// The most rows that one record deletes by a rule: who writes meanwhile waits no longer than that takes.
const ROWS_AT_ONCE: usize = 1024;

/// What a rule no longer keeps of a table.
struct Due {
    table: u32,
    /// Versions up to this one.
    versions: Option<u64>,
    /// Rows that the steps up to this one trained on.
    steps: Option<u64>,
}

/// A few rows that are due.
#[derive(Default)]
struct Part {
    rows: Vec<u32>,
    /// A row that is due is still needed by somebody.
    any_kept: bool,
}

impl Store {
    /// Deletes what the rule no longer keeps. Costs a look at the versions and steps when there is nothing to do.
    pub(crate) fn apply_retention(&self) -> Result<()> {
        let retention = self.0.options.retention;
        if retention == Retention::default() {
            return Ok(());
        }
        let (now, kept) = (self.0.options.clock.now(), self.0.options.object_versions_kept);
        let due: Vec<Due> = {
            let state = self.0.state.lock();
            let tables = 0..state.tables.len() as u32;
            tables.filter_map(|table| state.due_for_deletion(table, &retention, kept, now)).collect()
        };
        let mut any_deleted = false;
        for due in &due {
            any_deleted |= self.delete_due(due, kept)?;
        }
        // Once for all records: nobody waits for a single one.
        if any_deleted { self.0.bring_all_to(self.0.options.durability) } else { Ok(()) }
    }

    /// Retires the versions first, so that nothing comes to them any more; then their rows go, a chunk at a time. False:
    /// there was nothing to do.
    fn delete_due(&self, due: &Due, kept: usize) -> Result<bool> {
        let mut any_deleted = self.submit_due(|state| {
            let rare = &state.tables[due.table as usize].rare;
            let versions = due.versions.filter(|last| !rare.is_retired(*last));
            let retired = versions.map(|last| (0, last));
            let record = DeleteRecord { table: due.table, retired, ..DeleteRecord::default() };
            (retired.map(|_| record), retired.is_some())
        })?;
        let mut any_kept = false;
        let chunks = self.0.state.lock().chunks_with(due);
        for chunk in chunks {
            loop {
                let part = self.delete_part(due, chunk, kept)?;
                any_deleted |= !part.rows.is_empty();
                any_kept |= part.any_kept;
                if part.rows.len() < ROWS_AT_ONCE {
                    break;
                }
            }
        }
        let Some(step) = due.steps.filter(|_| !any_kept) else { return Ok(any_deleted) };
        self.submit_due(|state| {
            let done = state.tables[due.table as usize].rare.consumed_deleted_up_to() >= step;
            let record = DeleteRecord { table: due.table, consumed_up_to: step, ..DeleteRecord::default() };
            ((!done).then_some(record), any_deleted || !done)
        })
    }

    /// Deletes the next rows of a chunk that are due.
    fn delete_part(&self, due: &Due, chunk: u32, kept: usize) -> Result<Part> {
        self.submit_due(|state| {
            let part = state.part_of(due, chunk, kept);
            let rows = runs_of(&part.rows);
            let record = DeleteRecord { table: due.table, rows, ..DeleteRecord::default() };
            ((!part.rows.is_empty()).then_some(record), part)
        })
    }

    fn submit_due<T>(&self, decide: impl FnOnce(&State) -> (Option<DeleteRecord>, T)) -> Result<T> {
        self.0.submit_if_at(Durability::Memory, |state| {
            let (record, outcome) = decide(state);
            Ok((record.map(DeleteRecord::event), outcome))
        })
    }
}

impl State {
    /// What the rule no longer keeps of a table; `None` when nothing can have come since it was last looked for.
    fn due_for_deletion(
        &self,
        table: u32,
        retention: &Retention,
        kept: usize,
        now: Timestamp,
    ) -> Option<Due> {
        let versions = retention.versions.and_then(|versions| self.versions_due(table, versions, kept));
        let steps = retention.consumed_for.and_then(|time| self.steps_due(table, time, kept, now));
        let due = Due { table, versions, steps };
        (versions.is_some() || steps.is_some()).then_some(due)
    }

    /// The last of the versions that are too old, and that no rewind can need.
    fn versions_due(&self, table: u32, versions: u64, kept: usize) -> Option<u64> {
        let of = &self.tables[table as usize];
        let oldest = self.moment_at(of.policy, self.oldest_rewind(kept)).version;
        let oldest = of.freshness.oldest_at(oldest);
        Some(self.current_version(table).checked_sub(versions)?.min(oldest.checked_sub(1)?))
    }

    /// The last of the steps whose rows have been kept for long enough, and are not all deleted.
    fn steps_due(&self, table: u32, time: Duration, kept: usize, now: Timestamp) -> Option<u64> {
        let oldest = self.oldest_rewind(kept);
        let over = self.steps.range(..=oldest).rev().find(|(_, step)| {
            step.progress == StepProgress::Committed && step.ended_at.is_some_and(|at| at.after(time) <= now)
        });
        let deleted = self.tables[table as usize].rare.consumed_deleted_up_to();
        over.map(|(number, _)| *number).filter(|number| *number > deleted)
    }

    /// The chunks that may have rows that are due, by their number.
    fn chunks_with(&self, due: &Due) -> Vec<u32> {
        let versions = due.versions.map(|last| 0..=last);
        let chunks = self.tables[due.table as usize].chunks_where(|chunk| {
            due.steps.is_some() || versions.as_ref().is_some_and(|versions| chunk.may_hold(versions))
        });
        chunks.collect()
    }

    /// The next rows of a chunk that are due and that nobody needs.
    fn part_of(&self, due: &Due, chunk: u32, kept: usize) -> Part {
        let state = &self.tables[due.table as usize];
        let needed = NeededByRewind::new(self, due.table, kept);
        let mut part = Part::default();
        for row in state.rows_of_chunk(chunk).filter(|&row| !state.is_removed(row)) {
            let step = u64::from(state.status(row).step);
            let trained_on = step != 0 && due.steps.is_some_and(|last| step <= last);
            if !trained_on && due.versions.is_none_or(|last| state.meta(row).policy_version > last) {
                continue;
            }
            if needed.or_held(self, due.table, row) {
                part.any_kept = true;
            } else {
                part.rows.push(row);
            }
            if part.rows.len() == ROWS_AT_ONCE {
                break;
            }
        }
        part
    }
}
