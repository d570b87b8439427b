//! The files of values: their headers, and every value in them that a row names.

use std::path::Path;

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

/// Checks every extent. Gives the values whose bytes are not what was written.
pub(super) fn check_extents(
    disk: &dyn Disk,
    path: &Path,
    report: &mut VerifyReport,
    state: &State,
    values: &[NamedValue],
    watched: &mut Watched<'_>,
) -> Result<Vec<NamedValue>> {
    let mut damaged = Vec::new();
    let folder = path.join("extents");
    watched.begin(VerifyStage::Values, values.iter().map(|value| u64::from(value.length)).sum());
    check_headers(disk, &folder, report, values)?;
    for group in values.chunk_by(|a, b| a.extent == b.extent) {
        let opened = open_extent(disk, &folder, group[0].extent);
        for value in group {
            let checked = match &opened {
                Ok(extent) => check_value(extent, state, value),
                Err(reason) => Err((FaultKind::Extent, reason.clone())),
            };
            if let Err((kind, reason)) = checked {
                let what = describe(state, value);
                let path = Numbered::Extent.path(&folder, value.extent);
                report.fault(kind, &path, u64::from(value.offset), format!("{what}: {reason}"));
                damaged.push(*value);
            }
            report.checked.values += 1;
            report.checked.value_bytes += u64::from(value.length);
            watched.looked_at(u64::from(value.length))?;
        }
    }
    Ok(damaged)
}

/// Looks at the header of every file that is there. One that no row names and that holds no header is what a crash
/// leaves of an extent that was being made.
fn check_headers(
    disk: &dyn Disk,
    folder: &Path,
    report: &mut VerifyReport,
    values: &[NamedValue],
) -> Result<()> {
    for path in disk.list(folder).map_err(|e| Cause::io("list", folder, e))? {
        let Some(number) = Numbered::Extent.number(&path) else { continue };
        report.checked.extents += 1;
        let named = values.binary_search_by_key(&number, |value| value.extent);
        let named = named.ok().map(|index| values[index]);
        if named.is_none() {
            report.orphans.push(path.clone());
        }
        match read_header(disk, &path) {
            Ok(Some(header)) => {
                let ours = header.number == number && report.store_id.is_none_or(|id| id == header.store_id);
                if !ours {
                    let reason = "the extent belongs to another store or carries another number";
                    report.fault(FaultKind::Extent, &path, 0, reason);
                }
                if let Some(value) = named.filter(|value| value.generation != header.generation) {
                    let (found, expected) = (header.generation, value.generation);
                    let reason = format!("the extent holds generation {found}, rows name {expected}");
                    report.fault(FaultKind::Extent, &path, 32, reason);
                }
            }
            // Made or begun anew when the process died, and named by nothing.
            Ok(None) | Err(_) if named.is_none() => {}
            Ok(None) => report.fault(FaultKind::Extent, &path, 0, "the file is shorter than its header"),
            Err(reason) => report.fault(FaultKind::Extent, &path, 0, reason),
        }
    }
    Ok(())
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
