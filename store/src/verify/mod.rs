//! A full check of a store: every byte that it stands on is read and held against what vouches for it.
//!
//! The check opens nothing for writing, maps nothing (a mapping of a damaged medium ends the process where `pread`
//! gives an error), and goes on behind what is wrong, so that one look tells everything. It reads in this order: the
//! identity; the checkpoint, every page image of it; the log, segment by segment and frame by frame, each record
//! decoded and applied to a state; the files of values, each value that a row of that state names ([`value`]: place,
//! trailer, checksum, form); the objects that policies stand on; and the numbers that have to agree ([`counts`]).
//!
//! Whoever began it is told after each record, value and piece of a file how far it is ([`progress`]), and may stop it there.
//!
//! A value that is not in its file is no fault where opening puts it back from the record that carries it ([`carried`]).
//!
//! Memory: what the opened store would take, 28 bytes a value, and one record or piece of a value.
//!
//! What no check can see: records that are missing from the end of the log (they cannot be told from an append that was
//! cut short and never acknowledged), bytes that nothing names (between values, behind the last one, in orphans), and a
//! file whose checksums were made right by whoever changed it.

mod carried;
mod checkpoint;
mod counts;
mod extents;
mod fault;
mod named;
mod objects;
mod progress;
mod replay;
mod report;
mod value;

use std::ops::ControlFlow;
use std::path::Path;

pub(crate) use carried::each_carried;
pub(crate) use checkpoint::begin;
pub(crate) use extents::describe;
pub use fault::{FaultKind, VerifyFault};
pub(crate) use named::{NamedValue, named_values};
pub(crate) use objects::check_object_file;
pub(crate) use progress::Watched;
pub use progress::{VerifyProgress, VerifyStage};
pub use report::{Checked, VerifyReport};

use self::carried::Carried;
use crate::directory::{self, Directory};
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::object::ObjectRef;
use crate::options::Options;
use crate::state::State;

/// Checks everything in a store's directory, by reading alone. Of the options it uses the disk. `progress` is told how far it is,
/// many times a second, and says whether it goes on.
///
/// Beside a process that writes the store it checks what had been written when it began to look, as a reader that holds
/// a slot; [`VerifyReport::next_sequence`] says how far that was.
///
/// ```
/// use std::ops::ControlFlow;
/// use forebay_store::{DataType, Options, Schema, Store, verify};
/// # let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("store");
/// let store = Store::open(&path, Options::default())?;
/// store.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
/// drop(store);
/// let report = verify(&path, &Options::default(), &mut |_progress| ControlFlow::Continue(()))?;
/// assert!(report.is_sound(), "{:?}", report.faults);
/// # Ok::<(), forebay_store::Error>(())
/// ```
///
/// # Errors
/// `state` when the directory holds no store; `retry` (`Stopped`) when `progress` has stopped it. What is wrong *in* a store is no
/// error but part of the report.
pub fn verify(
    path: impl AsRef<Path>,
    options: &Options,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Result<VerifyReport> {
    let directory = Directory::look_at(path.as_ref(), options, false)?;
    examine(&directory, options, &mut Watched::by(progress))
}

/// Values and objects of a state whose bytes are not what was written.
pub(crate) struct Findings {
    pub(crate) values: Vec<NamedValue>,
    /// Values that the log carries, which may be taken from there.
    pub(crate) carried: Vec<NamedValue>,
    pub(crate) objects: Vec<ObjectRef>,
}

/// Checks what a state names, whatever log it came from. What records from `from` on carry counts as there.
pub(crate) fn check_named(
    directory: &Directory,
    state: &State,
    (store_id, from): (u64, u64),
) -> Result<Findings> {
    let mut report = VerifyReport { store_id: Some(store_id), ..VerifyReport::default() };
    let unwatched = &mut Watched::by_nobody();
    let carried = &mut Carried::by_repair(directory, state, from);
    let values = extents::check_extents(carried, &mut report, &named_values(state).0, unwatched)?;
    let (disk, path) = (&*directory.disk, &*directory.path);
    let objects = objects::check_objects(disk, path, &mut report, state, unwatched)?;
    Ok(Findings { values: values.damaged, carried: values.carried, objects })
}

pub(crate) fn examine(
    directory: &Directory,
    options: &Options,
    watched: &mut Watched<'_>,
) -> Result<VerifyReport> {
    let (disk, path) = (&*directory.disk, &*directory.path);
    let mut report = VerifyReport { path: path.to_owned(), ..VerifyReport::default() };
    check_identity(directory, &mut report);
    let (state, from) = begin(directory, &mut report, options.claims_kept, watched)?;
    let state = replay::replay(directory, &mut report, state, from, watched)?;
    let (values, cells) = named_values(&state);
    report.checked.cells = cells;
    let carried = &mut Carried::by_opening(directory, &state, from);
    extents::check_extents(carried, &mut report, &values, watched)?;
    objects::check_objects(disk, path, &mut report, &state, watched)?;
    counts::check_counts(path, &mut report, &state);
    Ok(report)
}

fn check_identity(directory: &Directory, report: &mut VerifyReport) {
    let identity = directory.path.join("FOREBAY");
    match directory::read_identity(&*directory.disk, &identity) {
        Ok(store_id) => report.store_id = Some(store_id),
        Err(error) => {
            report.store_id = Some(directory.store_id).filter(|id| *id != 0);
            let reason = match error.cause() {
                Cause::Corrupt { reason, .. } => reason.clone(),
                _ => error.with_sources(),
            };
            report.fault(FaultKind::Identity, &identity, 0, reason);
        }
    }
}

/// The bytes of every file in a folder.
fn bytes_in(disk: &dyn Disk, folder: &Path) -> u64 {
    let files = disk.list(folder).unwrap_or_default();
    files.iter().filter_map(|path| disk.open(path).and_then(|file| file.length()).ok()).sum()
}
