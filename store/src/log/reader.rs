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

/// Gives every record to `apply`, in order.
///
/// # Errors
/// A record that is damaged, out of order or not decodable is `corrupt`, named with file and offset; so is one that
/// `apply` refuses. Nothing is skipped. Only the torn end of a segment that the next one does not miss is passed over.
pub(crate) fn read(
    directory: &Directory,
    mut apply: impl FnMut(u64, Record) -> Result<(), String>,
) -> Result<LogEnd> {
    let mut end = LogEnd::default();
    let log = directory.log();
    let files = directory.disk.list(&log).map_err(|e| Cause::io("list", &log, e))?;
    for path in files.iter().filter(|path| path.extension().is_some_and(|e| e == "log")) {
        read_segment(directory, path, &mut end, &mut apply)?;
    }
    Ok(end)
}

fn read_segment(
    directory: &Directory,
    path: &Path,
    end: &mut LogEnd,
    apply: &mut impl FnMut(u64, Record) -> Result<(), String>,
) -> Result<()> {
    let bytes = directory.disk.read(path).map_err(|e| Cause::io("read", path, e))?;
    let number = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok()).unwrap_or(0);
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
