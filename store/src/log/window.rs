//! A moving window on a segment: the frames of a file of any length, with no more in memory than the largest takes.

use std::path::Path;

use super::frame::{FRAME_HEADER_BYTES, Frame, SEGMENT_HEADER_BYTES, decode_frame, frame_end};
use super::record::Record;
use crate::disk::{Disk, DiskFile};

/// How much is read at once, where no record needs more.
const WINDOW_BYTES: usize = 1 << 20;

/// What the window stood at.
pub(super) enum Standing {
    Frame { sequence: u64, record: Result<Record, String>, bytes: u64 },
    Damaged(&'static str),
    Torn,
}

/// A moving window on a segment.
pub(super) struct Window {
    file: Box<dyn DiskFile>,
    length: u64,
    /// Where `bytes` begins in the file.
    start: u64,
    bytes: Vec<u8>,
    /// The next place to look at, within `bytes`.
    at: usize,
}

impl Window {
    /// A window that begins at `start`.
    pub(super) fn open(disk: &dyn Disk, path: &Path, start: u64) -> std::io::Result<Self> {
        let file = disk.open(path)?;
        let length = file.length()?.max(start);
        Ok(Window { file, length, start, bytes: Vec::new(), at: 0 })
    }

    /// The length that the file had when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// The present place in the file.
    pub(super) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// The segment's header, for a window that begins with it; `None` where the file is shorter.
    pub(super) fn header(&mut self) -> std::io::Result<Option<[u8; SEGMENT_HEADER_BYTES]>> {
        if !self.hold(SEGMENT_HEADER_BYTES)? {
            return Ok(None);
        }
        self.at = SEGMENT_HEADER_BYTES;
        Ok(self.bytes.first_chunk().copied())
    }

    /// Reads on until `wanted` bytes from the present place are held. False where the file has fewer.
    fn hold(&mut self, wanted: usize) -> std::io::Result<bool> {
        if self.bytes.len() - self.at >= wanted {
            return Ok(true);
        }
        self.start = self.offset();
        self.bytes.drain(..self.at);
        self.at = 0;
        let left = self.length - self.start - self.bytes.len() as u64;
        let more =
            (wanted.max(WINDOW_BYTES) - self.bytes.len()).min(usize::try_from(left).unwrap_or(usize::MAX));
        let (held, from) = (self.bytes.len(), self.start + self.bytes.len() as u64);
        self.bytes.resize(held + more, 0);
        self.file.read_at(&mut self.bytes[held..], from)?;
        Ok(self.bytes.len() >= wanted)
    }

    /// Looks at the present place. [`Window::go_to`] the end of a record to look at the next.
    pub(super) fn look(&mut self) -> std::io::Result<Frame<'_>> {
        self.hold_frame()?;
        Ok(decode_frame(&self.bytes, self.at))
    }

    /// Reads on until all of the frame at the present place is held, if the file has all of it.
    fn hold_frame(&mut self) -> std::io::Result<()> {
        self.hold(FRAME_HEADER_BYTES)?;
        if let Some(end) = frame_end(&self.bytes[self.at..]) {
            self.hold(end)?;
        }
        Ok(())
    }

    /// Goes to the end that a record was said to have.
    pub(super) fn go_to(&mut self, end: usize) {
        self.at = end;
    }

    /// Looks at the present place and goes to the next.
    pub(super) fn frame(&mut self) -> std::io::Result<Standing> {
        self.hold_frame()?;
        let end = frame_end(&self.bytes[self.at..]);
        match decode_frame(&self.bytes, self.at) {
            Frame::Record { sequence, payload, end, .. } => {
                let (record, bytes) = (Record::decode(payload), (end - self.at) as u64);
                self.at = end;
                Ok(Standing::Frame { sequence, record, bytes })
            }
            Frame::Damaged(reason) => {
                // A sound header says where the next frame begins; without one, the next multiple of 8 is tried.
                let next = self.at + end.unwrap_or(8);
                self.at = next.min(self.bytes.len());
                Ok(Standing::Damaged(reason))
            }
            Frame::Torn | Frame::End => Ok(Standing::Torn),
        }
    }
}
