//! The objects that policies stand on, and versions that were set, byte by byte.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::fault::FaultKind;
use super::progress::{VerifyProgress, VerifyStage};
use super::report::VerifyReport;
use crate::disk::Disk;
use crate::error::Cause;
use crate::object::{MARK, ObjectRef, path_in, verify_file};
use crate::state::State;

const PIECE_BYTES: usize = 1 << 20;

/// Gives the objects whose bytes are not what was committed.
pub(super) fn check_objects(
    disk: &dyn Disk,
    path: &Path,
    report: &mut VerifyReport,
    state: &State,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Vec<ObjectRef> {
    let mut damaged = Vec::new();
    let folder = path.join("objects");
    let objects: Vec<&ObjectRef> = state.policies.iter().flat_map(|policy| &policy.objects).collect();
    let total_bytes = objects.iter().fold(0, |sum: u64, object| sum.saturating_add(object.bytes));
    let mut named = BTreeSet::new();
    for object in objects {
        let path = path_in(&folder, &object.key, object.version);
        if let Err((offset, reason)) = check_object(disk, &path, object) {
            report.fault(FaultKind::Object, &path, offset, reason);
            damaged.push(object.clone());
        }
        report.checked.objects += 1;
        report.checked.object_bytes = report.checked.object_bytes.saturating_add(object.bytes);
        let done_bytes = report.checked.object_bytes;
        progress(VerifyProgress { stage: VerifyStage::Objects, done_bytes, total_bytes });
        named.insert(path);
    }
    for file in files_under(disk, &folder).into_iter().filter(|file| !named.contains(file)) {
        check_unnamed(disk, file, report);
    }
    damaged
}

/// A file that no policy stands on: a version that was set, which says itself what it has to hold, or an orphan.
fn check_unnamed(disk: &dyn Disk, path: PathBuf, report: &mut VerifyReport) {
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension == Some(MARK) && disk.exists(&path.with_extension("safetensors")) {
        return; // a version that is deleted, and that a step or a holder keeps
    }
    if extension != Some("safetensors") {
        return report.orphans.push(path); // half written, or half removed
    }
    match verify_file(disk, &path) {
        Ok(Some(bytes)) => {
            report.checked.objects += 1;
            report.checked.object_bytes = report.checked.object_bytes.saturating_add(bytes);
        }
        Ok(None) => report.orphans.push(path),
        Err(error) => match error.cause() {
            Cause::Io { source, .. } if source.kind() == ErrorKind::NotFound => {} // its version went meanwhile
            Cause::Corrupt { offset, reason, .. } => {
                report.fault(FaultKind::Object, &path, *offset, reason.clone());
            }
            _ => report.fault(FaultKind::Object, &path, 0, error.to_string()),
        },
    }
}

/// # Errors
/// Where and why the file is not what was committed.
fn check_object(disk: &dyn Disk, path: &Path, object: &ObjectRef) -> Result<(), (u64, String)> {
    let unread = |e: std::io::Error| (0, format!("it cannot be read: {e}"));
    let file = disk.open(path).map_err(unread)?;
    let length = file.length().map_err(unread)?;
    if length != object.bytes {
        return Err((
            length.min(object.bytes),
            format!("{length} bytes lie where {} were committed", object.bytes),
        ));
    }
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES))];
    let (mut at, mut crc) = (0, 0);
    while at < length {
        let piece = &mut buffer[..PIECE_BYTES.min((length - at) as usize)];
        file.read_at(piece, at).map_err(|e| (at, format!("it cannot be read: {e}")))?;
        crc = crc32c::crc32c_append(crc, piece);
        at += piece.len() as u64;
    }
    if crc == object.crc32c {
        Ok(())
    } else {
        Err((0, "its bytes do not match the committed checksum".into()))
    }
}

/// The files of every key.
fn files_under(disk: &dyn Disk, folder: &Path) -> Vec<PathBuf> {
    let keys = disk.list(folder).unwrap_or_default();
    keys.iter().flat_map(|key| disk.list(key).unwrap_or_default()).collect()
}
