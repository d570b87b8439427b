//! Retention: which rows go by themselves, and when.

mod long_consumed;

use std::time::Duration;

use self::long_consumed::Consumed;
use crate::clock::Timestamp;
use crate::durability::Durability;
use crate::error::Result;
use crate::log::record::{DeleteRecord, Event};
use crate::state::State;
use crate::store::Store;
use crate::sync::atomic::Ordering;
use crate::table::Delete;

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
    /// Older versions are retired with all that they hold.
    pub fn versions(mut self, versions: u64) -> Self {
        self.versions = Some(versions.max(1));
        self
    }

    /// How many versions it keeps; none for all.
    pub fn versions_kept(self) -> Option<u64> {
        self.versions
    }

    /// For how long it keeps rows after they were trained on; none for ever.
    pub fn consumed_kept_for(self) -> Option<Duration> {
        self.consumed_for
    }

    /// Whether versions go by themselves.
    pub(crate) fn retires_versions(self) -> bool {
        self.versions.is_some()
    }

    /// Keeps a row for this long after the step that trained on it was committed.
    pub fn consumed_for(mut self, time: Duration) -> Self {
        self.consumed_for = Some(time);
        self
    }
}

impl Store {
    /// Deletes what the rule no longer keeps. Costs a look at the versions and steps when there is nothing to do. Unless `all`
    /// is to be looked at, it looks at versions alone, and only while none of them has to wait: that may take long, and finding out costs a
    /// look at every row.
    pub(crate) fn apply_retention(&self, all: bool) -> Result<()> {
        let retention = self.0.limits.retention();
        if retention == Retention::default() || !all && self.0.retention_waits.load(Ordering::Relaxed) {
            return Ok(());
        }
        let retention = if all { retention } else { Retention { consumed_for: None, ..retention } };
        let (now, kept) = (self.0.options.clock.now(), self.0.options.object_versions_kept);
        let consumed = retention.consumed_for.map(|time| self.find_consumed(time, kept, now));
        let consumed = consumed.unwrap_or_default();
        // One record over all tables: whoever looks sees all of a step or nothing of it.
        let any_deleted = self.0.submit_if_at(Durability::Memory, |state| {
            let tables = 0..state.tables.len() as u32;
            let due = tables.filter_map(|table| {
                let consumed = consumed.get(table as usize).and_then(Option::as_ref);
                state.due_for_deletion(table, consumed, &retention, (kept, now))
            });
            let deletions: Vec<DeleteRecord> = due.collect();
            self.0
                .retention_waits
                .store(state.keeps_versions_that_are_due(&retention, kept, &deletions), Ordering::Relaxed);
            let any = !deletions.is_empty();
            Ok((any.then_some(Event::Deleted { deletions }), any))
        })?;
        // Where there is nothing to do, nobody waits for what others have written.
        if any_deleted { self.0.bring_all_to(self.0.options.durability) } else { Ok(()) }
    }
}

impl State {
    fn due_for_deletion(
        &self,
        table: u32,
        consumed: Option<&Consumed>,
        retention: &Retention,
        (kept, now): (usize, Timestamp),
    ) -> Option<DeleteRecord> {
        let by_version = retention.versions.and_then(|versions| self.versions_due(table, versions, kept));
        by_version.or_else(|| {
            let last = self.last_step_due(retention.consumed_for?, kept, now)?;
            self.consumed_due(table, consumed?, last)
        })
    }

    /// The retirement of versions that are too old; `None` while a row of them is held.
    fn versions_due(&self, table: u32, versions: u64, kept: usize) -> Option<DeleteRecord> {
        let beyond = self.version_due(table, versions, kept)?;
        self.decide_delete(table, &Delete::versions_up_to(beyond), kept).ok().map(|(record, _)| record)
    }

    /// The newest version that is to be retired, where not all up to it are.
    fn version_due(&self, table: u32, versions: u64, kept: usize) -> Option<u64> {
        let beyond = self.newest_version_over(table, versions, kept)?;
        (!self.tables[table as usize].rare.are_retired(0, beyond)).then_some(beyond)
    }

    /// Whether a table keeps versions that are to be retired, with those deletions too.
    fn keeps_versions_that_are_due(
        &self,
        retention: &Retention,
        kept: usize,
        deletions: &[DeleteRecord],
    ) -> bool {
        let Some(versions) = retention.versions else { return false };
        let goes = |table| deletions.iter().any(|record| record.table == table && record.retired.is_some());
        (0..self.tables.len() as u32)
            .any(|table| !goes(table) && self.version_due(table, versions, kept).is_some())
    }

    /// The newest version that is not among the newest `versions` of a table's policy, and that no rewind brings back.
    pub(crate) fn newest_version_over(&self, table: u32, versions: u64, kept: usize) -> Option<u64> {
        let of = &self.tables[table as usize];
        let oldest = self.moment_at(of.policy, self.oldest_rewind(kept)).version;
        let oldest = of.freshness.oldest_at(oldest);
        Some(self.current_version(table).checked_sub(versions)?.min(oldest.checked_sub(1)?))
    }
}
