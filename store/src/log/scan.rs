//! Looks at a log as it lies there, sound or not: every header, every frame, every record.
//!
//! [`read`](super::read) stops at the first thing that is wrong, for a store must not be opened beyond it. Here the
//! look goes on: behind a damaged payload at the next frame, behind a damaged frame header at the next place that holds
//! one. What is found is told as it is found; no more of a segment is held in memory than its largest record takes.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::begin;
use super::frame::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::record::Record;
use super::window::{Standing, Window};
use crate::directory::FORMAT_VERSION;
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::header::HeaderFault;
use crate::numbered::Numbered;

/// What stands at a place of the log.
#[derive(Debug)]
pub(crate) enum Found {
    /// A segment's header, which is sound.
    Begins { first_sequence: u64 },
    /// A record that can be read.
    Record { sequence: u64, record: Record, bytes: u64 },
    /// A record that cannot: the frame that should hold it is damaged, or its payload is.
    Damaged { reason: String },
    /// The segment's own header, its name or its place in the order is wrong.
    Segment { reason: String },
    /// The segment ends inside a record: an append that was cut short.
    Torn { bytes: u64 },
}

/// Which file, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
}

/// How much there was to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// The store that the first sound header names.
    pub(crate) store_id: Option<u64>,
    pub(crate) last_segment: u32,
}

/// The store that the first sound header in a log names.
pub(crate) fn store_id(disk: &dyn Disk, folder: &Path) -> Option<u64> {
    let header = |path: &PathBuf| Window::open(disk, path, 0).and_then(|mut window| window.header()).ok()?;
    let decoded = |path: &PathBuf| SegmentHeader::decode(&header(path)?).ok();
    disk.list(folder)
        .ok()?
        .iter()
        .filter(|path| Numbered::Segment.is(path))
        .find_map(|path| Some(decoded(path)?.store_id))
}

/// Tells `tell` about every place of every segment, in order.
///
/// # Errors
/// Only where the folder cannot be listed. A file that cannot be read is told as a fault.
pub(crate) fn scan(
    disk: &dyn Disk,
    folder: &Path,
    store_id: Option<u64>,
    mut tell: impl FnMut(Place, Found),
) -> Result<Scanned> {
    scan_from(disk, folder, (store_id, 0), |place, found| {
        tell(place, found);
        ControlFlow::Continue(())
    })
}

/// The same for who needs the log from record `from` on, for as long as `tell` says to go on.
pub(crate) fn scan_from(
    disk: &dyn Disk,
    folder: &Path,
    (store_id, from): (Option<u64>, u64),
    mut tell: impl FnMut(Place, Found) -> ControlFlow<()>,
) -> Result<Scanned> {
    let files = disk.list(folder).map_err(|e| Cause::io("list", folder, e))?;
    let mut scanned = Scanned { store_id, ..Scanned::default() };
    let segments: Vec<_> = files.into_iter().filter(|path| Numbered::Segment.is(path)).collect();
    let first = begin::first_of(disk, &segments, from);
    for path in segments.into_iter().skip(first) {
        scanned.segments += 1;
        let told = scan_segment(disk, &path, &mut scanned, &mut tell).unwrap_or_else(|error| {
            let reason = format!("it cannot be read: {error}");
            tell(Place { path, offset: 0 }, Found::Segment { reason })
        });
        if told.is_break() {
            break;
        }
    }
    Ok(scanned)
}

fn scan_segment(
    disk: &dyn Disk,
    path: &Path,
    scanned: &mut Scanned,
    tell: &mut impl FnMut(Place, Found) -> ControlFlow<()>,
) -> std::io::Result<ControlFlow<()>> {
    let mut window = Window::open(disk, path, 0)?;
    scanned.bytes += window.length();
    let place = |offset: u64| Place { path: path.to_owned(), offset };
    if let Err(reason) = check_number(path, scanned)
        && tell(place(0), Found::Segment { reason }).is_break()
    {
        return Ok(ControlFlow::Break(()));
    }
    let Some(header) = window.header()? else {
        let is_torn = window.length() > 0;
        let mut torn = || tell(place(0), Found::Torn { bytes: window.length() });
        return Ok(if is_torn { torn() } else { ControlFlow::Continue(()) });
    };
    let found = match check_header(&header, scanned) {
        Ok(first_sequence) => Found::Begins { first_sequence },
        Err(reason) => Found::Segment { reason },
    };
    if tell(place(0), found).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    let mut damaged = false; // a run of bytes that make no sense is told once
    while window.offset() < window.length() {
        let at = window.offset();
        let told = match window.frame()? {
            Standing::Frame { sequence, record, bytes } => {
                damaged = false;
                let found = match record {
                    Ok(record) => Found::Record { sequence, record, bytes },
                    Err(reason) => Found::Damaged { reason: format!("record {sequence}: {reason}") },
                };
                tell(place(at), found)
            }
            Standing::Damaged(_) if std::mem::replace(&mut damaged, true) => ControlFlow::Continue(()),
            Standing::Damaged(reason) => tell(place(at), Found::Damaged { reason: reason.to_owned() }),
            Standing::Torn => return Ok(tell(place(at), Found::Torn { bytes: window.length() - at })),
        };
        if told.is_break() {
            return Ok(told);
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Segments are numbered without a gap, by their names.
fn check_number(path: &Path, scanned: &mut Scanned) -> Result<(), String> {
    let number = Numbered::Segment.number(path).unwrap_or(0);
    let before = std::mem::replace(&mut scanned.last_segment, number);
    // What comes before the first one may have been covered by a checkpoint.
    match scanned.segments == 1 && number > 0 || before.checked_add(1) == Some(number) {
        true => Ok(()),
        false => Err(format!("segment {} is missing before it", before.saturating_add(1))),
    }
}

/// Gives the sequence number that the segment begins with.
fn check_header(header: &[u8; SEGMENT_HEADER_BYTES], scanned: &mut Scanned) -> Result<u64, String> {
    let header = SegmentHeader::decode(header).map_err(|fault| match fault {
        HeaderFault::Damaged => "the segment's header does not match its checksum".to_owned(),
        HeaderFault::Format(found) => {
            format!("the segment has format {found}, this program reads {FORMAT_VERSION}")
        }
    })?;
    let store_id = *scanned.store_id.get_or_insert(header.store_id);
    if header.store_id != store_id || header.number != scanned.last_segment {
        return Err("the segment belongs to another store or carries another number".to_owned());
    }
    Ok(header.first_sequence)
}
