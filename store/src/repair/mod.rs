//! Makes a sound copy of a damaged store.
//!
//! A repair is never done by itself, and never in place: what is damaged is the only witness of what was there, and a
//! repair that is cut off, or that was a mistake, must leave it as it was. It keeps every record and value that can be
//! proven, and says what it gave up.
//!
//! 1. The log is read place by place, from the checkpoint on where that is sound, and made into one that can be followed
//!    ([`mender`]). A record that still cannot be applied is given up, and the pass begins anew without it; after
//!    [`PASSES_MAX`] of them the log ends at the last.
//! 2. Every value and object that the resulting state names is checked byte by byte. Values that records carry are there, whatever
//!    became of their files.
//! 3. The log is read once more and written anew. Objects that are damaged are named no more. At its end cells whose
//!    values are damaged become null, their rows, where they are still to be trained on, are excluded as `damaged`, and
//!    the store begins a new life.
//! 4. The checkpoint and the files of values and objects that are still named are copied ([`mod@objects`]). All of it is made stable, the
//!    copy's log says that it is, and only then it gets its identity: a repair that was cut off is no store. It is checked in full.
//!
//! What trailers can and cannot do: the trailer of a value says length, checksum, table, column and a hash of the row's
//! version and sample id. It proves that a view and its bytes belong together, and it finds values that no record names.
//! It cannot give a row back: a hash says nothing about the sample id, and no value holds cells that lie in the table
//! itself. So rows whose records are gone are gone.

mod copy;
mod gone;
mod mender;
mod objects;
mod report;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub use report::RepairReport;

use crate::directory::Directory;
use crate::error::{Cause, Error, Result};
use crate::log::record::{CellRecord, Event, Operation, Record, StoredValue};
use crate::log::{self, Found};
use crate::options::Options;
use crate::state::State;
use crate::verify::{self, Findings, NamedValue, VerifyReport, Watched};
use mender::{DAMAGED, Mender, Refused};

/// After so many records that cannot be applied the rest of the log is given up.
const PASSES_MAX: usize = 64;
/// A record of what is emptied holds no more changes than this, so that no damage makes one that is too large to be read.
const EMPTIED_MAX: usize = 1 << 16;

/// Writes a repaired copy of the store at `path` to `to`, a directory that is empty or does not exist. Without `to` it
/// only says what a repair would come to. Of the options it uses the disk.
///
/// # Errors
/// `state` when a process is writing the store, when there is none, or `to` is taken; `capacity` when the disk is full;
/// `corrupt` when nothing can be kept, or not even be told which store it was.
pub fn repair(path: impl AsRef<Path>, to: Option<&Path>, options: &Options) -> Result<RepairReport> {
    let directory = Directory::look_at(path.as_ref(), options, true)?;
    let found = verify::examine(&directory, options, &mut Watched::by_nobody())?;
    let store_id = found.store_id.ok_or_else(|| unknown_store(&directory))?;
    let job = Repair { directory: &directory, options };
    let (refused, state) = job.settle()?;
    let (_, from) = job.base()?;
    let findings = verify::check_named(&directory, &state, (store_id, from))?;
    let commits = state.commits;
    drop(state);
    let objects: HashSet<(String, u64)> =
        findings.objects.iter().map(|object| (object.key.clone(), object.version)).collect();
    let copy = to.map(|to| copy::Copy::begin(options, &directory, to, from)).transpose()?;
    let mut sink = |record: &Record| copy.as_ref().map_or(Ok(()), |copy| copy.append(record));
    let mut mended = job.pass(&refused, &objects, &mut sink)?;
    if mended.state.commits != commits {
        return Err(reads_differ(&directory));
    }
    empty_damaged(&mut mended, &findings, &mut sink)?;
    let mut report = std::mem::take(&mut mended.report);
    tell(&findings, &mut report);
    let files = objects::to_copy(&directory, &mended.state, &objects, &mut report);
    report.path = directory.path.clone();
    (report.faults, report.faults_not_described) = (found.faults, found.faults_not_described);
    if let (Some(copy), Some(to)) = (copy, to) {
        copy.finish(&mended.state, &findings.carried, &files)?;
        report.verified = Some(verify::verify(to, options, &mut |_| ControlFlow::Continue(()))?);
        report.to = Some(to.to_owned());
    }
    Ok(report)
}

/// Says what was found of values and of what policies stand on.
fn tell(findings: &Findings, report: &mut RepairReport) {
    report.values_put_back = findings.carried.len() as u64;
    report.objects_lost = findings.objects.len() as u64;
    for object in &findings.objects {
        report.lose(format!("object {:?} version {}: missing or damaged", object.key, object.version));
    }
}

struct Repair<'a> {
    directory: &'a Directory,
    options: &'a Options,
}

impl Repair<'_> {
    /// What the log goes on from: the checkpoint, where it is sound, or an empty store.
    fn base(&self) -> Result<(State, u64)> {
        let mut ignored = VerifyReport { store_id: Some(self.directory.store_id), ..VerifyReport::default() };
        let unwatched = &mut Watched::by_nobody();
        verify::begin(self.directory, &mut ignored, self.options.claims_kept, unwatched)
    }

    /// Passes over the log until one comes to its end, each without the records that the ones before stopped at.
    fn settle(&self) -> Result<(Refused, State)> {
        let mut refused = Refused::default();
        let no_objects = HashSet::new();
        loop {
            let mended = self.pass(&refused, &no_objects, &mut |_| Ok(()))?;
            match mended.stuck {
                Some(sequence) if refused.records.len() >= PASSES_MAX => refused.end = Some(sequence),
                Some(sequence) => _ = refused.records.insert(sequence),
                None if mended.report.records_kept == 0 && !mended.report.is_whole() => {
                    return Err(nothing_left(self.directory));
                }
                None => {
                    let state = mended.state;
                    return Ok((refused, state));
                }
            }
        }
    }

    fn pass<'s>(
        &self,
        refused: &'s Refused,
        objects: &'s HashSet<(String, u64)>,
        sink: &mut dyn FnMut(&Record) -> Result<()>,
    ) -> Result<Mender<'s>> {
        let (state, from) = self.base()?;
        let mut mender = Mender::new(state, from, refused, objects);
        let mut outcome = Ok(());
        let (disk, log) = (&*self.directory.disk, self.directory.log());
        log::scan_from(disk, &log, (Some(self.directory.store_id), from), |place, found| {
            match found {
                Found::Record { sequence, record, .. } => outcome = mender.take(sequence, record, sink),
                Found::Damaged { reason } | Found::Segment { reason } => mender.unreadable(&place, &reason),
                Found::Begins { .. } | Found::Torn { .. } => {}
            }
            let goes_on = outcome.is_ok() && mender.stuck.is_none();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome.map(|()| mender)
    }
}

/// Makes cells null whose values are damaged, and leaves their rows out where nobody has trained on them yet; then a new
/// life of the store begins, which ends the claims of the one that was damaged.
fn empty_damaged(
    mended: &mut Mender<'_>,
    findings: &Findings,
    sink: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    let mut operations = Vec::new();
    let (mut seen, mut rows) = (HashSet::new(), HashSet::new());
    for value in &findings.values {
        let &NamedValue { table, row, column, .. } = value;
        if !seen.insert((table, row, column)) {
            continue; // another fragment of the same cell
        }
        mended.report.cells_emptied += 1;
        let cell = verify::describe(&mended.state, value);
        mended.report.lose(format!("{cell}: its value is damaged, the cell is null now"));
        if rows.insert((table, row)) && mended.state.tables[table as usize].status(row).is_open() {
            mended.report.rows_excluded += 1;
            operations.push(Operation::Exclude { table, row, reason: DAMAGED.to_owned() });
        }
        let cells = vec![CellRecord { column, value: StoredValue::Null }];
        operations.push(Operation::Write { table, row, cells });
    }
    let emptied = operations.chunks(EMPTIED_MAX).map(|part| Event::Written { operations: part.to_vec() });
    let opened = Event::Opened { incarnation: mended.state.incarnation.saturating_add(1), pid: 0 };
    for event in emptied.chain([opened]) {
        let record = Record { time: mended.last_time, event, carried: Vec::new() };
        let applied = mended.state.apply(record.clone());
        applied.map_err(|reason| Cause::Corrupt { path: PathBuf::from("log"), offset: 0, reason })?;
        sink(&record)?;
    }
    Ok(())
}

fn nothing_left(directory: &Directory) -> Error {
    let reason =
        "no record can be followed without the log or the checkpoint before it, which is gone".to_owned();
    Cause::Corrupt { path: directory.log(), offset: 0, reason }.into()
}

fn reads_differ(directory: &Directory) -> Error {
    let reason = "the log, or the checkpoint before it, could not be read again as it was read first; copy the store to another disk \
                  as it is, and repair it there"
        .to_owned();
    Cause::Corrupt { path: directory.log(), offset: 0, reason }.into()
}

fn unknown_store(directory: &Directory) -> Error {
    let reason = "neither the identity nor any segment says which store it was".to_owned();
    Cause::Corrupt { path: directory.path.join("FOREBAY"), offset: 0, reason }.into()
}
