//! Appends records: buffered under the state's lock, handed to the kernel outside it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::frame::{PAYLOAD_BYTES_MAX, SegmentHeader, encode_frame};
use super::record::Record;
use crate::directory::Directory;
use crate::disk::DiskFile;
use crate::error::{Cause, Error, Result};

/// The log's writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    directory: Arc<Directory>,
    segment_bytes_max: u64,
    buffer: Mutex<Buffer>,
    file: Mutex<Segment>,
    bytes: AtomicU64,
    /// What `Segment::flushed` was when it last moved: lets who has nothing to write pass without the file's lock.
    flushed: AtomicU64,
}

#[derive(Debug)]
struct Buffer {
    frames: Vec<u8>,
    next_sequence: u64,
}

#[derive(Debug)]
struct Segment {
    /// Opened by the first write, so that a store that is only looked at leaves no file behind.
    file: Option<Box<dyn DiskFile>>,
    number: u32,
    bytes: u64,
    /// Every record below this sequence number has been handed to the kernel.
    flushed: u64,
    /// Why a write failed. The records of that write are gone, so nothing that comes after them may follow.
    failed: Option<String>,
    spare: Vec<u8>,
}

impl Writer {
    /// A writer that goes on after the segments that were read.
    pub(crate) fn new(
        directory: Arc<Directory>,
        segment_bytes_max: u64,
        last_segment: u32,
        next_sequence: u64,
    ) -> Self {
        let segment = Segment {
            file: None,
            number: last_segment,
            bytes: 0,
            flushed: next_sequence,
            failed: None,
            spare: Vec::new(),
        };
        Writer {
            directory,
            segment_bytes_max,
            buffer: Mutex::new(Buffer { frames: Vec::new(), next_sequence }),
            file: Mutex::new(segment),
            bytes: AtomicU64::new(0),
            flushed: AtomicU64::new(next_sequence),
        }
    }

    /// Bytes appended since the store was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes a record into the buffer and gives its sequence number. Called with the state locked, so that the log has
    /// the order of the state's changes.
    pub(crate) fn append(&self, record: &Record) -> Result<u64> {
        let payload = record.encode().map_err(|reason| Cause::Argument { what: "record", reason })?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            let reason = format!(
                "it takes {} bytes, more than {PAYLOAD_BYTES_MAX}; make smaller batches",
                payload.len()
            );
            return Err(Cause::Argument { what: "record", reason }.into());
        }
        let mut buffer = self.buffer.lock();
        let sequence = buffer.next_sequence;
        buffer.next_sequence += 1;
        encode_frame(&mut buffer.frames, sequence, &payload);
        Ok(sequence)
    }

    /// Returns once every record up to `sequence` has been handed to the kernel: it survives any end of this process.
    pub(crate) fn flush(&self, sequence: u64) -> Result<()> {
        let mut segment = self.file.lock();
        if segment.flushed > sequence {
            return Ok(()); // somebody else's write took it along
        }
        if let Some(reason) = segment.failed.clone() {
            return Err(Cause::Closed { reason }.into());
        }
        let mut frames = std::mem::take(&mut segment.spare);
        let next = {
            let mut buffer = self.buffer.lock();
            std::mem::swap(&mut buffer.frames, &mut frames);
            buffer.next_sequence
        };
        if let Err(error) = self.write(&mut segment, &frames) {
            let reason = error.with_sources();
            segment.failed = Some(reason.clone());
            return Err(Cause::Closed { reason }.into());
        }
        segment.flushed = next;
        self.flushed.store(next, Ordering::Release);
        frames.clear();
        segment.spare = frames;
        Ok(())
    }

    /// As [`flush`](Self::flush), for everything that was appended so far.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let next = self.buffer.lock().next_sequence;
        if self.flushed.load(Ordering::Acquire) >= next {
            return Ok(());
        }
        self.flush(next - 1)
    }

    fn write(&self, segment: &mut Segment, frames: &[u8]) -> Result<()> {
        if segment.file.is_none() || segment.bytes >= self.segment_bytes_max {
            self.begin_segment(segment)?;
        }
        let path = self.path(segment.number);
        let Some(file) = &segment.file else { return Ok(()) };
        file.append(frames).map_err(|e| Error::from(Cause::io("append to", path, e)))?;
        segment.bytes += frames.len() as u64;
        self.bytes.fetch_add(frames.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn begin_segment(&self, segment: &mut Segment) -> Result<()> {
        segment.number += 1;
        let path = self.path(segment.number);
        let (number, store_id) = (segment.number, self.directory.store_id);
        let header = SegmentHeader { number, store_id, first_sequence: segment.flushed }.encode();
        let io = |e| Error::from(Cause::io("create", &path, e));
        let file = self.directory.disk.create(&path).map_err(io)?;
        file.append(&header).map_err(io)?;
        segment.bytes = header.len() as u64;
        segment.file = Some(file);
        Ok(())
    }

    fn path(&self, number: u32) -> PathBuf {
        self.directory.log().join(format!("{number:08}.log"))
    }
}
