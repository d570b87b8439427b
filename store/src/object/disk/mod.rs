//! The disk tier: a file a version, which stock readers of safetensors open.
//!
//! ```text
//! length of the header u64 | header: JSON, filled up with spaces to a multiple of 4096 | data
//! ```
//! Data is the payloads one after the other, each from a multiple of 4096 on, as they lie in memory. What fills tensors up
//! is named in the header as tensors of bytes (`__pad_0`, ...), for readers accept no holes. The manifest is the value of
//! `forebay` in the header's metadata, beside what the writer said.
//!
//! Beside the file of a version that was deleted, and that has to stay, stands a mark ([`ending`]).
//!
//! A file is written under another name, synced, renamed, and its name synced: it is there whole or not at all. What is read
//! is held against its checksums. What is spilled and what comes back goes past the system's cache where it can
//! ([`Passage`]); what is read where it lies goes through it.

mod copy;
mod ending;
mod header;

use std::io::ErrorKind;
use std::path::Path;

use crate::disk::Disk;
use crate::error::{Cause, Result};

pub(super) use copy::{DiskCopy, NotWritten, Passage, remove_unfinished};
pub(crate) use copy::{Found, look_at};
pub(crate) use ending::{
    ASIDE, MARK, is_marked, mark_deleted, never_came, remove_aside, remove_marks, remove_needless_mark,
    set_aside, unmark,
};
pub(crate) use header::METADATA_KEY;

/// Checks every byte of a file of the object layer, and gives how many it has; `None` for any other file. `go_on` is told how
/// many bytes more were read.
///
/// # Errors
/// `corrupt` with offset and reason; what `go_on` fails with.
pub(crate) fn verify_file(
    disk: &dyn Disk,
    path: &Path,
    go_on: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<u64>> {
    let Found::Ours { manifest, copy, .. } = look_at(disk, path)? else { return Ok(None) };
    copy.verify_while(disk, &manifest, go_on)?;
    Ok(Some(copy.bytes()))
}

/// Whether a file is a version of the object layer, sound or not. One that cannot be looked at may be.
pub(crate) fn is_ours(disk: &dyn Disk, path: &Path) -> bool {
    check_ours(disk, path).unwrap_or(true)
}

/// As [`is_ours`], and says why a file cannot be looked at.
pub(crate) fn check_ours(disk: &dyn Disk, path: &Path) -> Result<bool> {
    match look_at(disk, path) {
        Ok(found) => Ok(matches!(found, Found::Ours { .. })),
        Err(error) => match error.cause() {
            Cause::Io { source, .. } if source.kind() == ErrorKind::NotFound => Ok(false),
            _ => Err(error),
        },
    }
}
