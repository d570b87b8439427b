//! Makes a sound copy of a damaged store.
//!
//! A repair is never done by itself, and never in place: what is damaged is the only witness of what was there, and a
//! repair that is cut off, or that was a mistake, must leave it as it was. It keeps every record and value that can be
//! proven, and says what it gave up.
//!
//! 1. The log is read place by place and made into one that can be followed ([`mender`]). A record that still cannot be
//!    applied is given up, and the pass begins anew without it.
//! 2. Every value and object that the resulting state names is checked byte by byte.
//! 3. The log is read once more and written anew: cells whose values are damaged become null, and their rows, where they
//!    are still to be trained on, are excluded as `damaged`; objects that are damaged are forgotten.
//! 4. The files of values and objects that are still named are copied, the copy is made stable, and checked in full.
//!
//! What trailers can and cannot do: the trailer of a value says length, checksum, table, column and a hash of the row's
//! version and sample id. It proves that a view and its bytes belong together, and it finds values that no record names.
//! It cannot give a row back: a hash says nothing about the sample id, and no value holds cells that lie in the table
//! itself. So rows whose records are gone are gone.

mod copy;
mod mender;
mod report;

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

pub use report::RepairReport;

use crate::directory;
use crate::error::{Cause, Result};
use crate::extent::View;
use crate::log::record::{Event, Operation, Record};
use crate::log::{self, Found};
use crate::options::Options;
use crate::state::State;
use crate::verify::{self, Findings, NamedValue};
use mender::{DAMAGED, Mender};

/// After so many records that cannot be applied the rest of the log is given up.
const PASSES_MAX: usize = 64;

/// Writes a repaired copy of the store at `path` to `to`, a directory that is empty or does not exist. Without `to` it
/// only says what a repair would come to. Of the options it uses the disk.
///
/// # Errors
/// `state` when a process is writing the store, when there is none, or `to` is taken; `capacity` when the disk is full;
/// `corrupt` when nothing of the store can be told, not even which one it was.
pub fn repair(path: impl AsRef<Path>, to: Option<&Path>, options: &Options) -> Result<RepairReport> {
    let path = path.as_ref();
    let disk = &*options.disk;
    let _lock = directory::lock_out_writers(disk, path)?;
    let found = verify::examine(path, options, &mut |_| ())?;
    let store_id = found.store_id.ok_or_else(|| unknown_store(path))?;
    let job = Repair { path, options, store_id };
    let (nothing, no_objects) = (HashSet::new(), HashSet::new());
    let (refused, state, moves) = job.settle(&nothing, &no_objects)?;
    let findings = verify::check_named(disk, path, &state, store_id)?;
    let mut views: HashSet<[u8; 16]> = findings.values.iter().map(|value| view_of(value).0).collect();
    // A cell whose value was moved held the old view when it was written.
    for (from, to) in moves.iter().rev() {
        if views.contains(to) {
            views.insert(*from);
        }
    }
    let objects: HashSet<(String, u64)> =
        findings.objects.iter().map(|object| (object.key.clone(), object.version)).collect();
    let copy = to.map(|to| copy::Copy::begin(options, path, to, store_id)).transpose()?;
    let mut sink = |record: &Record| copy.as_ref().map_or(Ok(()), |copy| copy.append(record));
    let mut mended = job.pass(&refused, &views, &objects, &mut sink)?;
    exclude_damaged(&mut mended, &findings, &mut sink)?;
    let mut report = std::mem::take(&mut mended.report);
    report.objects_lost = findings.objects.len() as u64;
    for object in &findings.objects {
        report.lose(format!("object {:?} version {}: missing or damaged", object.key, object.version));
    }
    report.path = path.to_owned();
    (report.faults, report.faults_not_described) = (found.faults, found.faults_not_described);
    if let (Some(copy), Some(to)) = (copy, to) {
        copy.finish(&mended.state)?;
        report.verified = Some(verify::verify(to, options, &mut |_| ())?);
        report.to = Some(to.to_owned());
    }
    Ok(report)
}

/// Values that were moved, from where to where, in the order of their records.
type Moves = Vec<([u8; 16], [u8; 16])>;

struct Repair<'a> {
    path: &'a Path,
    options: &'a Options,
    store_id: u64,
}

impl Repair<'_> {
    /// Passes over the log until one comes to its end, each without the records that the ones before stopped at.
    fn settle<'s>(
        &self,
        damaged: &'s HashSet<[u8; 16]>,
        objects: &'s HashSet<(String, u64)>,
    ) -> Result<(HashSet<u64>, State, Moves)> {
        let mut refused = HashSet::new();
        for _ in 0..PASSES_MAX {
            let mended = self.pass(&refused, damaged, objects, &mut |_| Ok(()))?;
            match mended.stuck {
                Some(sequence) => refused.insert(sequence),
                None => {
                    let (state, moves) = (mended.state, mended.moves);
                    return Ok((refused, state, moves));
                }
            };
        }
        let reason = format!("more than {PASSES_MAX} records cannot follow on those before them");
        Err(Cause::Corrupt { path: self.path.join("log"), offset: 0, reason }.into())
    }

    fn pass<'s>(
        &self,
        refused: &'s HashSet<u64>,
        damaged: &'s HashSet<[u8; 16]>,
        objects: &'s HashSet<(String, u64)>,
        sink: &mut dyn FnMut(&Record) -> Result<()>,
    ) -> Result<Mender<'s>> {
        let mut mender = Mender::new(State::new(self.options.claims_kept), refused, damaged, objects);
        let mut outcome = Ok(());
        log::scan(
            &*self.options.disk,
            &self.path.join("log"),
            Some(self.store_id),
            |place, found| match found {
                Found::Record { sequence, record, .. } if outcome.is_ok() => {
                    outcome = mender.take(sequence, record, sink);
                }
                Found::Damaged { reason } | Found::Segment { reason } => mender.unreadable(&place, &reason),
                Found::Record { .. } | Found::Begins { .. } | Found::Torn { .. } => {}
            },
        )?;
        outcome.map(|()| mender)
    }
}

/// Leaves rows out whose cells were emptied, where nobody has trained on them yet, and says so.
fn exclude_damaged(
    mended: &mut Mender<'_>,
    findings: &Findings,
    sink: &mut dyn FnMut(&Record) -> Result<()>,
) -> Result<()> {
    let mut rows = BTreeSet::new();
    for value in &findings.values {
        mended.report.cells_emptied += 1;
        mended.report.lose(format!(
            "{}: its value is damaged, the cell is null now",
            verify::describe(&mended.state, value)
        ));
        rows.insert((value.table, value.row));
    }
    let open = |&(table, row): &(u32, u32)| mended.state.tables[table as usize].status(row).is_open();
    let excluded: Vec<Operation> = rows
        .iter()
        .filter(|row| open(row))
        .map(|&(table, row)| Operation::Exclude { table, row, reason: DAMAGED.to_owned() })
        .collect();
    if excluded.is_empty() {
        return Ok(());
    }
    mended.report.rows_excluded = excluded.len() as u64;
    let record = Record { time: mended.last_time, event: Event::Written { operations: excluded } };
    let applied = mended.state.apply(record.clone());
    applied.map_err(|reason| Cause::Corrupt { path: PathBuf::from("log"), offset: 0, reason })?;
    sink(&record)
}

fn view_of(value: &NamedValue) -> View {
    View::located(value.length, value.extent, value.generation, value.offset)
}

fn unknown_store(path: &Path) -> crate::error::Error {
    let reason = "neither the identity nor any segment says which store it was".to_owned();
    Cause::Corrupt { path: path.join("FOREBAY"), offset: 0, reason }.into()
}
