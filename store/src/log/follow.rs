//! Reads a log that is still being written, from where it stopped the last time.

use std::io::ErrorKind;

use super::frame::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::record::Record;
use super::window::{Standing, Window};
use super::{LogEnd, begin};
use crate::directory::{Directory, FORMAT_VERSION};
use crate::error::{Cause, Error, Result};
use crate::header::HeaderFault;
use crate::numbered::Numbered;

/// A place in a log: every record before it has been read.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    /// 0 before the first segment.
    segment: u32,
    offset: u64,
    next_sequence: u64,
    /// Records before the first one that was wished for have been passed; from here on none may be missing or repeated.
    arrived: bool,
}

impl Follower {
    /// A place from which the next record to be read is `next_sequence`.
    pub(crate) fn from_record(next_sequence: u64) -> Self {
        Follower { segment: 0, offset: 0, next_sequence, arrived: next_sequence == 0 }
    }

    /// The segment, and how far it has been read.
    pub(crate) fn place(&self) -> (u32, u64) {
        (self.segment, self.offset)
    }

    /// What was read so far.
    pub(crate) fn end(&self) -> LogEnd {
        let (last_segment, next_sequence) = (self.segment, self.next_sequence);
        LogEnd { last_segment, next_sequence, records: next_sequence, ..LogEnd::default() }
    }

    /// Gives up to `records_max` records to `take`, as many as there are, in order. What is not whole at the end is left
    /// for the next time: somebody may be writing it.
    ///
    /// # Errors
    /// `corrupt` for what cannot have been written so, and what `take` refuses, with file and offset.
    pub(crate) fn follow(
        &mut self,
        directory: &Directory,
        records_max: usize,
        mut take: impl FnMut(Record) -> Result<(), String>,
    ) -> Result<usize> {
        let mut taken = 0;
        while taken < records_max {
            if self.segment == 0 && !self.begin(directory)? {
                break;
            }
            // Looked for before the segment is read to its end: once the next one has begun, this one does not grow.
            let next = self.is_followed(directory)?;
            let Some(read) = self.read_segment(directory, records_max - taken, &mut take)? else {
                (self.segment, self.offset) = (0, 0);
                continue;
            };
            taken += read;
            if taken < records_max {
                if !next {
                    break;
                }
                (self.segment, self.offset) = (self.segment + 1, 0);
            }
        }
        Ok(taken)
    }

    /// Whether the next segment has begun. One without a whole header may yet be taken back; where another follows it, a process
    /// ended while it was making it.
    fn is_followed(&self, directory: &Directory) -> Result<bool> {
        let disk = &*directory.disk;
        let path = directory.segment_path(self.segment + 1);
        let length = match disk.open(&path).and_then(|file| file.length()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            length => length.map_err(|e| Cause::io("read", &path, e))?,
        };
        if length >= SEGMENT_HEADER_BYTES as u64 {
            return Ok(true);
        }
        let after = directory.segment_path(self.segment + 2);
        disk.exists(&after).map_err(|e| Cause::io("look for", &after, e).into())
    }

    /// Goes to the segment with which the log begins for who needs it from here on.
    fn begin(&mut self, directory: &Directory) -> Result<bool> {
        let log = directory.log();
        let files = directory.disk.list(&log).map_err(|e| Cause::io("list", &log, e))?;
        let files: Vec<_> = files.into_iter().filter(|path| Numbered::Segment.is(path)).collect();
        let mut before = None;
        for path in &files[begin::first_of(&*directory.disk, &files, self.next_sequence)..] {
            let number = Numbered::Segment.number(path).unwrap_or(0);
            if before.is_some_and(|before: u32| before.checked_add(1) != Some(number)) || number == 0 {
                let reason = "it is not the segment that should follow on the one before it".to_owned();
                return Err(Cause::Corrupt { path: path.clone(), offset: 0, reason }.into());
            }
            self.segment = if before.is_none() { number } else { self.segment };
            before = Some(number);
        }
        Ok(before.is_some())
    }

    /// Gives how many records were taken; nothing where the segment is gone: all that was in it has been read, or it would be there.
    fn read_segment(
        &mut self,
        directory: &Directory,
        records_max: usize,
        take: &mut impl FnMut(Record) -> Result<(), String>,
    ) -> Result<Option<usize>> {
        let path = directory.segment_path(self.segment);
        let unread = |e| Error::from(Cause::io("read", &path, e));
        let corrupt = |offset: u64, reason: String| -> Error {
            Cause::Corrupt { path: path.clone(), offset, reason }.into()
        };
        let mut window = match Window::open(&*directory.disk, &path, self.offset) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(unread)?,
        };
        if self.offset == 0 {
            let Some(header) = window.header().map_err(unread)? else { return Ok(Some(0)) };
            self.check_header(directory, &header).map_err(|reason| corrupt(0, reason))?;
            self.offset = SEGMENT_HEADER_BYTES as u64;
        }
        let mut taken = 0;
        while taken < records_max && window.offset() < window.length() {
            match window.frame().map_err(unread)? {
                Standing::Frame { sequence, record, .. } => {
                    let refuse =
                        |reason: String| corrupt(self.offset, format!("record {sequence}: {reason}"));
                    if sequence > self.next_sequence || (self.arrived && sequence < self.next_sequence) {
                        return Err(refuse(format!("it stands where {} should", self.next_sequence)));
                    }
                    if sequence == self.next_sequence {
                        take(record.map_err(refuse)?).map_err(refuse)?;
                        (self.next_sequence, self.arrived) = (self.next_sequence + 1, true);
                        taken += 1;
                    }
                    self.offset = window.offset();
                }
                Standing::Damaged(reason) => return Err(corrupt(self.offset, reason.to_owned())),
                Standing::Torn => break,
            }
        }
        Ok(Some(taken))
    }

    fn check_header(&self, directory: &Directory, header: &[u8; SEGMENT_HEADER_BYTES]) -> Result<(), String> {
        let header = SegmentHeader::decode(header).map_err(|fault| match fault {
            HeaderFault::Damaged => "the segment's header does not match its checksum".to_owned(),
            HeaderFault::Format(found) => format!("the segment has format {found}, not {FORMAT_VERSION}"),
        })?;
        if header.store_id != directory.store_id || header.number != self.segment {
            return Err("the segment belongs to another store or carries another number".to_owned());
        }
        let misses = header.first_sequence > self.next_sequence;
        if misses || (self.arrived && header.first_sequence < self.next_sequence) {
            let (first, next) = (header.first_sequence, self.next_sequence);
            return Err(format!("it begins with record {first}, the one before it ends at {next}"));
        }
        Ok(())
    }
}
