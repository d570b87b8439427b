//! The files of values: their headers, and every value in them that a row names.

use std::collections::HashSet;
use std::path::Path;

use super::carried::Carried;
use super::fault::FaultKind;
use super::named::NamedValue;
use super::progress::{VerifyStage, Watched};
use super::report::VerifyReport;
use super::value::check_value;
use crate::disk::{Disk, DiskFile};
use crate::error::{Cause, Result};
use crate::extent::{ExtentHeader, HEADER_BYTES};
use crate::numbered::Numbered;
use crate::state::State;

/// A file of values that is open and whose header has been looked at.
pub(super) struct OpenExtent {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) length: u64,
}

/// Values that are not in their files.
#[derive(Default)]
pub(super) struct Missed {
    /// Their bytes are not what was written.
    pub(super) damaged: Vec<NamedValue>,
    /// Nor are these in their files, but they are carried.
    pub(super) carried: Vec<NamedValue>,
}

/// Checks every extent.
pub(super) fn check_extents(
    carried: &mut Carried<'_>,
    report: &mut VerifyReport,
    values: &[NamedValue],
    watched: &mut Watched<'_>,
) -> Result<Missed> {
    let (disk, state) = (&*carried.directory.disk, carried.state);
    let folder = carried.directory.extents();
    let mut missed = Missed::default();
    watched.begin(VerifyStage::Values, values.iter().map(|value| u64::from(value.length)).sum());
    let begun_anew = check_headers(carried, report, values)?;
    for group in values.chunk_by(|a, b| a.extent == b.extent) {
        let opened = open_extent(disk, &folder, group[0].extent);
        let last = last_generation(group);
        for value in group {
            let begun_since = last.filter(|last| value.generation < *last);
            let checked = match (begun_since, &opened) {
                (Some(last), _) => Err((FaultKind::Extent, over(value, last))),
                (None, Ok(extent)) => check_value(extent, state, value),
                (None, Err(reason)) => Err((FaultKind::Extent, reason.clone())),
            };
            let is_missed = checked.is_err() || begun_anew.contains(&value.extent);
            if is_missed && begun_since.is_none() && carried.has(value)? {
                report.checked.values_carried += 1;
                missed.carried.push(*value);
            } else if let Err((kind, reason)) = checked {
                let what = describe(state, value);
                let path = Numbered::Extent.path(&folder, value.extent);
                report.fault(kind, &path, u64::from(value.offset), format!("{what}: {reason}"));
                missed.damaged.push(*value);
            }
            report.checked.values += 1;
            report.checked.value_bytes += u64::from(value.length);
            watched.looked_at(u64::from(value.length))?;
        }
    }
    Ok(missed)
}

/// The values of one file, of those that lie in the order in which they lie in files.
fn named_in(values: &[NamedValue], number: u32) -> &[NamedValue] {
    let from = values.partition_point(|value| value.extent < number);
    let to = values.partition_point(|value| value.extent <= number);
    &values[from..to]
}

/// The last generation that values of one file name: what lies in an earlier one is dead, whatever names it. Rows of two
/// are left where the record is gone that deleted those of the first.
fn last_generation(group: &[NamedValue]) -> Option<u32> {
    group.iter().map(|value| value.generation).max()
}

fn over(value: &NamedValue, last: u32) -> String {
    format!(
        "it lies in generation {} of the file, which was begun anew since: others name {last}",
        value.generation
    )
}

/// Looks at the header of every file that is there. One that no row names and that holds no header is what a crash
/// leaves of an extent that was being made. Gives the extents whose headers are written anew with what is put back into them.
fn check_headers(
    carried: &mut Carried<'_>,
    report: &mut VerifyReport,
    values: &[NamedValue],
) -> Result<HashSet<u32>> {
    let (disk, folder) = (&*carried.directory.disk, carried.directory.extents());
    let mut begun_anew = HashSet::new();
    for path in disk.list(&folder).map_err(|e| Cause::io("list", &folder, e))? {
        let Some(number) = Numbered::Extent.number(&path) else { continue };
        report.checked.extents += 1;
        let named = last_generation(named_in(values, number));
        if named.is_none() {
            report.orphans.push(path.clone());
        }
        let header = read_header(disk, &path);
        if let Ok(Some(header)) = &header {
            check_owner(report, &path, number, header);
        }
        // Made or begun anew when the process died, where nothing names it.
        let Some(named) = named else { continue };
        let Some((at, reason)) = wrong_header(&header, named) else { continue };
        let is_used_again = header.is_ok_and(|found| found.is_some_and(|found| found.generation > named));
        if !is_used_again && carried.has_in((number, named))? {
            begun_anew.insert(number);
        } else {
            report.fault(FaultKind::Extent, &path, at, reason);
        }
    }
    Ok(begun_anew)
}

/// Where and why a header is not that of a generation that rows name.
fn wrong_header(header: &Result<Option<ExtentHeader>, String>, named: u32) -> Option<(u64, String)> {
    match header {
        Ok(Some(header)) if header.generation == named => None,
        Ok(Some(header)) => {
            Some((32, format!("the extent holds generation {}, rows name {named}", header.generation)))
        }
        Ok(None) => Some((0, "the file is shorter than its header".to_owned())),
        Err(reason) => Some((0, reason.clone())),
    }
}

fn check_owner(report: &mut VerifyReport, path: &Path, number: u32, header: &ExtentHeader) {
    if header.number != number || report.store_id.is_some_and(|id| id != header.store_id) {
        let reason = "the extent belongs to another store or carries another number";
        report.fault(FaultKind::Extent, path, 0, reason);
    }
}

fn read_header(disk: &dyn Disk, path: &Path) -> Result<Option<ExtentHeader>, String> {
    let file = disk.open(path).map_err(|e| e.to_string())?;
    let length = file.length().map_err(|e| e.to_string())?;
    let mut header = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Ok(None);
    }
    file.read_at(&mut header, 0).map_err(|e| e.to_string())?;
    ExtentHeader::decode(&header).map(Some)
}

/// # Errors
/// The reason why no value of the file can be read.
pub(super) fn open_extent(disk: &dyn Disk, folder: &Path, number: u32) -> Result<OpenExtent, String> {
    let path = Numbered::Extent.path(folder, number);
    let file = disk.open(&path).map_err(|e| format!("the file cannot be read: {e}"))?;
    let length = file.length().map_err(|e| format!("the file cannot be read: {e}"))?;
    Ok(OpenExtent { file, length })
}

/// The cell that a value belongs to, for people.
pub(crate) fn describe(state: &State, value: &NamedValue) -> String {
    let table = &state.tables[value.table as usize];
    let meta = table.meta(value.row);
    let column = &table.schema.data_columns()[value.column as usize].name;
    format!("{}/{} version {} {column}", table.name, meta.sample(state.texts.pages()), meta.policy_version)
}
