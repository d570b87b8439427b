//! Versions that are over: which they are, and how one leaves the store.

use super::{Delete, Deleted, Table};
use crate::error::{Cause, Error, Result};
use crate::log::record::{DeleteRecord, Event};
use crate::snapshot::TableSnapshot;
use crate::state::State;

impl Table {
    /// The newest version that is not among the newest `kept` ones of the table's policy (the current one is, so at least
    /// one is kept) and that no rewind brings back: it and those before it may leave the store. `None` while there is none.
    pub fn newest_version_over(&self, kept: u64) -> Option<u64> {
        let states = self.store.0.options.object_versions_kept;
        self.store.0.state.lock().newest_version_over(self.id(), kept.max(1), states)
    }

    /// Deletes all rows of a version and retires it, if they are to this moment just as `seen` shows them: for whoever has
    /// taken them elsewhere. All of them, or none. The same record says that they were moved out
    /// ([`TableSnapshot::is_moved_out`]): what retention deletes, or anybody by name, is gone and was not.
    ///
    /// # Errors
    /// `state` when a row has come, gone or changed since, when columns were added, renamed or retired since, when a row is
    /// held or may be needed by a rewind, or when the version is not [over](Self::newest_version_over).
    pub fn delete_unchanged(&self, version: u64, seen: &TableSnapshot) -> Result<Deleted> {
        let rows_seen = seen.rows_of_version(version).len();
        let kept = self.store.0.options.object_versions_kept;
        self.store.0.submit_if(|state| {
            let (record, deleted) = state.decide_unchanged(self.id(), version, seen, rows_seen, kept)?;
            let any = deleted.rows > 0;
            let deletions = vec![record, DeleteRecord::moved_out(self.id(), version)];
            Ok((any.then_some(Event::Deleted { deletions }), deleted))
        })
    }

    /// Whether [`delete_unchanged`](Self::delete_unchanged) would delete the version now: to be asked before what is costly and of no
    /// use where it would not. It may still be refused later.
    ///
    /// # Errors
    /// As for `delete_unchanged`.
    pub fn check_unchanged(&self, version: u64, seen: &TableSnapshot) -> Result<()> {
        let rows_seen = seen.rows_of_version(version).len();
        let kept = self.store.0.options.object_versions_kept;
        self.store.0.state.lock().decide_unchanged(self.id(), version, seen, rows_seen, kept)?;
        Ok(())
    }
}

impl DeleteRecord {
    /// Says that a version, which the deletion before it retires, was moved out. It has no row and retires what is retired
    /// already, which no other deletion does: so programs that do not know of it apply it as nothing.
    fn moved_out(table: u32, version: u64) -> Self {
        DeleteRecord { table, retired: Some((version, version)), ..DeleteRecord::default() }
    }
}

impl State {
    /// The deletion of a version that is just as it was seen.
    fn decide_unchanged(
        &self,
        table: u32,
        version: u64,
        seen: &TableSnapshot,
        rows_seen: usize,
        kept: usize,
    ) -> Result<(DeleteRecord, Deleted)> {
        self.check_unchanged(table, version, seen, rows_seen)?;
        self.decide_delete(table, &Delete::version(version), kept)
    }

    fn check_unchanged(
        &self,
        table: u32,
        version: u64,
        seen: &TableSnapshot,
        rows_seen: usize,
    ) -> Result<()> {
        let state = &self.tables[table as usize];
        let changed = |reason: String| -> Error {
            Cause::VersionChanged { table: state.name.to_string(), version, reason }.into()
        };
        if !seen.has_schema_of(state) {
            return Err(changed("the table has other columns now".to_owned()));
        }
        let mut rows = 0;
        for row in state.rows_of(version..=version) {
            rows += 1;
            if let Some(reason) = seen.change_of(state, row) {
                return Err(changed(format!("row {row}: {reason}")));
            }
        }
        if rows != rows_seen {
            return Err(changed(format!("{rows_seen} rows then, {rows} now")));
        }
        Ok(())
    }
}
