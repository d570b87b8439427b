//! Appends records: buffered under the state's lock, handed to the kernel outside it, synced by whoever leads.

use std::sync::Arc;

use super::commit::GroupCommit;
use super::frame::{PAYLOAD_BYTES_MAX, SegmentHeader, begin_frame, end_frame};
use super::record::Record;
use super::room::{self, MakesRoom};
use super::segments::remove_below;
use super::{LogEnd, Proof};
use crate::directory::Directory;
use crate::disk::DiskFile;
use crate::durability::Durability;
use crate::error::{Cause, Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{BusyMutex, Mutex, Rank};

/// Makes the bytes stable that records name and that lie outside the log.
pub(crate) type SyncNamed<'a> = &'a dyn Fn(Named) -> Result<()>;

/// What is to be stable before a sync of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// Values in extents are among it.
    pub(crate) values: bool,
    /// The sync is to make every record below this one stable.
    pub(crate) before: u64,
}

/// The bytes of memory that each of the two buffers keeps: what small records need, and less than one large batch leaves behind.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// The log's writing end.
#[derive(Debug)]
pub(crate) struct Writer {
    directory: Arc<Directory>,
    segment_bytes_max: u64,
    room: Arc<dyn MakesRoom>,
    boot: u128,
    buffer: Mutex<Buffer>,
    file: BusyMutex<Segment>,
    commit: GroupCommit,
    /// What a record on stable storage says of how far the log was durable.
    proven: AtomicU64,
    bytes: AtomicU64,
    /// What `Segment::flushed` was when it last moved: lets who has nothing to write pass without the file's lock.
    flushed: AtomicU64,
}

#[derive(Debug)]
struct Buffer {
    frames: Vec<u8>,
    /// The bytes of memory of the other buffer, which changes places with this one: it is being written, or is spare.
    other_bytes: usize,
    next_sequence: u64,
    /// One past the last record that names values or objects outside the log.
    files_named: u64,
    /// Every value and object that a record below this one names is on stable storage, or over by these records.
    files_synced: u64,
    /// How far the log was durable by what the last record says.
    marked: u64,
    /// Of every record below this one somebody was told that it outlives the process.
    promised: u64,
    /// Every record below this one is stable, or a sync that has begun is to make it so. What only later records named may be
    /// lost with them when the machine goes down.
    sync_begun: u64,
}

#[derive(Debug)]
struct Segment {
    /// Opened by the first write, so that a store that is only looked at leaves no file behind.
    file: Option<Arc<dyn DiskFile>>,
    number: u32,
    bytes: u64,
    /// Every record below this sequence number has been handed to the kernel.
    flushed: u64,
    /// Why a write failed. The records of that write are gone, so nothing that comes after them may follow.
    failed: Option<String>,
    spare: Vec<u8>,
    /// Earlier segments that were written since the last sync.
    unsynced: Vec<Arc<dyn DiskFile>>,
    /// A segment was made since the last sync: its name is not on stable storage.
    name_unsynced: bool,
}

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) sequence: u64,
    /// Bytes that wait in the buffer, this record's among them.
    pub(crate) buffered_bytes: usize,
}

impl Writer {
    /// A writer that goes on after the segments that were read.
    pub(crate) fn new(
        directory: Arc<Directory>,
        segment_bytes_max: u64,
        end: &LogEnd,
        room: Arc<dyn MakesRoom>,
    ) -> Self {
        let next_sequence = end.next_sequence;
        let segment = Segment {
            file: None,
            number: end.last_segment,
            bytes: 0,
            flushed: next_sequence,
            failed: None,
            spare: Vec::new(),
            unsynced: Vec::new(),
            name_unsynced: false,
        };
        // What the process before named may be unsynced; whoever opens the store keeps the list of it.
        let buffer = Buffer {
            frames: Vec::new(),
            other_bytes: 0,
            next_sequence,
            files_named: 0,
            files_synced: 0,
            marked: 0,
            promised: next_sequence,
            sync_begun: next_sequence,
        };
        Writer {
            boot: directory.disk.boot(),
            directory,
            segment_bytes_max,
            room,
            buffer: Mutex::ranked(Rank::LogBuffer, buffer),
            file: BusyMutex::ranked(Rank::LogFile, segment),
            commit: GroupCommit::new(end.durable_through),
            proven: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            flushed: AtomicU64::new(next_sequence),
        }
    }

    /// The number of the record that comes next.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.buffer.lock().next_sequence
    }

    /// Removes segments that hold no record from `sequence` on. What cannot be removed now is tried again next time.
    pub(crate) fn retire(&self, sequence: u64) {
        if let Err(error) = remove_below(&self.directory, sequence) {
            tracing::warn!(error = error.with_sources(), "a segment could not be removed");
        }
    }

    /// Bytes of memory of the buffers.
    pub(crate) fn heap_bytes(&self) -> usize {
        let buffer = self.buffer.lock();
        buffer.frames.capacity() + buffer.other_bytes
    }

    /// Bytes appended since the store was opened.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Syncs since the store was opened.
    pub(crate) fn syncs(&self) -> u64 {
        self.commit.syncs()
    }

    /// Bytes of the segment that is being written.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.file.lock().bytes
    }

    /// Every record below this one is on stable storage, with every byte that it names and that is not over by them.
    pub(crate) fn durable_through(&self) -> u64 {
        self.commit.durable()
    }

    /// As [`durable_through`](Self::durable_through), as far as whoever opens the store after a power failure can tell: he
    /// goes by what the records that are left say, and checks what comes after it.
    pub(crate) fn proven_through(&self) -> u64 {
        self.proven.load(Ordering::Acquire)
    }

    /// A checkpoint is on stable storage, and vouches for every record below this one.
    pub(crate) fn prove(&self, sequence: u64) {
        self.proven.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Whether there are records that a sync would bring to stable storage.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.durable_through() < self.buffer.lock().next_sequence
    }

    /// Whether there are records that the kernel was not given.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.next_sequence()
    }

    /// Whether there are records that are promised to outlive more than this process, and that a sync would bring to stable
    /// storage.
    pub(crate) fn is_promised_unsynced(&self) -> bool {
        self.durable_through() < self.buffer.lock().promised
    }

    /// Promises every record so far to outlive the process.
    pub(crate) fn promise_all(&self) {
        let mut buffer = self.buffer.lock();
        buffer.promised = buffer.next_sequence;
    }

    /// Whether no sync has begun that is to make a record stable, nor so any after it. One that begins later covers every
    /// record that is appended now.
    pub(crate) fn is_beyond_syncs(&self, sequence: u64) -> bool {
        sequence >= self.buffer.lock().sync_begun
    }

    /// Takes a record into the buffer. Called with the state locked, so that the log has the order of the state's changes.
    /// `names_files`: it names values or objects that lie outside the log. `level`: what its acknowledgement promises.
    pub(crate) fn append(&self, record: &Record, names_files: bool, level: Durability) -> Result<Appended> {
        let mut buffer = self.buffer.lock();
        let Buffer { frames, next_sequence: sequence, files_named, marked, promised, .. } = &mut *buffer;
        let start = begin_frame(frames);
        let payload_bytes = match record.encode_to(frames) {
            Ok(bytes) if bytes <= PAYLOAD_BYTES_MAX => bytes,
            outcome => {
                frames.truncate(start);
                frames.shrink_to(BUFFER_BYTES);
                let reason = outcome.map_or_else(
                    |reason| reason,
                    |bytes| {
                        format!("it takes {bytes} bytes, more than {PAYLOAD_BYTES_MAX}; make smaller batches")
                    },
                );
                return Err(Cause::Argument { what: "record", reason }.into());
            }
        };
        *marked = self.commit.durable();
        end_frame(frames, start, payload_bytes, *sequence, *marked);
        let appended = Appended { sequence: *sequence, buffered_bytes: frames.len() };
        *sequence += 1;
        if names_files {
            *files_named = *sequence;
        }
        if level > Durability::Memory {
            *promised = *sequence;
        }
        Ok(appended)
    }

    /// Returns once every record up to `sequence` has been handed to the kernel: it survives any end of this process.
    pub(crate) fn flush(&self, sequence: u64) -> Result<()> {
        let mut segment = self.file.lock();
        if segment.flushed > sequence {
            return Ok(()); // somebody else's write took it along
        }
        self.write_buffer(&mut segment).map(drop)
    }

    /// As [`flush`](Self::flush), for everything that was appended so far.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let next = self.buffer.lock().next_sequence;
        if self.flushed.load(Ordering::Acquire) >= next {
            return Ok(());
        }
        self.flush(next - 1)
    }

    /// Returns once every record up to `sequence` is on stable storage, with every byte that it names and that is not over by them.
    pub(crate) fn sync(&self, sequence: u64, named: SyncNamed<'_>) -> Result<()> {
        self.commit.reach(sequence, || self.lead(named).inspect_err(|error| self.directory.doubt(error)))
    }

    /// As [`sync`](Self::sync), for everything that was appended so far.
    pub(crate) fn sync_all(&self, named: SyncNamed<'_>) -> Result<()> {
        let next = self.buffer.lock().next_sequence;
        next.checked_sub(1).map_or(Ok(()), |last| self.sync(last, named))
    }

    /// Syncs what is there: what records name first, then the log. Gives how far the log is durable.
    fn lead(&self, named: SyncNamed<'_>) -> Result<u64> {
        let (files_pending, before) = {
            let mut buffer = self.buffer.lock();
            buffer.sync_begun = buffer.next_sequence;
            (buffer.files_named > buffer.files_synced, buffer.next_sequence)
        };
        if files_pending {
            self.begin_sync()?;
        }
        named(Named { values: files_pending, before })?;
        self.buffer.lock().files_synced = before;
        let (files, name_unsynced, written) = {
            let mut segment = self.file.lock();
            // Records that came meanwhile become durable too, unless one of them names what came too late to be synced with the rest.
            let written = self.write_buffer_for(&mut segment, |buffer| {
                if buffer.files_named <= before {
                    buffer.sync_begun = buffer.next_sequence;
                }
            })?;
            let mut files = std::mem::take(&mut segment.unsynced);
            files.extend(segment.file.clone());
            (files, std::mem::take(&mut segment.name_unsynced), written)
        };
        let log = self.directory.log();
        files.iter().try_for_each(|file| file.sync()).map_err(|e| Cause::io("sync the log in", &log, e))?;
        if name_unsynced {
            self.directory.disk.sync_directory(&log).map_err(|e| Cause::io("sync", &log, e))?;
        }
        self.prove(written.marked);
        Ok(if written.files_named <= before { written.next_sequence } else { before })
    }

    /// Has the records of now on their way to the disk while what they name is synced: one commit of the file system then
    /// takes both. A record may so be on stable storage before its values are; it is above what is proven there, so whoever
    /// opens the store after a power failure checks it.
    fn begin_sync(&self) -> Result<()> {
        let (file, from, end) = {
            let mut segment = self.file.lock();
            let before = (segment.number, segment.bytes);
            self.write_buffer(&mut segment)?;
            let from = if segment.number == before.0 { before.1 } else { 0 }; // a new segment begins with its header
            (segment.file.clone(), from, segment.bytes)
        };
        let Some(file) = file.filter(|_| from < end) else { return Ok(()) };
        let begun = file.begin_sync(from, end - from);
        begun.map_err(|e| Cause::io("sync the log in", self.directory.log(), e).into())
    }

    /// Hands the buffer to the kernel.
    fn write_buffer(&self, segment: &mut Segment) -> Result<Written> {
        self.write_buffer_for(segment, |_| ())
    }

    /// As [`write_buffer`](Self::write_buffer), and changes the buffer together with taking what is in it.
    fn write_buffer_for(&self, segment: &mut Segment, taken: impl FnOnce(&mut Buffer)) -> Result<Written> {
        if let Some(reason) = segment.failed.clone() {
            return Err(Cause::Closed { reason }.into());
        }
        let mut frames = std::mem::take(&mut segment.spare);
        let written = {
            let mut buffer = self.buffer.lock();
            std::mem::swap(&mut buffer.frames, &mut frames);
            buffer.other_bytes = frames.capacity();
            taken(&mut buffer);
            Written {
                next_sequence: buffer.next_sequence,
                files_named: buffer.files_named,
                marked: buffer.marked,
            }
        };
        if !frames.is_empty()
            && let Err(error) = self.write(segment, &frames)
        {
            let reason = error.with_sources();
            segment.failed = Some(reason.clone());
            return Err(Cause::Closed { reason }.into());
        }
        segment.flushed = written.next_sequence;
        self.flushed.store(written.next_sequence, Ordering::Release);
        segment.spare = self.emptied(frames);
        Ok(written)
    }

    /// A buffer that has been written, for what comes next.
    fn emptied(&self, mut frames: Vec<u8>) -> Vec<u8> {
        frames.clear();
        if frames.capacity() > BUFFER_BYTES {
            frames.shrink_to(BUFFER_BYTES);
            self.buffer.lock().other_bytes = frames.capacity();
        }
        frames
    }

    fn write(&self, segment: &mut Segment, frames: &[u8]) -> Result<()> {
        if segment.file.is_none() || segment.bytes >= self.segment_bytes_max {
            self.begin_segment(segment)?;
        }
        let path = self.directory.segment_path(segment.number);
        let Some(file) = &segment.file else { return Ok(()) };
        room::append(&**file, segment.bytes, frames, &*self.room)
            .map_err(|e| Error::from(Cause::io("append to", path, e)))?;
        segment.bytes += frames.len() as u64;
        self.bytes.fetch_add(frames.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the proof of how far the log is durable stable itself, without waiting for a record that carries it: the
    /// header of a new segment does.
    ///
    /// # Errors
    /// When a sync failed, or a write of records. What follows on those proves nothing: the store is over.
    pub(crate) fn prove_durable(&self) -> Result<Proof> {
        self.prove_by(|header| self.commit.alone(header))
    }

    /// The same, unless somebody syncs, who would have to be waited for.
    pub(crate) fn prove_durable_if_idle(&self) -> Result<Proof> {
        self.prove_by(|header| self.commit.alone_if_idle(header))
    }

    fn prove_by(&self, run: impl FnOnce(&dyn Fn() -> Result<Proof>) -> Result<Proof>) -> Result<Proof> {
        let durable = self.commit.durable();
        if durable <= self.proven_through() {
            return Ok(Proof::Left);
        }
        let proof = run(&|| self.prove_alone().inspect_err(|error| self.directory.doubt(error)))?;
        if matches!(proof, Proof::Brought) {
            self.prove(durable);
        }
        Ok(proof)
    }

    fn prove_alone(&self) -> Result<Proof> {
        let file = {
            let mut segment = self.file.lock();
            self.write_buffer(&mut segment)?;
            match self.begin_segment(&mut segment) {
                Err(error) if matches!(error.cause(), Cause::DiskFull { .. }) => {
                    return Ok(Proof::NoRoom(error));
                }
                begun => begun?,
            }
            segment.file.clone()
        };
        let log = self.directory.log();
        let synced = file.map_or(Ok(()), |file| file.sync());
        let named = synced.and_then(|()| self.directory.disk.sync_directory(&log));
        named.map_err(|e| Error::from(Cause::io("sync the log in", &log, e)))?;
        Ok(Proof::Brought)
    }

    /// Begins the next segment. Where there is no room for its header the log may go on with the segment that it has: nobody leaves
    /// that one before the next one's header is whole.
    fn begin_segment(&self, segment: &mut Segment) -> Result<()> {
        let number = segment.number + 1;
        let path = self.directory.segment_path(number);
        let header = SegmentHeader {
            number,
            store_id: self.directory.store_id,
            first_sequence: segment.flushed,
            boot: self.boot,
            durable_through: self.commit.durable(),
        };
        let header = header.encode();
        let file = room::create(&*self.directory.disk, &path, &header, &*self.room)
            .map_err(|e| Error::from(Cause::io("create", &path, e)))?;
        (segment.number, segment.bytes, segment.name_unsynced) = (number, header.len() as u64, true);
        let full = segment.file.replace(Arc::from(file));
        segment.unsynced.extend(full);
        Ok(())
    }
}

/// What a write handed over.
struct Written {
    next_sequence: u64,
    files_named: u64,
    marked: u64,
}
