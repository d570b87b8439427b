//! What all handles on a store's objects share.
//!
//! # Threads and locks
//! Any number of threads call; nothing here starts one that outlives a call. The catalog's lock guards who knows what, and is
//! held for plain lookups and a record of the journal, never while bytes move. The arena's lock may be taken inside of it, and
//! a listener's inside of that. The state's lock is never taken with the catalog's held; the other way round only where the
//! store closes, and wakes everybody.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::{Catalog, Strange};
use super::disk::{
    Found, MARK, look_at, never_came, remove_aside, remove_marks, remove_needless_mark, remove_unfinished,
};
use super::host::{Arena, Folder, HostExtent, Journal, LoanRecord, Recovered, places_of};
use super::options::ObjectOptions;
use super::stats::Counters;
use super::version::{Copies, HostCopy};
use super::{Entry, Manifest};
use crate::clock::Clock;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::numbered::number_of;
use crate::options::Options;
use crate::sync::{Mutex, Rank};

#[derive(Debug)]
pub(crate) struct Core {
    pub(super) options: ObjectOptions,
    pub(super) directory: Arc<Directory>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) catalog: Mutex<Catalog>,
    pub(super) arena: Arc<Arena>,
    pub(super) counters: Counters,
    /// Last: whoever opens the store next may have the folder once everything else is gone.
    pub(super) folder: Option<Folder>,
}

impl Core {
    /// Finds out what earlier processes have left.
    pub(crate) fn open(directory: &Arc<Directory>, options: &Options) -> Result<Arc<Self>> {
        let objects = options.objects.clone();
        objects.validate()?;
        let mut catalog = Catalog::default();
        recover_disk(directory, &mut catalog)?;
        let taken = match Folder::open(&objects.host_folder, directory, &*options.clock)? {
            Some(folder) => open_journal(folder)?,
            None => None,
        };
        let arena = Arena::new(taken.as_ref().map(|(folder, ..)| folder.path()), &objects);
        let mut folder = None;
        if let Some((taken, journal, recovered)) = taken {
            recover_host(&arena, &mut catalog, journal, recovered)?;
            arena.remove_strays();
            folder = Some(taken);
        }
        let (directory, clock) = (directory.clone(), options.clock.clone());
        let (counters, catalog) = (Counters::default(), Mutex::ranked(Rank::Catalog, catalog));
        Ok(Arc::new(Core { options: objects, directory, clock, catalog, arena, counters, folder }))
    }

    /// Whether a version is one of the object layer, which looks after its file itself.
    pub(crate) fn has(&self, key: &str, version: u64) -> bool {
        self.catalog.lock().has(key, version)
    }

    /// Takes a number for a payload that a step will name; false when a version has it.
    pub(crate) fn take_number(&self, key: &str, version: u64, path: PathBuf) -> bool {
        let mut catalog = self.catalog.lock();
        let is_free = !catalog.has(key, version);
        if is_free {
            catalog.note_strange(key, version, Strange::Foreign(path));
        }
        is_free
    }

    /// Wakes everybody who waits for an object.
    pub(crate) fn wake_all(&self) {
        let keys: Vec<_> = self.catalog.lock().keys.values().map(|state| state.changed.clone()).collect();
        keys.iter().for_each(|changed| _ = changed.notify(usize::MAX));
    }

    /// Removes files that were set aside, on stable storage, and their marks after them.
    pub(crate) fn remove_files(&self, files: impl IntoIterator<Item = (String, u64, PathBuf)>) {
        self.remove_marks_where(files, remove_aside);
    }

    /// Removes marks of versions whose files never came.
    pub(super) fn remove_marks_of_none(&self, versions: impl IntoIterator<Item = (String, u64, PathBuf)>) {
        self.remove_marks_where(versions, never_came);
    }

    /// Removes the marks of files that `is_gone` says are gone for good. What is only thought to be there is forgotten before: whoever
    /// makes a mark meanwhile, and is too late, sees that nobody will remove it.
    fn remove_marks_where(
        &self,
        files: impl IntoIterator<Item = (String, u64, PathBuf)>,
        is_gone: fn(&dyn Disk, &Path) -> bool,
    ) {
        let disk = &*self.directory.disk;
        for (key, version, path) in files {
            if is_gone(disk, &path) {
                self.catalog.lock().deleted_files.remove(&(key, version));
                remove_needless_mark(disk, &path);
            }
        }
    }
}

/// Takes in every file of the directory. What is not of the object layer, or damaged, uses its number up all the same.
fn recover_disk(directory: &Directory, catalog: &mut Catalog) -> Result<()> {
    let disk = &*directory.disk;
    let folder = directory.objects();
    for key in disk.list(&folder).map_err(|e| Cause::io("list", &folder, e))? {
        let Some(name) = key.file_name().and_then(|name| name.to_str()) else { continue };
        let files = disk.list(&key).unwrap_or_default(); // a file among the folders is nobody's
        remove_unfinished(disk, &files);
        for path in files.iter().filter(|path| path.extension().is_some_and(|e| e == "safetensors")) {
            recover_file(disk, catalog, name, path)?;
        }
        recover_marks(disk, catalog, &key, &files).map_err(|e| Cause::io("remove marks in", &key, e))?;
    }
    Ok(())
}

fn recover_file(disk: &dyn Disk, catalog: &mut Catalog, key: &str, path: &Path) -> Result<()> {
    let Some(version) = number_of(path) else { return Ok(()) };
    match look_at(disk, path) {
        Ok(Found::Ours { manifest, once, copy }) => {
            catalog.recover(manifest, Copies { host: None, disk: Some(Arc::new(copy)) }, once);
        }
        Ok(Found::Other) => catalog.note_strange(key, version, Strange::Foreign(path.to_owned())),
        Err(error) => {
            let Cause::Corrupt { path, offset, reason } = error.cause() else { return Err(error) };
            tracing::error!(%error, "an object cannot be had");
            let damaged = Strange::Damaged(path.clone(), *offset, reason.clone());
            catalog.note_strange(key, version, damaged);
        }
    }
    Ok(())
}

/// Takes in which versions of a key were deleted; what is said of files that are gone is needed no more.
fn recover_marks(disk: &dyn Disk, catalog: &mut Catalog, folder: &Path, files: &[PathBuf]) -> io::Result<()> {
    let key = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut over = Vec::new();
    for mark in files.iter().filter(|path| path.extension().is_some_and(|e| e == MARK)) {
        let Some(version) = number_of(mark) else { continue };
        catalog.was_deleted(key, version);
        if !disk.exists(&mark.with_extension("safetensors"))? {
            over.push(mark.clone());
        }
    }
    remove_marks(disk, folder, &over)
}

/// Opens the journal of a folder. A folder that has none, and no room for one, is not used; what one that has says is not
/// given up.
fn open_journal(folder: Folder) -> Result<Option<(Folder, Journal, Recovered)>> {
    match Journal::open(folder.path()) {
        Ok((journal, recovered)) => Ok(Some((folder, journal, recovered))),
        Err(error) if folder.holds_objects() => Err(Cause::io("open", folder.path(), error).into()),
        Err(error) => {
            tracing::warn!(%error, "objects in the host tier end with this process");
            Ok(None)
        }
    }
}

/// Takes in what the journal says lies in segments. Bytes are checked when somebody first asks for them.
fn recover_host(
    arena: &Arc<Arena>,
    catalog: &mut Catalog,
    journal: Journal,
    mut recovered: Recovered,
) -> Result<()> {
    let (mut lost, mut lent) = (Vec::new(), Places::new());
    recovered.last.iter().for_each(|(key, version)| catalog.number_was_used(key, *version));
    for (manifest, entry) in std::mem::take(&mut recovered.objects) {
        let name = (manifest.key.clone(), manifest.version);
        match adopt(arena, &manifest, &entry) {
            Ok(copy) => {
                lent.insert(places_of(&copy.extents), copy.extents.clone());
                if !catalog.recover(manifest, Copies::host(Arc::new(copy)), entry.once) {
                    lost.push(name);
                }
            }
            Err(reason) => {
                lost.push(name);
                tracing::error!(
                    key = manifest.key,
                    version = manifest.version,
                    reason,
                    "an object in the host tier is lost"
                );
            }
        }
    }
    catalog.begin_journal(journal, &recovered, &lost)?;
    recover_loans(arena, catalog, recovered.loans, lent);
    Ok(())
}

/// Extents by where their parts lie.
type Places = BTreeMap<Vec<(u32, u64, u64)>, Arc<Vec<HostExtent>>>;

/// Goes on with what other processes were given: those that live may still write or read there. What they hold may be that of a
/// version (`there`), or that of another loan.
fn recover_loans(
    arena: &Arc<Arena>,
    catalog: &mut Catalog,
    loans: BTreeMap<u64, LoanRecord>,
    mut there: Places,
) {
    for loan in loans.into_values() {
        let process = loan.process.reopen();
        let Some(process) = process else {
            catalog.forget_loan(loan.number);
            continue;
        };
        let adopt = || {
            let adopted = loan.places.iter().map(|(segment, at, bytes)| arena.adopt(*segment, *at, *bytes));
            let failed =
                |reason: &String| tracing::error!(?process, reason, "lent memory cannot be kept back");
            Arc::new(adopted.filter_map(|extent| extent.inspect_err(failed).ok()).collect::<Vec<_>>())
        };
        let extents = there.entry(loan.places.clone()).or_insert_with(adopt).clone();
        tracing::warn!(
            ?process,
            bytes = extents.iter().map(HostExtent::bytes).sum::<u64>(),
            "memory is in quarantine"
        );
        catalog.recover_loan(loan, process, extents);
    }
}

fn adopt(arena: &Arc<Arena>, manifest: &Manifest, entry: &Entry) -> Result<HostCopy, String> {
    let places = entry.places.iter().zip(manifest.layout.payloads());
    let extents: Result<Vec<_>, String> =
        places.map(|((segment, offset), payload)| arena.adopt(*segment, *offset, payload.bytes)).collect();
    Ok(HostCopy::new(Arc::new(extents?), false, entry.ours))
}
