//! The objects that policies stand on, and versions that were set, byte by byte.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::fault::FaultKind;
use super::progress::{VerifyStage, Watched};
use super::report::VerifyReport;
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::object::{MARK, ObjectRef, path_in, verify_file};
use crate::state::State;

const PIECE_BYTES: usize = 1 << 20;

/// Gives the objects whose bytes are not what was committed.
pub(super) fn check_objects(
    disk: &dyn Disk,
    path: &Path,
    report: &mut VerifyReport,
    state: &State,
    watched: &mut Watched<'_>,
) -> Result<Vec<ObjectRef>> {
    let mut damaged = Vec::new();
    let folder = path.join("objects");
    let objects: Vec<&ObjectRef> = state.policies.iter().flat_map(|policy| &policy.objects).collect();
    let bytes_of = |path: &PathBuf| disk.open(path).and_then(|file| file.length()).unwrap_or(0);
    let files = files_under(disk, &folder);
    watched.begin(VerifyStage::Objects, files.iter().map(bytes_of).fold(0, u64::saturating_add));
    let mut named = BTreeSet::new();
    for object in objects {
        let path = path_in(&folder, &object.key, object.version);
        if let Err((offset, reason)) = check_object(disk, &path, object, watched)? {
            report.fault(FaultKind::Object, &path, offset, reason);
            damaged.push(object.clone());
        }
        report.checked.objects += 1;
        report.checked.object_bytes = report.checked.object_bytes.saturating_add(object.bytes);
        named.insert(path);
    }
    for file in files.into_iter().filter(|file| !named.contains(file)) {
        check_unnamed(disk, file, report, watched)?;
    }
    Ok(damaged)
}

/// A file that no policy stands on: a version that was set, which says itself what it has to hold, or an orphan.
fn check_unnamed(
    disk: &dyn Disk,
    path: PathBuf,
    report: &mut VerifyReport,
    watched: &mut Watched<'_>,
) -> Result<()> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension == Some(MARK) && !matches!(disk.exists(&path.with_extension("safetensors")), Ok(false)) {
        return Ok(()); // a version that is deleted, and that a step or a holder keeps
    }
    if extension != Some("safetensors") {
        report.orphans.push(path); // half written, or half removed
        return Ok(());
    }
    match verify_file(disk, &path, &mut |bytes| watched.looked_at(bytes)) {
        Ok(Some(bytes)) => {
            report.checked.objects += 1;
            report.checked.object_bytes = report.checked.object_bytes.saturating_add(bytes);
        }
        Ok(None) => report.orphans.push(path),
        Err(error) => match error.cause() {
            Cause::Stopped { .. } => return Err(error),
            Cause::Io { source, .. } if source.kind() == ErrorKind::NotFound => {} // its version went meanwhile
            Cause::Corrupt { offset, reason, .. } => {
                report.fault(FaultKind::Object, &path, *offset, reason.clone());
            }
            _ => report.fault(FaultKind::Object, &path, 0, error.to_string()),
        },
    }
    Ok(())
}

/// Gives where and why the file is not what was committed, if so.
///
/// # Errors
/// `Stopped`.
fn check_object(
    disk: &dyn Disk,
    path: &Path,
    object: &ObjectRef,
    watched: &mut Watched<'_>,
) -> Result<Result<(), (u64, String)>> {
    let mut goes_on = Ok(());
    let checked = read_object(disk, path, object, &mut |bytes| {
        goes_on = watched.looked_at(bytes);
        goes_on.is_ok()
    });
    goes_on.map(|()| checked)
}

/// Whether a file is an object that was committed, every byte of it.
///
/// # Errors
/// In words, why not.
pub(crate) fn check_object_file(disk: &dyn Disk, path: &Path, object: &ObjectRef) -> Result<(), String> {
    read_object(disk, path, object, &mut |_| true).map_err(|(_, reason)| reason)
}

/// # Errors
/// Where and why the file is not what was committed, as far as it was read: `go_on` is told of every piece, and says whether to
/// read the next.
fn read_object(
    disk: &dyn Disk,
    path: &Path,
    object: &ObjectRef,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(), (u64, String)> {
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
        crc = crate::checksum::crc32c_append(crc, piece);
        at += piece.len() as u64;
        if !go_on(piece.len() as u64) {
            return Ok(());
        }
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
