//! Reads the log from its first record to its last.

use std::path::{Path, PathBuf};

use super::frame::{Frame, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, decode_frame};
use super::record::Record;
use crate::directory::{Directory, FORMAT_VERSION};
use crate::error::{Cause, Error, Result};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    /// The number of the last segment, 0 when there is none.
    pub(crate) last_segment: u32,
    /// The sequence number of the next record.
    pub(crate) next_sequence: u64,
    /// Every record below this one was on stable storage when the log was written.
    pub(crate) durable_through: u64,
    /// How many records were read.
    pub(crate) records: u64,
    /// Bytes of appends that were cut short; they were never acknowledged.
    pub(crate) torn_bytes: u64,
}

/// Gives every record from number `from` on to `apply`, in order; segments that lie before it may be missing.
///
/// # Errors
/// A record that is damaged, out of order or not decodable is `corrupt`, named with file and offset; so is one that
/// `apply` refuses. Nothing is skipped. Only the torn end of a segment that the next one does not miss is passed over.
pub(crate) fn read(
    directory: &Directory,
    from: u64,
    mut apply: impl FnMut(u64, Record) -> Result<(), String>,
) -> Result<LogEnd> {
    let mut files = segments(directory)?;
    let mut end = LogEnd::default();
    if from > 0 {
        end = skip_to(directory, &mut files, from)?;
    }
    for path in &files {
        read_segment(directory, path, &mut end, &mut |sequence, record| {
            if sequence < from { Ok(()) } else { apply(sequence, record) }
        })?;
    }
    if end.next_sequence < from {
        let reason = format!("the log ends at record {}, a checkpoint covers {from}", end.next_sequence);
        return Err(corrupt(&directory.log(), 0, reason));
    }
    Ok(end)
}

/// The files of the log, in order.
pub(super) fn segments(directory: &Directory) -> Result<Vec<PathBuf>> {
    let log = directory.log();
    let mut files = directory.disk.list(&log).map_err(|e| Cause::io("list", &log, e))?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    Ok(files)
}

/// The number in a segment's name.
pub(super) fn number_of(path: &Path) -> u32 {
    path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).unwrap_or(0)
}

/// The number of a segment's first record; `None` when its creation was cut short.
pub(super) fn first_sequence(directory: &Directory, path: &Path) -> Result<Option<u64>> {
    let file = directory.disk.open(path).map_err(|e| Cause::io("open", path, e))?;
    let mut header = [0; SEGMENT_HEADER_BYTES];
    match file.read_at(&mut header, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read.map_err(|e| Cause::io("read", path, e))?,
    }
    Ok(SegmentHeader::decode(&header).ok().map(|header| header.first_sequence))
}

/// Leaves out the segments that end before record `from`, and says where the log before the rest ended.
fn skip_to(directory: &Directory, files: &mut Vec<PathBuf>, from: u64) -> Result<LogEnd> {
    let mut start = None;
    for (at, path) in files.iter().enumerate() {
        match first_sequence(directory, path)? {
            Some(first) if first <= from => start = Some((at, first)),
            Some(_) => break,
            None => {}
        }
    }
    let Some((at, next_sequence)) = start else {
        let reason = format!("no segment holds record {from}, which a checkpoint goes on with");
        return Err(corrupt(&directory.log(), 0, reason));
    };
    files.drain(..at);
    let last_segment = number_of(&files[0]).saturating_sub(1);
    // The checkpoint made everything before it stable.
    Ok(LogEnd { last_segment, next_sequence, durable_through: from, ..LogEnd::default() })
}

fn read_segment(
    directory: &Directory,
    path: &Path,
    end: &mut LogEnd,
    apply: &mut impl FnMut(u64, Record) -> Result<(), String>,
) -> Result<()> {
    let bytes = directory.disk.read(path).map_err(|e| Cause::io("read", path, e))?;
    let number = number_of(path);
    let last_segment = std::mem::replace(&mut end.last_segment, number);
    if number != last_segment + 1 {
        return Err(corrupt(path, 0, format!("segment {} is missing before it", last_segment + 1)));
    }
    let Some(header) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
        end.torn_bytes += bytes.len() as u64; // its creation was cut short
        return Ok(());
    };
    let header = check_header(directory, path, header, end, number)?;
    end.durable_through = end.durable_through.max(header.durable_through);
    let mut at = SEGMENT_HEADER_BYTES;
    loop {
        match decode_frame(&bytes, at) {
            Frame::End => return Ok(()),
            Frame::Torn => {
                end.torn_bytes += (bytes.len() - at) as u64;
                return Ok(());
            }
            Frame::Damaged(reason) => return Err(corrupt(path, at, reason.into())),
            Frame::Record { sequence, durable_through, payload, end: next } => {
                if sequence != end.next_sequence {
                    return Err(corrupt(
                        path,
                        at,
                        format!("record {sequence} stands where {} should", end.next_sequence),
                    ));
                }
                if durable_through > sequence {
                    let reason = format!("record {sequence} calls records durable that come after it");
                    return Err(corrupt(path, at, reason));
                }
                let record = Record::decode(payload)
                    .map_err(|e| corrupt(path, at, format!("record {sequence}: {e}")))?;
                apply(sequence, record).map_err(|e| corrupt(path, at, format!("record {sequence}: {e}")))?;
                end.durable_through = end.durable_through.max(durable_through);
                end.next_sequence += 1;
                end.records += 1;
                at = next;
            }
        }
    }
}

fn check_header(
    directory: &Directory,
    path: &Path,
    header: &[u8; SEGMENT_HEADER_BYTES],
    end: &LogEnd,
    number: u32,
) -> Result<SegmentHeader> {
    let header = SegmentHeader::decode(header).map_err(|fault| match fault {
        HeaderFault::Damaged => corrupt(path, 0, "the segment's header does not match its checksum".into()),
        HeaderFault::Format(found) => {
            Cause::FormatVersion { path: path.to_owned(), found, expected: FORMAT_VERSION }.into()
        }
    })?;
    if header.store_id != directory.store_id || header.number != number {
        return Err(corrupt(
            path,
            0,
            "the segment belongs to another store or carries another number".into(),
        ));
    }
    if header.first_sequence != end.next_sequence {
        let reason = format!(
            "it begins with record {}, the one before it ends at {}",
            header.first_sequence, end.next_sequence
        );
        return Err(corrupt(path, 0, reason));
    }
    if header.durable_through > header.first_sequence {
        return Err(corrupt(path, 0, "it calls records durable that come after it".into()));
    }
    Ok(header)
}

fn corrupt(path: &Path, offset: usize, reason: String) -> Error {
    Cause::Corrupt { path: PathBuf::from(path), offset: offset as u64, reason }.into()
}
