//! A batch of rows on its way out, some of its rows at a time.
//!
//! As many rows as make up a piece are compacted and written as a batch of their own while the piece before them is under way; who
//! reads the stream puts them together again. So large values are copied while they are in the processor's cache, and of what
//! stays where it lies, as texts and bytes do, no more is in memory than a few pieces. Its space is held until the last was made, as for every reader.
//!
//! The rows are read on a thread that may wait for the disk, each piece in a turn of its own. What the whole answer takes is taken from [`Gathered`](crate::gathered)
//! beforehand, for lists are there already.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;
use forebay_client::Error;
use forebay_client::wire::proto::ArrowPiece;
use forebay_client::wire::{self, FRAMED_PIECE_BYTES, PIECE_BYTES};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::reading::Reader;
use super::streams::{Answers, bug, room_for};
use crate::gathered::{Gathered, Taken};

/// Room for what a piece has beside its values.
const HEADERS_BYTES: usize = 4096;

/// What is left of a batch that is being sent.
pub(super) struct Sending {
    rows: RecordBatch,
    /// How many rows make up a piece.
    at_once: usize,
    writer: StreamWriter<Vec<u8>>,
    /// Until the last piece is gone.
    room: Arc<Taken>,
}

/// A piece of an answer.
pub(super) struct Part {
    bytes: Bytes,
    /// That of the whole answer; none where the bytes are a part of others, and have the room of these with them.
    room: Option<Arc<Taken>>,
}

/// Bytes with the room that they have.
struct Roomed {
    bytes: Bytes,
    _room: Option<Arc<Taken>>,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Part {
    /// Parts of a stream that is there, each of which keeps all of it.
    pub(super) fn of_whole(stream: impl Into<Bytes> + 'static) -> Answers<Part> {
        stream::iter(wire::pieces(stream).map(|bytes| Ok(Part { bytes, room: None }))).boxed()
    }

    /// As the transport takes it, which may keep it for as long as its client likes: nothing else is kept with it.
    pub(super) fn into_sent(self) -> Bytes {
        match self.room {
            Some(_) => self.bytes,
            None => Bytes::copy_from_slice(&self.bytes),
        }
    }
}

impl From<Part> for ArrowPiece {
    fn from(Part { bytes, room: _room }: Part) -> Self {
        ArrowPiece { bytes: Bytes::from_owner(Roomed { bytes, _room }) }
    }
}

impl Sending {
    /// All rows of a batch, for which there is room already.
    pub(super) fn new(rows: RecordBatch, room: Taken) -> Result<Self, Error> {
        Self::of_bytes(bytes_of(&rows), rows, room)
    }

    /// All rows of a batch, if there is room for them.
    pub(super) fn with_room(rows: RecordBatch, room: &Gathered) -> Result<Self, Error> {
        let bytes = bytes_of(&rows);
        let room = room_for(bytes as u64, room)?;
        Self::of_bytes(bytes, rows, room)
    }

    fn of_bytes(bytes: usize, rows: RecordBatch, room: Taken) -> Result<Self, Error> {
        let mean = (bytes / rows.num_rows().max(1)).max(1);
        let at_once = (PIECE_BYTES / mean).max(1);
        let buffer = Vec::with_capacity(bytes.min(PIECE_BYTES) + HEADERS_BYTES);
        let writer = StreamWriter::try_new(buffer, &rows.schema()).map_err(bug)?;
        Ok(Sending { rows, at_once, writer, room: Arc::new(room) })
    }

    /// What comes next of the stream, and what is left after it.
    fn next(mut self) -> Result<(Vec<u8>, Option<Self>), Error> {
        let now = self.at_once.min(self.rows.num_rows());
        let left = self.rows.num_rows() - now;
        let write = |writer: &mut StreamWriter<Vec<u8>>| -> Result<(), ArrowError> {
            writer.write(&forebay_store::compact_to_copy(&self.rows.slice(0, now))?)?;
            if left == 0 { writer.finish() } else { Ok(()) }
        };
        write(&mut self.writer).map_err(bug)?;
        let room = self.writer.get_ref().capacity().min(FRAMED_PIECE_BYTES);
        let written = std::mem::take(self.writer.get_mut());
        if left == 0 {
            return Ok((written, None));
        }
        *self.writer.get_mut() = Vec::with_capacity(room);
        self.rows = self.rows.slice(now, left);
        Ok((written, Some(self)))
    }

    /// The pieces of its stream. Each is made when it is asked for.
    pub(super) fn parts(self, reader: Reader) -> Answers<Part> {
        let written = stream::unfold(Some((self, reader)), |left| async {
            let (left, reader) = left?;
            let room = left.room.clone();
            match reader.read_on(move || left.next()).await {
                Ok((written, left)) => {
                    Some((Ok((Bytes::from(written), room)), left.map(|left| (left, reader))))
                }
                Err(status) => Some((Err(status), None)),
            }
        });
        let parts = written.flat_map(|written| match written {
            Ok((bytes, room)) if bytes.len() <= FRAMED_PIECE_BYTES => {
                stream::iter([Ok(Part { bytes, room: Some(room) })]).boxed()
            }
            Ok((bytes, room)) => Part::of_whole(Bytes::from_owner(Roomed { bytes, _room: Some(room) })),
            Err(status) => stream::iter([Err(status)]).boxed(),
        });
        parts.boxed()
    }

    /// The same as messages.
    pub(super) fn pieces(self, reader: Reader) -> Answers<ArrowPiece> {
        messages(self.parts(reader))
    }
}

/// Parts as messages of the protocol.
pub(super) fn messages(parts: Answers<Part>) -> Answers<ArrowPiece> {
    parts.map_ok(ArrowPiece::from).boxed()
}

/// The bytes that rows take on their way.
fn bytes_of(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(bytes_of_column).sum()
}

fn bytes_of_column(column: &ArrayRef) -> usize {
    const VIEW_BYTES: usize = size_of::<u128>();
    let views = |lengths: &mut dyn Iterator<Item = u32>| {
        column.len() * VIEW_BYTES + lengths.map(|length| length as usize).sum::<usize>()
    };
    match column.data_type() {
        DataType::Utf8View => views(&mut column.as_string_view().lengths()),
        DataType::BinaryView => views(&mut column.as_binary_view().lengths()),
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}
