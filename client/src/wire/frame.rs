//! Contents of values as an Arrow IPC record batch: what [`BulkPiece`](super::proto::BulkPiece) carries.
//!
//! A frame is written by hand, for then a content is copied once, from where the caller has it into what is sent; and read by
//! hand, for then nothing is made larger than was said, and contents stay in what was received. Any Arrow library reads what is
//! written here, and what it writes is read.
//!
//! ```text
//! ff ff ff ff | length of the metadata | metadata, padded | contents, padded | where each begins and the last ends, padded
//! ```

use std::io::{Read, Write};

use arrow_ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode, Message,
    MessageBuilder, MessageHeader, MetadataVersion, RecordBatch, RecordBatchBuilder,
};
use bytes::Bytes;
use flatbuffers::FlatBufferBuilder;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use super::malformed;
use crate::error::{Error, Result};

/// What stands before a message that is no older than Arrow 0.15.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Bytes before the metadata.
const PREFIX_BYTES: usize = 8;
/// Bytes before the body of what is written here: the metadata are as long, whatever they say.
const HEAD_BYTES: usize = 256;
/// Bytes of a place, and of how long a packed buffer is.
const WORD: usize = 8;
/// What a packed buffer begins with that is not packed.
const NOT_PACKED: i64 = -1;

/// A frame that contents are put into.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    bytes: Vec<u8>,
    /// Where each content begins, and the last ends.
    places: Vec<i64>,
}

impl FrameWriter {
    /// An empty frame, made in that buffer.
    pub(crate) fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        FrameWriter { bytes: buffer, places: vec![0] }
    }

    /// Puts a content into it, and gives its place among them.
    pub(crate) fn push(&mut self, content: &[u8]) -> u32 {
        self.bytes.extend_from_slice(content);
        self.places.push(self.content_bytes() as i64);
        (self.places.len() - 2) as u32
    }

    /// How long its contents are.
    pub(crate) fn content_bytes(&self) -> usize {
        self.bytes.len() - HEAD_BYTES
    }

    /// What it takes: its contents, and their places.
    pub(crate) fn total_bytes(&self) -> u64 {
        (self.content_bytes() + self.places.len() * WORD) as u64
    }

    /// The frame as it is sent.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let contents = self.content_bytes();
        pad(&mut self.bytes);
        let places = self.bytes.len() - HEAD_BYTES;
        self.put_places();
        let body = self.bytes.len() - HEAD_BYTES;
        let buffers = [(0, 0), (places, self.places.len() * WORD), (0, contents)];
        self.put_head(buffers, body, false);
        self.bytes
    }

    /// The same with its contents packed, made in another buffer; none where that is not shorter by a `1/saving`.
    pub(crate) fn pack(&self, mut buffer: Vec<u8>, saving: usize) -> Option<Vec<u8>> {
        let contents = self.content_bytes();
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        buffer.extend_from_slice(&(contents as i64).to_le_bytes());
        let mut encoder = FrameEncoder::new(buffer);
        encoder.write_all(&self.bytes[HEAD_BYTES..]).ok()?;
        let mut packed = FrameWriter { bytes: encoder.finish().ok()?, places: self.places.clone() };
        let length = packed.content_bytes();
        if length > contents - contents / saving {
            return None;
        }
        pad(&mut packed.bytes);
        let places = packed.content_bytes();
        packed.bytes.extend_from_slice(&NOT_PACKED.to_le_bytes());
        packed.put_places();
        let body = packed.content_bytes();
        let buffers = [(0, 0), (places, (packed.places.len() + 1) * WORD), (0, length)];
        packed.put_head(buffers, body, true);
        Some(packed.bytes)
    }

    /// The buffer, of a frame that is not wanted.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    fn put_places(&mut self) {
        self.bytes.extend(self.places.iter().flat_map(|place| place.to_le_bytes()));
    }

    fn put_head(&mut self, buffers: [(usize, usize); 3], body: usize, packed: bool) {
        let metadata = metadata(self.places.len() - 1, buffers, body, packed);
        let length = (HEAD_BYTES - PREFIX_BYTES) as i32;
        self.bytes[..4].copy_from_slice(&CONTINUATION);
        self.bytes[4..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
        self.bytes[PREFIX_BYTES..][..metadata.len()].copy_from_slice(&metadata);
    }
}

/// Fills up to the next word.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
}

/// What Arrow IPC says of a batch of one column: 200 bytes or so.
fn metadata(rows: usize, buffers: [(usize, usize); 3], body: usize, packed: bool) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::with_capacity(HEAD_BYTES);
    let buffers = buffers.map(|(offset, length)| Buffer::new(offset as i64, length as i64));
    let buffers = builder.create_vector(&buffers);
    let nodes = builder.create_vector(&[FieldNode::new(rows as i64, 0)]);
    let compression = packed.then(|| {
        let mut compression = BodyCompressionBuilder::new(&mut builder);
        compression.add_method(BodyCompressionMethod::BUFFER);
        compression.add_codec(CompressionType::LZ4_FRAME);
        compression.finish()
    });
    let mut batch = RecordBatchBuilder::new(&mut builder);
    batch.add_length(rows as i64);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    compression.into_iter().for_each(|compression| batch.add_compression(compression));
    let header = batch.finish().as_union_value();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::RecordBatch);
    message.add_header(header);
    message.add_bodyLength(body as i64);
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// A frame with these contents, packed where it is to be and that makes it shorter: for whoever speaks the protocol by hand.
pub fn frame_of(contents: &[&[u8]], packed: bool) -> Bytes {
    let mut frame = FrameWriter::new(Vec::new());
    contents.iter().for_each(|content| _ = frame.push(content));
    let packed = packed.then(|| frame.pack(Vec::new(), usize::MAX)).flatten();
    packed.unwrap_or_else(|| frame.finish()).into()
}

/// What a frame takes on its way beside its contents and their places: its metadata, and what buffers are filled up with.
const OVERHEAD_BYTES: u64 = 1 << 10;
/// A bit for each content that says that it is there takes so small a part of the place of that content.
const BITS_OF_PLACES: u64 = 64;
/// The longest metadata, and the most contents, of a frame that is read soon.
const METADATA_BYTES_SOON: usize = 4 << 10;
const ROWS_SOON: u64 = 4 << 10;

/// What a message of a frame counts for in memory, beside what a frame may take on its way: a frame keeps all of its message.
pub fn kept_by(message_bytes: u64) -> u64 {
    let bytes = message_bytes.saturating_sub(OVERHEAD_BYTES);
    bytes - bytes / (BITS_OF_PLACES + 1)
}

/// A frame that was received.
#[derive(Clone, Debug)]
pub struct Frame {
    contents: Bytes,
    /// Where each content begins, and the last ends: in order, and within the contents.
    places: Vec<usize>,
}

impl Frame {
    /// A frame, with its contents where they are. It takes `bytes_max` bytes at most ([`bytes`](Frame::bytes)), also unpacked.
    ///
    /// # Errors
    /// `input` for what is no such frame, or more than that.
    pub fn read(frame: &Bytes, bytes_max: u64) -> Result<Self> {
        let no_frame = |what: &str| malformed(&format!("a frame {what}"));
        let (metadata, body) = split(frame).ok_or_else(|| no_frame("that ends early"))?;
        let message =
            arrow_ipc::root_as_message(&metadata).map_err(|_| no_frame("that is no Arrow IPC message"))?;
        let (rows, packed, buffers) = shape(&message)
            .ok_or_else(|| no_frame("that is no batch of one column of binary, packed by lz4 at most"))?;
        let buffer = |(offset, length): (i64, i64)| {
            let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
            (offset.checked_add(length)? <= body.len()).then(|| body.slice(offset..offset + length))
        };
        let [places, contents] = buffers.map(buffer);
        let outside = || no_frame("whose buffers are not in it");
        let (places, contents) = (places.ok_or_else(outside)?, contents.ok_or_else(outside)?);
        let places_bytes = rows.checked_add(1).and_then(|words| words.checked_mul(WORD as u64));
        let left = places_bytes.and_then(|bytes| bytes_max.checked_sub(bytes));
        let (Some(places_bytes), Some(left)) = (places_bytes, left) else {
            return Err(too_large(rows, bytes_max));
        };
        let (places, contents) = match packed {
            true => (unpacked(places, places_bytes)?, unpacked(contents, left)?),
            false => (places, contents),
        };
        if contents.len() as u64 > left {
            return Err(too_large(contents.len() as u64, left));
        }
        let places = places_of(&places, rows as usize, contents.len());
        Ok(Frame { places: places.ok_or_else(|| no_frame("whose contents are not in order"))?, contents })
    }

    /// Whether [`read`](Frame::read) takes long: what is packed, or has many contents.
    pub fn takes_long(frame: &Bytes) -> bool {
        let Some((metadata, _)) = split(frame) else { return false };
        if metadata.len() > METADATA_BYTES_SOON {
            return true;
        }
        let shape = arrow_ipc::root_as_message(&metadata).ok().and_then(|message| shape(&message));
        shape.is_some_and(|(rows, packed, _)| packed || rows > ROWS_SOON)
    }

    /// What it takes: its contents, and their places.
    pub fn bytes(&self) -> u64 {
        (self.contents.len() + self.places.len() * WORD) as u64
    }

    /// How long its contents are.
    pub fn content_bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    /// One of its contents.
    pub fn content(&self, at: usize) -> Option<&[u8]> {
        self.contents.get(*self.places.get(at)?..*self.places.get(at.checked_add(1)?)?)
    }
}

fn too_large(bytes: u64, left: u64) -> Error {
    let message =
        format!("a frame brings {bytes} bytes or contents where {left} bytes are left of what was said");
    Error::input("TooLarge", message)
}

/// The metadata of an encapsulated message, and its body.
fn split(frame: &Bytes) -> Option<(Bytes, Bytes)> {
    let (prefix, rest) = frame.split_first_chunk::<PREFIX_BYTES>()?;
    let (continuation, length) = prefix.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_le_bytes(length.try_into().ok()?)).ok()?;
    let is_whole = *continuation == CONTINUATION && length <= rest.len();
    is_whole.then(|| {
        let body = PREFIX_BYTES + length;
        (frame.slice(PREFIX_BYTES..body), frame.slice(body..))
    })
}

/// How many rows a batch has, whether it is packed, and where its places and its contents are: offset and length.
type Shape = (u64, bool, [(i64, i64); 2]);

fn shape(message: &Message<'_>) -> Option<Shape> {
    let batch: RecordBatch<'_> = message.header_as_record_batch()?;
    let (nodes, buffers, rows) = (batch.nodes()?, batch.buffers()?, u64::try_from(batch.length()).ok()?);
    let packed = match batch.compression() {
        None => false,
        Some(how) => {
            let is_known =
                how.codec() == CompressionType::LZ4_FRAME && how.method() == BodyCompressionMethod::BUFFER;
            is_known.then_some(true)?
        }
    };
    if nodes.len() != 1 || buffers.len() != 3 || nodes.get(0).length() != batch.length() {
        return None;
    }
    let buffer = |at| (buffers.get(at).offset(), buffers.get(at).length());
    (nodes.get(0).null_count() == 0).then(|| (rows, packed, [buffer(1), buffer(2)]))
}

/// What a buffer holds that may be packed.
fn unpacked(buffer: Bytes, bytes_max: u64) -> Result<Bytes> {
    let Some((said, packed)) = buffer.split_first_chunk::<WORD>() else {
        return if buffer.is_empty() {
            Ok(buffer)
        } else {
            Err(malformed("a packed buffer without a length"))
        };
    };
    let said = i64::from_le_bytes(*said);
    if said == NOT_PACKED {
        return Ok(buffer.slice(WORD..));
    }
    let said = u64::try_from(said)
        .ok()
        .filter(|said| *said <= bytes_max)
        .ok_or_else(|| too_large(said.unsigned_abs(), bytes_max))?;
    let mut bytes = Vec::with_capacity(said as usize);
    // No more is unpacked than was said, and one byte to see that there is more.
    let read = FrameDecoder::new(packed).take(said + 1).read_to_end(&mut bytes);
    match read {
        Ok(read) if read as u64 == said => Ok(bytes.into()),
        _ => Err(malformed("a buffer that is not packed as it says")),
    }
}

/// Where contents begin and end, if that is in order.
fn places_of(words: &[u8], rows: usize, end: usize) -> Option<Vec<usize>> {
    if rows == 0 {
        return Some(vec![0]); // a batch without rows may come without places
    }
    let words = words.chunks_exact(WORD).take(rows + 1);
    let mut places = Vec::with_capacity(words.len());
    for word in words {
        let place = usize::try_from(i64::from_le_bytes(word.try_into().ok()?)).ok()?;
        let is_next = place <= end && places.last().is_none_or(|before| *before <= place);
        places.push(is_next.then_some(place)?);
    }
    (places.len() == rows + 1).then_some(places)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, LargeBinaryArray, RecordBatch as Batch, cast::AsArray};
    use arrow_ipc::reader::StreamReader;
    use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    const CONTENTS: [&[u8]; 4] = [b"first", b"", &[7; 5000], b"last"];
    const TAKES: u64 = 5009 + 5 * 8;

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(vec![Field::new("content", DataType::LargeBinary, false)]))
    }

    fn writer(contents: &[&[u8]]) -> FrameWriter {
        let mut writer = FrameWriter::new(vec![1; 10]);
        for (at, content) in contents.iter().enumerate() {
            assert_eq!(writer.push(content), at as u32);
        }
        writer
    }

    fn sound() -> [Vec<u8>; 2] {
        let writer = writer(&CONTENTS);
        assert_eq!(writer.total_bytes(), TAKES);
        let packed = writer.pack(Vec::new(), 8).unwrap();
        [writer.finish(), packed]
    }

    fn holds(frame: &Frame, contents: &[&[u8]]) {
        for (at, content) in contents.iter().enumerate() {
            assert_eq!(frame.content(at), Some(*content), "content {at}");
        }
        assert_eq!((frame.content(contents.len()), frame.content(usize::MAX)), (None, None));
    }

    /// What Arrow's own writer makes of them, without the schema and the end of its stream.
    fn by_arrow(contents: &[&[u8]], compression: Option<CompressionType>) -> Bytes {
        let array = Arc::new(LargeBinaryArray::from_iter_values(contents));
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema(), options).unwrap();
        let head = writer.get_ref().len();
        writer.write(&Batch::try_new(schema(), vec![array]).unwrap()).unwrap();
        Bytes::from(writer.get_ref()[head..].to_vec())
    }

    #[test]
    fn what_is_written_here_is_read_here_where_it_lies_and_packed() {
        for (frame, at_home) in sound().into_iter().zip([true, false]) {
            let frame = Bytes::from(frame);
            let read = Frame::read(&frame, TAKES).unwrap();
            holds(&read, &CONTENTS);
            let inside = frame.as_ptr_range().contains(&read.content(2).unwrap().as_ptr());
            assert_eq!((read.bytes(), inside), (TAKES, at_home));
        }
        let empty = Bytes::from(writer(&[]).finish());
        holds(&Frame::read(&empty, 8).unwrap(), &[]);
    }

    #[test]
    fn arrow_reads_what_is_written_here() {
        for frame in sound() {
            let mut stream = StreamWriter::try_new(Vec::new(), &schema()).unwrap().get_ref().clone();
            stream.extend(frame);
            let batches: Vec<Batch> =
                StreamReader::try_new(&*stream, None).unwrap().map(Result::unwrap).collect();
            let [batch] = &batches[..] else { panic!("{batches:?}") };
            let contents = batch.column(0).as_binary::<i64>();
            assert!(contents.iter().eq(CONTENTS.map(Some)) && contents.null_count() == 0);
        }
    }

    #[test]
    fn what_arrow_writes_is_read_here() {
        for compression in [None, Some(CompressionType::LZ4_FRAME)] {
            holds(&Frame::read(&by_arrow(&CONTENTS, compression), TAKES).unwrap(), &CONTENTS);
            holds(&Frame::read(&by_arrow(&[], compression), 8).unwrap(), &[]);
        }
        let other = Frame::read(&by_arrow(&CONTENTS, Some(CompressionType::ZSTD)), TAKES);
        assert_eq!(other.unwrap_err().cause(), "Protocol");
    }

    #[test]
    fn what_does_not_become_shorter_is_not_packed() {
        let mut state = 7_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(10_000)
        .collect();
        assert!(writer(&[&noise]).pack(Vec::new(), 8).is_none());
        assert!(writer(&[&noise, &[0; 10_000]]).pack(Vec::new(), 8).is_some());
    }

    #[test]
    fn what_is_packed_or_has_many_contents_takes_long() {
        let [plain, packed] = sound().map(Bytes::from);
        let many = |rows: u64| Bytes::from(writer(&vec![&b""[..]; rows as usize]).finish());
        let long = [plain, packed, many(ROWS_SOON), many(ROWS_SOON + 1), Bytes::from_static(b"none")];
        assert_eq!(long.map(|frame| Frame::takes_long(&frame)), [false, true, false, true, false]);
    }

    // Whoever says exactly what contents and places take is not refused for what Arrow puts beside them.
    #[test]
    fn a_frame_keeps_no_more_than_it_takes_whoever_wrote_it() {
        for rows in [0, 1, 100, 10_000] {
            let contents = vec![&b"ab"[..]; rows];
            let takes = Frame::read(&writer(&contents).finish().into(), u64::MAX).unwrap().bytes();
            for frame in [writer(&contents).finish().into(), by_arrow(&contents, None)] {
                assert!(kept_by(frame.len() as u64 + 16) <= takes, "{rows} contents in {}", frame.len());
            }
        }
        assert!(kept_by(1 << 20) > (1 << 20) - (20 << 10));
    }

    #[test]
    fn no_frame_is_larger_than_was_said_packed_or_not() {
        for frame in sound() {
            for less in [1, 100, 5_009, TAKES] {
                let error = Frame::read(&frame.clone().into(), TAKES - less).unwrap_err();
                assert_eq!(error.cause(), "TooLarge", "{less} bytes fewer");
            }
        }
        // A mebibyte that says that it is a byte.
        let bomb = writer(&[&[0; 1 << 20]]).pack(Vec::new(), 8).unwrap();
        let at = bomb.windows(8).position(|word| word == (1_i64 << 20).to_le_bytes()).unwrap();
        let mut lying = bomb.clone();
        lying[HEAD_BYTES..][..8].copy_from_slice(&1_i64.to_le_bytes());
        assert!(at > 0 && Frame::read(&bomb.into(), 2 << 20).is_ok());
        assert_eq!(Frame::read(&lying.into(), 2 << 20).unwrap_err().cause(), "Protocol");
    }

    #[test]
    fn bytes_that_were_changed_make_another_frame_or_none_and_nothing_panics() {
        for frame in sound() {
            for at in 0..frame.len() {
                for bit in [0x01, 0x80, 0xff] {
                    let mut changed = frame.clone();
                    changed[at] ^= bit;
                    if let Ok(frame) = Frame::read(&changed.into(), TAKES) {
                        (0..8).for_each(|at| _ = frame.content(at));
                        assert!(frame.bytes() <= TAKES);
                    }
                }
            }
            for length in 0..frame.len() {
                let _ = Frame::read(&frame[..length].to_vec().into(), TAKES);
            }
        }
    }
}
