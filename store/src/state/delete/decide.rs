//! Which rows a rule deletes, and whether they may go.
//!
//! A rule may name a hundred thousand rows, and everybody waits while they are looked at: what can be said of a chunk is
//! asked of the chunk, and of a row that the rest is asked of only what lies in two lines of the cache.

use crate::error::{Cause, Result};
use crate::log::record::DeleteRecord;
use crate::state::apply::STALE;
use crate::state::{State, runs_of};
use crate::table::{Delete, Deleted, TableState, chunk_of};
use crate::texts::TextId;

impl State {
    /// The rows that a rule deletes and the versions that it retires.
    pub(crate) fn decide_delete(
        &self,
        table: u32,
        rule: &Delete,
        kept: usize,
    ) -> Result<(DeleteRecord, Deleted)> {
        let state = &self.tables[table as usize];
        if rule.versions.is_none() && rule.rows.is_none() && !rule.all {
            let reason = "it names neither a version nor rows, which would be the whole table; confirm that in so many \
                          words if it is meant"
                .to_owned();
            return Err(Cause::Argument { what: "delete", reason }.into());
        }
        let (current, oldest) = (self.current_version(table), state.freshness.oldest());
        if let Some(versions) =
            rule.versions.as_ref().filter(|versions| !rule.force && *versions.end() >= oldest)
        {
            let (table, version) = (state.name.to_string(), *versions.end());
            return Err(Cause::VersionCurrent { table, version, current }.into());
        }
        let rows = rule.rows_in(state);
        if !rule.force {
            NeededByRewind::new(self, table, kept).check(self, table, &rows)?;
        }
        let open = rows.iter().filter(|&&row| state.is_open(row)).count() as u64;
        let deleted = Deleted { rows: rows.len() as u64, open };
        let retired = rule.versions.as_ref().map(|versions| (*versions.start(), *versions.end()));
        let retired = retired.filter(|_| rule.rows.is_none());
        let retired = retired.filter(|(first, last)| !state.rare.are_retired(*first, *last));
        Ok((DeleteRecord { table, rows: runs_of(&rows), retired, consumed_up_to: 0 }, deleted))
    }
}

impl Delete {
    /// The rows that it names and that are there, in their order.
    fn rows_in(&self, table: &TableState) -> Vec<u32> {
        let Some(named) = &self.rows else {
            return table.rows_of(self.versions.clone().unwrap_or(0..=u64::MAX)).collect();
        };
        let mut rows: Vec<u32> = named.iter().map(|row| row.index).collect();
        rows.sort_unstable();
        rows.dedup();
        let in_versions = |row: u32| {
            self.versions.as_ref().is_none_or(|versions| versions.contains(&table.meta(row).policy_version))
        };
        rows.retain(|&row| row < table.row_count() && !table.is_removed(row) && in_versions(row));
        rows
    }
}

/// What a row may be needed for.
struct NeededByRewind {
    /// The oldest step that a rewind can go back to.
    oldest: u64,
    /// Where the table's policy stood then.
    version: u64,
    /// The reason of rows whose version was left behind, once there was one.
    stale: Option<TextId>,
}

impl NeededByRewind {
    fn new(state: &State, table: u32, kept: usize) -> Self {
        let oldest = state.oldest_rewind(kept);
        let policy = state.tables[table as usize].policy;
        let (version, stale) = (state.moment_at(policy, oldest).version, state.texts.find(STALE));
        NeededByRewind { oldest, version, stale }
    }

    fn holds(&self, of: &TableState, row: u32) -> bool {
        let status = of.status(row);
        let stale = || of.counting_version(row) >= of.freshness.oldest_at(self.version);
        u64::from(status.step) > self.oldest || Some(status.excluded) == self.stale && stale()
    }

    /// Nobody holds one of these rows, in their order, and no rewind needs one.
    fn check(&self, state: &State, table: u32, rows: &[u32]) -> Result<()> {
        let of = &state.tables[table as usize];
        let name = || of.name.to_string();
        for of_chunk in rows.chunk_by(|a, b| chunk_of(*a) == chunk_of(*b)) {
            let anybody_holds = of.has_holder(of_chunk);
            for &row in of_chunk {
                if let Some(claim) = anybody_holds.then(|| state.holder_of(table, row)).flatten() {
                    return Err(Cause::RowHeld { table: name(), row: row.into(), claim }.into());
                }
                if self.holds(of, row) {
                    return Err(Cause::RowNeeded { table: name(), row: row.into(), step: self.oldest }.into());
                }
            }
        }
        Ok(())
    }
}
