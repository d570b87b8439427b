//! Moves versions that are over from a store into an archive.
//!
//! An archiver keeps no state that matters: what is due follows from the store, what was done from the archive. So it may
//! be stopped at any moment, and begun anew by another process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_store::Store;

use super::blocking::block_on;
use super::contents::store_name;
use super::folder::Archive;
use super::gone::settle_version;
use super::moving::Move;
use super::rule::ArchiveRule;
use super::upload::ROW_GROUP_BYTES;
use crate::error::Result;

/// How long a version is left alone that was held back.
const HELD_BACK_FOR: Duration = Duration::from_secs(30);

/// Moves versions of a store's tables into an archive, oldest first. What a step does, and why it may be stopped anywhere,
/// is told at [`Archive`]'s module.
#[derive(Debug)]
pub struct Archiver {
    store: Store,
    archive: Archive,
    rule: ArchiveRule,
    row_group_bytes: usize,
    /// Versions that could not leave the store yet, with when that was found. Only spares trying at every call.
    held_back: Mutex<HashMap<(String, u64), Instant>>,
}

/// A version that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Of which table.
    pub table: String,
    /// Which version.
    pub version: u64,
    /// How many rows it has.
    pub rows: u64,
}

/// What moving a version did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Rows that are in the archive and no longer in the store.
    pub rows: u64,
    /// The bytes of the version's files in the archive.
    pub bytes: u64,
    /// How many files there are.
    pub files: usize,
    /// Why the rows are still in the store, where they are: somebody holds one, or one changed meanwhile. Try again later.
    pub held_back: Option<String>,
}

impl Archiver {
    /// Moves versions of `store` into `archive` by a rule. Begins the archive where there is none.
    ///
    /// # Errors
    /// [`Kind::Archive`](crate::Kind::Archive) when the archive is another store's, or out of reach.
    pub fn new(store: &Store, archive: &Archive, rule: ArchiveRule) -> Result<Self> {
        block_on(archive.begin(&store_name(store.id())))?;
        Ok(Self::over(store, archive, rule))
    }

    /// An archiver that is only asked what is due; it needs no archive.
    pub fn over(store: &Store, archive: &Archive, rule: ArchiveRule) -> Self {
        Archiver {
            store: store.clone(),
            archive: archive.clone(),
            rule,
            row_group_bytes: ROW_GROUP_BYTES,
            held_back: Mutex::default(),
        }
    }

    /// Where a row group of a file ends, in bytes as they are encoded. Queries leave out whole row groups by their statistics,
    /// and a reader holds one at a time: smaller ones are left out more finely, larger ones compress better. Default: 64 MiB.
    pub fn row_group_bytes(mut self, bytes: usize) -> Self {
        self.row_group_bytes = bytes.max(1);
        self
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// What [`row_group_bytes`](Self::row_group_bytes) set.
    pub(super) fn group_bytes(&self) -> usize {
        self.row_group_bytes
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The versions that the rule moves and that are still in the store: by version, then in the order of the tables.
    ///
    /// # Errors
    /// [`Kind::Store`](crate::Kind::Store) when the store is closed.
    pub fn due(&self) -> Result<Vec<Due>> {
        let snapshot = self.store.snapshot_for("archive");
        let mut due = Vec::new();
        for seen in snapshot.tables() {
            let table = self.store.table(seen.name()).map_err(super::moving::from_store)?;
            let Some(newest) = table.newest_version_over(self.rule.kept) else { continue };
            let over = seen.versions_up_to(newest).into_iter();
            let over = over.filter(|(version, rows)| self.rule.versions.contains(version) && rows.open == 0);
            let name = || seen.name().to_owned();
            due.extend(over.map(|(version, rows)| Due { table: name(), version, rows: rows.rows }));
        }
        due.sort_by_key(|due| due.version);
        Ok(due)
    }

    /// Moves one version. Moving one that is not in the store any more does nothing.
    ///
    /// # Errors
    /// [`Kind::Archive`](crate::Kind::Archive) when the archive cannot take it, or gives back other rows than it was given;
    /// `Store` when the store cannot be read. The version is then still in the store.
    pub fn move_version(&self, due: &Due) -> Result<Moved> {
        let moving = Move::new(self, &due.table, due.version)?;
        block_on(moving.run())
    }

    /// Moves the oldest version that is due, if there is one: a duty to be called again and again. A version that is held
    /// back is left alone for half a minute.
    ///
    /// # Errors
    /// As for [`Archiver::move_version`].
    pub fn run_once(&self) -> Result<Option<(Due, Moved)>> {
        self.settle_held_back()?;
        let waits = |due: &Due| {
            let held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
            let since = held_back.get(&(due.table.clone(), due.version));
            since.is_some_and(|since| since.elapsed() < HELD_BACK_FOR)
        };
        let Some(due) = self.due()?.into_iter().find(|due| !waits(due)) else { return Ok(None) };
        let moved = self.move_version(&due)?;
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (due.table.clone(), due.version);
        match moved.held_back {
            Some(_) => held_back.insert(key, Instant::now()),
            None => held_back.remove(&key),
        };
        drop(held_back);
        Ok(Some((due, moved)))
    }

    /// Versions that were held back and have left the store since, by retention or by name, are not in the archive: who asks it
    /// alone is to know.
    fn settle_held_back(&self) -> Result<()> {
        let held_back = || self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        if held_back().is_empty() {
            return Ok(());
        }
        let snapshot = self.store.snapshot_for("archive");
        let is_there = |(table, version): &(String, u64)| {
            snapshot.table(table).is_ok_and(|seen| seen.has_version(*version))
        };
        let gone: Vec<(String, u64)> = held_back().keys().filter(|key| !is_there(key)).cloned().collect();
        for key in gone {
            block_on(settle_version(&self.store, &self.archive, &key.0, key.1))?;
            held_back().remove(&key);
        }
        Ok(())
    }
}
