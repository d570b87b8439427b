//! The files of the log, in order.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::frame::{
    FRAME_HEADER_BYTES, OF_NO_RUN, SEGMENT_HEADER_BYTES, SegmentHeader, SoundFrame, sound_frame,
};
use crate::directory::{Directory, FORMAT_VERSION};
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::header::HeaderFault;
use crate::numbered::Numbered;
use crate::unsynced::sync_all;

/// One file of the log.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    /// By its name; 0 when it is not named as a segment.
    pub(crate) number: u32,
    pub(super) header: HeaderFound,
}

/// What a segment begins with.
#[derive(Debug)]
pub(super) enum HeaderFound {
    Sound(SegmentHeader),
    /// Fewer bytes than a header: its creation was cut short.
    Short,
    Damaged,
}

impl SegmentFile {
    pub(super) fn sound(&self) -> Option<&SegmentHeader> {
        match &self.header {
            HeaderFound::Sound(header) => Some(header),
            HeaderFound::Short | HeaderFound::Damaged => None,
        }
    }
}

/// Every segment by number, with its header.
///
/// # Errors
/// `state` for a segment of another format, `corrupt` for one of another store.
pub(crate) fn segments(directory: &Directory) -> Result<Vec<SegmentFile>> {
    let log = directory.log();
    let files = directory.disk.list(&log).map_err(|e| Cause::io("list", &log, e))?;
    let named = files.into_iter().filter(|path| Numbered::Segment.is(path));
    named.map(|path| look_at(directory, path)).collect()
}

fn look_at(directory: &Directory, path: PathBuf) -> Result<SegmentFile> {
    let number = Numbered::Segment.number(&path).unwrap_or(0);
    let io = |e| Cause::io("read", &path, e);
    let file = directory.disk.open(&path).map_err(io)?;
    let mut header = [0; SEGMENT_HEADER_BYTES];
    if file.length().map_err(io)? < header.len() as u64 {
        return Ok(SegmentFile { path, number, header: HeaderFound::Short });
    }
    file.read_at(&mut header, 0).map_err(io)?;
    let header = match SegmentHeader::decode(&header) {
        Err(HeaderFault::Damaged) => HeaderFound::Damaged,
        Err(HeaderFault::Format(found)) => {
            return Err(Cause::FormatVersion { path, found, expected: FORMAT_VERSION }.into());
        }
        Ok(header) if header.store_id != directory.store_id || header.number != number => {
            let reason = "the segment belongs to another store or carries another number".to_owned();
            return Err(Cause::Corrupt { path, offset: 0, reason }.into());
        }
        Ok(header) => HeaderFound::Sound(header),
    };
    Ok(SegmentFile { path, number, header })
}

/// The run of the machine that wrote the last segment.
pub(crate) fn last_boot(segments: &[SegmentFile]) -> Option<u128> {
    segments.iter().rev().find_map(SegmentFile::sound).map(|header| header.boot)
}

/// The greatest `durable_through` that any sound header of the log tells, beyond damage too: what follows damage proves
/// that the damaged bytes were once there.
pub(crate) fn survey(directory: &Directory, segments: &[SegmentFile]) -> Result<u64> {
    let mut durable = 0;
    for segment in segments {
        let bytes = directory.disk.read(&segment.path).map_err(|e| Cause::io("read", &segment.path, e))?;
        let header = segment.sound();
        durable = durable.max(header.map_or(0, |header| header.durable_through));
        durable = durable.max(survey_frames(&bytes, header.map(|header| header.first_sequence)));
    }
    Ok(durable)
}

/// The same of one segment's frames, of which the first has the sequence number `next` where that is known.
///
/// Behind damage any 32 bytes may look like a frame's header, for instance those of a log that somebody has stored as a value.
/// So one counts where as many records as its number says can lie between the last sound one and it.
fn survey_frames(bytes: &[u8], mut next: Option<u64>) -> u64 {
    let (mut durable, mut at, mut sound_until) = (0, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let passed = ((at - sound_until) / FRAME_HEADER_BYTES) as u64;
        let fits = |frame: &SoundFrame| {
            next.is_none_or(|next| (next..=next.saturating_add(passed)).contains(&frame.sequence))
        };
        match sound_frame(rest).filter(fits) {
            Some(frame) => {
                durable = durable.max(frame.durable_through);
                next = frame.sequence.checked_add(1);
                at = at.saturating_add(frame.length);
                sound_until = at;
            }
            None => at += 8, // frames begin at multiples of 8
        }
    }
    durable
}

/// Cuts the log behind `offset` of segment `number`, for good: what lies beyond is never read again. `next_sequence` is the
/// record that would come there; everything below it is on stable storage by now.
///
/// What is cut away may hold the only proof of how far the log was durable, and values below that may have been used again
/// since. So the proof is written first, as the header of a segment that takes the next one's place; then the end of this
/// one goes, then the later ones, from the last. Whoever opens the store after a crash in here comes to the same judgement,
/// at this place or behind the new header: no segment that is left names this run of the machine, so he checks too.
/// Number 0 leaves no segment at all, and there is nothing to prove.
pub(crate) fn cut(directory: &Directory, number: u32, offset: u64, next_sequence: u64) -> Result<()> {
    let log = directory.log();
    let mut files = segments(directory)?;
    files.sort_by_key(|file| file.number);
    if let Some(last) = files.iter().find(|file| file.number == number && number > 0) {
        let proof = SegmentHeader {
            number: number + 1,
            store_id: directory.store_id,
            first_sequence: next_sequence,
            boot: OF_NO_RUN,
            durable_through: next_sequence,
        };
        replace(directory, &directory.segment_path(number + 1), &proof.encode())?;
        shorten(&*directory.disk, &last.path, offset)?;
    }
    let kept = if number > 0 { number + 1 } else { 0 };
    for beyond in files.iter().rev().filter(|file| file.number > kept) {
        directory.disk.remove(&beyond.path).map_err(|e| Cause::io("remove", &beyond.path, e))?;
        directory.disk.sync_directory(&log).map_err(|e| Cause::io("sync", &log, e))?;
    }
    Ok(())
}

/// Writes a segment of a header alone behind segment `last` of a copy of the log, of which every record below `next_sequence` is on
/// stable storage with what the state there stands on: values that were deleted since, and objects of steps that were undone,
/// are no part of a copy and not to be missed.
pub(crate) fn prove_copy(
    directory: &Directory,
    (disk, folder): (&dyn Disk, &Path),
    last: u32,
    next_sequence: u64,
) -> Result<()> {
    let Some(number) = last.checked_add(1).filter(|_| last > 0) else { return Ok(()) };
    let proof = SegmentHeader {
        number,
        store_id: directory.store_id,
        first_sequence: next_sequence,
        boot: directory.disk.boot(),
        durable_through: next_sequence,
    };
    let path = Numbered::Segment.path(folder, number);
    let file = disk.create(&path).map_err(|e| Cause::io("create", &path, e))?;
    file.append(&proof.encode()).map_err(|e| Cause::io("write", &path, e))?;
    file.sync().map_err(|e| Cause::io("sync", &path, e).into())
}

/// Removes the segments before the one that holds the last record below `sequence`: a checkpoint holds what they say, and that one
/// is on stable storage with it. One that begins with `sequence` may not be yet, so nothing goes for its sake.
pub(super) fn remove_below(directory: &Directory, sequence: u64) -> Result<()> {
    let files = segments(directory)?;
    let begins = |file: &SegmentFile| file.sound().is_some_and(|header| header.first_sequence < sequence);
    let Some(covers) = files.iter().rposition(begins) else { return Ok(()) };
    // From the first on, so that no gap is ever left. One whose making was cut short holds nothing and goes with the others.
    for SegmentFile { path, .. } in &files[..covers] {
        directory.disk.remove(path).map_err(|e| Cause::io("remove", path, e))?;
    }
    Ok(())
}

/// Takes away what a file holds from `length` on, in place: a disk that is full has no room for another one. What a power
/// failure leaves of the end may be zeros, or stand as it did.
fn shorten(disk: &dyn Disk, path: &Path, length: u64) -> Result<()> {
    let file = disk.open_writable(path).map_err(|e| Cause::io("open", path, e))?;
    file.set_length(length).map_err(|e| Cause::io("cut", path, e))?;
    file.sync().map_err(|e| Cause::io("sync", path, e).into())
}

/// Puts a file with these bytes in a file's place once it is on stable storage, name and all.
fn replace(directory: &Directory, path: &Path, bytes: &[u8]) -> Result<()> {
    let io = |verb| move |e| Cause::io(verb, path, e);
    let disk = &*directory.disk;
    let temporary = path.with_extension("tmp");
    disk.remove_if_there(&temporary).map_err(io("replace"))?;
    let file = disk.create(&temporary).map_err(io("rewrite"))?;
    file.append(bytes).map_err(io("rewrite"))?;
    file.sync().map_err(io("sync"))?;
    disk.rename(&temporary, path).map_err(io("rename"))?;
    sync_all(disk, &BTreeSet::from([path.to_owned()]))
}

#[cfg(test)]
mod tests {
    use super::super::frame::{begin_frame, end_frame};
    use super::*;

    fn push(bytes: &mut Vec<u8>, payload: &[u8], (sequence, durable_through): (u64, u64)) -> usize {
        let start = begin_frame(bytes);
        bytes.extend_from_slice(payload);
        end_frame(bytes, start, payload.len(), sequence, durable_through);
        start
    }

    #[test]
    fn frames_behind_damage_count_and_those_of_a_log_that_was_stored_as_a_value_do_not() {
        let mut stored = Vec::new();
        push(&mut stored, b"of another store", (9_000, 8_999));
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
        push(&mut bytes, b"first", (5, 3));
        let torn = push(&mut bytes, &stored, (6, 4));
        push(&mut bytes, b"last", (7, 5));
        for first in [Some(5), None] {
            assert_eq!(survey_frames(&bytes, first), 5);
        }
        bytes[torn] ^= 1;
        assert_eq!(survey_frames(&bytes, Some(5)), 5);
        let end = bytes.len() - FRAME_HEADER_BYTES - 8;
        assert_eq!(survey_frames(&bytes[..end], Some(5)), 3, "the last record is gone");
    }
}
