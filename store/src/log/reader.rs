//! Reads the log from a record to its last.

use std::path::{Path, PathBuf};

use super::frame::{Frame, SEGMENT_HEADER_BYTES, SegmentHeader};
use super::record::Record;
use super::segments::{HeaderFound, SegmentFile};
use super::window::Window;
use crate::directory::Directory;
use crate::error::{Cause, Error, Result};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    /// The number of the last segment that was read, 0 when there is none.
    pub(crate) last_segment: u32,
    /// The sequence number of the next record.
    pub(crate) next_sequence: u64,
    /// Every record below this one was on stable storage when the log was written.
    pub(crate) durable_through: u64,
    /// How many records were read.
    pub(crate) records: u64,
    /// Bytes of appends that were cut short at the end of a segment.
    pub(crate) torn_bytes: u64,
    /// Where the last record that was read ends: its segment, and how many bytes of it are sound.
    pub(crate) sound: (u32, u64),
    /// Why the last segment ends inside a record.
    pub(crate) torn: Option<Damage>,
    /// Why nothing beyond was read.
    pub(crate) damage: Option<Damage>,
}

/// The first place at which the log cannot be followed.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) reason: String,
}

impl Damage {
    fn new(path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        Damage { path: path.to_owned(), offset, reason: reason.into() }
    }

    /// The damage as an error: for whoever must not go on without what is damaged.
    pub(crate) fn error(self) -> Error {
        Cause::Corrupt { path: self.path, offset: self.offset, reason: self.reason }.into()
    }
}

/// Why a record was not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It cannot follow on what is there: nobody wrote it so.
    Impossible(String),
    /// What it names is not there: the log ends before it.
    Incomplete(String),
    /// Nobody could look for what it names, or put it in order. That says nothing of the log.
    Failed(Error),
}

/// Gives every record from `from` on to `apply`, in order, and stops at the first place that cannot be followed. Whether
/// that place is damage or the end of what was written is for the caller to judge, who knows what was durable.
///
/// # Errors
/// `corrupt` for what no crash leaves behind: a sound record that does not decode or cannot follow, a sound header that
/// contradicts the ones before it, a log that begins behind `from`.
pub(crate) fn read(
    directory: &Directory,
    segments: &[SegmentFile],
    from: u64,
    mut apply: impl FnMut(u64, Record) -> Result<(), Refusal>,
) -> Result<LogEnd> {
    let begins = |file: &SegmentFile| match &file.header {
        HeaderFound::Sound(header) => header.first_sequence <= from,
        HeaderFound::Short | HeaderFound::Damaged => false,
    };
    let start = segments.iter().rposition(begins);
    let before = start.map_or(0, |at| segments[at].number.max(1) - 1); // none: the first one has to be the first
    let mut reader = Reader {
        directory,
        from,
        end: LogEnd { last_segment: before, ..LogEnd::default() },
        begun: false,
        apply: &mut apply,
    };
    for file in &segments[start.unwrap_or(0)..] {
        if let Some(damage) = reader.segment(file)? {
            reader.end.damage = Some(damage);
            break;
        }
    }
    let mut end = reader.end;
    if end.next_sequence < from {
        let reason =
            format!("the log ends with record {}, a checkpoint goes on from {from}", end.next_sequence);
        return Err(end.damage.unwrap_or_else(|| Damage::new(&directory.log(), 0, reason)).error());
    }
    end.durable_through = end.durable_through.max(from); // a checkpoint made it so
    Ok(end)
}

struct Reader<'a> {
    directory: &'a Directory,
    from: u64,
    end: LogEnd,
    begun: bool,
    apply: &'a mut dyn FnMut(u64, Record) -> Result<(), Refusal>,
}

impl Reader<'_> {
    fn segment(&mut self, file: &SegmentFile) -> Result<Option<Damage>> {
        let path = &file.path;
        let expected = self.end.last_segment + 1;
        if file.number != expected {
            return Ok(Some(Damage::new(path, 0, format!("segment {expected} is missing before it"))));
        }
        let header = match &file.header {
            HeaderFound::Sound(header) => header,
            HeaderFound::Damaged => {
                let reason = "the segment's header does not match its checksum";
                return Ok(Some(Damage::new(path, 0, reason)));
            }
            HeaderFound::Short => {
                self.end.last_segment = file.number; // its creation was cut short
                return Ok(None);
            }
        };
        if let Some(damage) = self.header(path, header)? {
            return Ok(Some(damage));
        }
        self.frames(file)
    }

    /// A segment begins where the one before it ends; the first one at or before the record that is asked for.
    fn header(&mut self, path: &Path, header: &SegmentHeader) -> Result<Option<Damage>> {
        let next = self.end.next_sequence;
        if !self.begun && header.first_sequence > self.from {
            let reason = format!("it begins with record {}, {} is wanted", header.first_sequence, self.from);
            return Ok(Some(Damage::new(path, 0, reason)));
        }
        if self.begun && header.first_sequence != next {
            let begins = header.first_sequence;
            let reason = format!("it begins with record {begins}, the one before it ends at {next}");
            return Ok(Some(Damage::new(path, 0, reason)));
        }
        if header.durable_through > header.first_sequence {
            let reason = "it calls records durable that come after it";
            return Err(Damage::new(path, 0, reason).error());
        }
        self.begun = true;
        self.end.next_sequence = header.first_sequence;
        self.end.durable_through = self.end.durable_through.max(header.durable_through);
        self.end.last_segment = header.number;
        self.end.sound = (header.number, SEGMENT_HEADER_BYTES as u64);
        self.end.torn = None;
        Ok(None)
    }

    fn frames(&mut self, file: &SegmentFile) -> Result<Option<Damage>> {
        let path = &file.path;
        let io = |e| Error::from(Cause::io("read", path, e));
        let mut window =
            Window::open(&*self.directory.disk, path, SEGMENT_HEADER_BYTES as u64).map_err(io)?;
        loop {
            let (at, length) = (window.offset(), window.length());
            match window.look().map_err(io)? {
                Frame::End => return Ok(None),
                Frame::Torn => {
                    self.end.torn_bytes += length - at;
                    self.end.torn = Some(Damage::new(path, at, "the file ends inside a record"));
                    return Ok(None);
                }
                Frame::Damaged(reason) => return Ok(Some(Damage::new(path, at, reason))),
                Frame::Record { sequence, durable_through, payload, end } => {
                    let next = self.end.next_sequence;
                    let damage =
                        |reason: String| Damage::new(path, at, format!("record {sequence}: {reason}"));
                    if sequence != next {
                        return Ok(Some(damage(format!("it stands where {next} should"))));
                    }
                    if durable_through > sequence {
                        return Err(damage("it calls records durable that come after it".into()).error());
                    }
                    match self.record(sequence, payload) {
                        Ok(()) => {}
                        Err(Refusal::Impossible(reason)) => return Err(damage(reason).error()),
                        Err(Refusal::Incomplete(reason)) => return Ok(Some(damage(reason))),
                        Err(Refusal::Failed(error)) => return Err(error),
                    }
                    self.end.durable_through = self.end.durable_through.max(durable_through);
                    self.end.next_sequence += 1;
                    window.go_to(end);
                    self.end.sound = (file.number, window.offset());
                }
            }
        }
    }

    fn record(&mut self, sequence: u64, payload: &[u8]) -> Result<(), Refusal> {
        if sequence < self.from {
            return Ok(());
        }
        (self.apply)(sequence, Record::decode(payload).map_err(Refusal::Impossible)?)?;
        self.end.records += 1;
        Ok(())
    }
}
