//! The checkpoint: its manifest, and every page image that it names, read and held against its checksum.

use std::collections::BTreeMap;

use super::fault::FaultKind;
use super::progress::{VerifyStage, Watched};
use super::report::VerifyReport;
use crate::checkpoint::{self, Manifest, image_bytes};
use crate::directory::Directory;
use crate::disk::DiskFile;
use crate::error::{Cause, Error, Result};
use crate::numbered::Numbered;
use crate::page::StoredAt;
use crate::state::State;

const PIECE_BYTES: usize = 1 << 20;

/// The state that the checkpoint stands for, and the first record that is not in it. Where there is none, or it is
/// damaged, the state of an empty store: then the log has to go back to its first record.
pub(crate) fn begin(
    directory: &Directory,
    report: &mut VerifyReport,
    claims_kept: usize,
    watched: &mut Watched<'_>,
) -> Result<(State, u64)> {
    let empty = || (State::new(claims_kept), 0);
    let manifest = match Manifest::read(directory) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => return Ok(empty()),
        Err(error) => {
            tell(directory, report, &error);
            return Ok(empty());
        }
    };
    let named = |number: u32| manifest.files.iter().any(|file| file.number == number);
    let files = directory.disk.list(&directory.pages()).unwrap_or_default();
    let unnamed =
        |path: &std::path::PathBuf| Numbered::Pages.number(path).is_some_and(|number| !named(number));
    report.orphans.extend(files.into_iter().filter(unnamed));
    let before = report.fault_count();
    check_images(directory, report, &manifest, watched)?;
    if report.fault_count() > before {
        return Ok(empty());
    }
    let from = manifest.next_sequence;
    match checkpoint::restore(directory, manifest, claims_kept) {
        Ok(state) => Ok((state, from)),
        Err(error) => {
            tell(directory, report, &error);
            Ok(empty())
        }
    }
}

fn check_images(
    directory: &Directory,
    report: &mut VerifyReport,
    manifest: &Manifest,
    watched: &mut Watched<'_>,
) -> Result<()> {
    let all = images(manifest).map(|image| image_bytes(image.parts));
    watched.begin(VerifyStage::Checkpoint, all.fold(0, u64::saturating_add));
    let mut open: BTreeMap<u32, Result<Box<dyn DiskFile>, String>> = BTreeMap::new();
    for image in images(manifest).filter(|image| image_bytes(image.parts) > 0) {
        let path = directory.pages_path(image.file);
        let file =
            open.entry(image.file).or_insert_with(|| directory.disk.open(&path).map_err(|e| e.to_string()));
        let checked = match file {
            Ok(file) => check_image(&**file, image),
            Err(reason) => Err(format!("the file cannot be read: {reason}")),
        };
        report.checked.pages += 1;
        report.checked.page_bytes = report.checked.page_bytes.saturating_add(image_bytes(image.parts));
        if let Err(reason) = checked {
            report.fault(FaultKind::Checkpoint, &path, image.offset, reason);
        }
        watched.looked_at(image_bytes(image.parts))?;
    }
    Ok(())
}

fn check_image(file: &dyn DiskFile, image: StoredAt) -> Result<(), String> {
    let unread = |e: std::io::Error| format!("a page image cannot be read: {e}");
    let (length, there) = (image_bytes(image.parts), file.length().map_err(unread)?);
    if image.offset.checked_add(length).is_none_or(|end| end > there) {
        return Err(format!("a page image of {length} bytes lies outside the file of {there} bytes"));
    }
    let mut buffer = vec![0; (length as usize).min(PIECE_BYTES)];
    let (mut at, mut crc) = (0, 0);
    while at < length {
        let piece = &mut buffer[..PIECE_BYTES.min((length - at) as usize)];
        file.read_at(piece, image.offset + at).map_err(unread)?;
        crc = crate::checksum::crc32c_append(crc, piece);
        at += piece.len() as u64;
    }
    if crc == image.crc32c { Ok(()) } else { Err("a page image does not match its checksum".to_owned()) }
}

/// Every image that a manifest names.
fn images(manifest: &Manifest) -> impl Iterator<Item = StoredAt> + '_ {
    let texts = manifest.texts.pages.iter().copied();
    let text_runs = manifest.texts.runs.iter().map(|run| run.entries);
    let tables = manifest.tables.iter().flat_map(|table| {
        let runs = table.runs.iter().map(|run| run.entries);
        let chunks = table.chunks.iter().flat_map(|chunk| {
            let fixed = [chunk.meta, chunk.status, chunk.removed].into_iter();
            fixed.chain(chunk.columns.iter().copied()).chain(chunk.words.iter().copied())
        });
        runs.chain(chunks)
    });
    let consumers =
        manifest.consumers.iter().flat_map(|consumer| checkpoint::consumers::images(&consumer.state));
    texts.chain(text_runs).chain(tables).chain(consumers)
}

fn tell(directory: &Directory, report: &mut VerifyReport, error: &Error) {
    match error.cause() {
        Cause::Corrupt { path, offset, reason } => {
            report.fault(FaultKind::Checkpoint, path, *offset, reason.clone());
        }
        _ => report.fault(FaultKind::Checkpoint, &Manifest::path(directory), 0, error.with_sources()),
    }
}
