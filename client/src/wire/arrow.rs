//! Record batches as Arrow IPC streams, whole or in pieces.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Schema};
use arrow_select::concat::concat_batches;
use bytes::{Buf, Bytes};

use super::arrow_message::{check_buffers, message_of};
use super::{Rope, malformed};
use crate::error::{Error, Result};

/// How large the pieces are in which a stream travels, in bytes.
pub const PIECE_BYTES: usize = 1 << 20;

/// A piece with what goes around it: values that make up a piece travel as one frame of the transport, and need not be put together.
pub const FRAMED_PIECE_BYTES: usize = PIECE_BYTES + (64 << 10);

/// What the messages of a small stream take beside their columns: room to begin with.
const HEADERS_BYTES: usize = 4096;

/// Writes batches of one schema as a stream. They are to be compact: room is made for all of their memory.
///
/// # Errors
/// `input` when a batch has another schema: nobody's but a program's fault.
pub fn write_stream(schema: &Schema, batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let bytes: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
    let write = || -> Result<Vec<u8>, ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::with_capacity(bytes + HEADERS_BYTES), schema)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    };
    write().map_err(unreadable)
}

/// Reads a whole stream. The batches hold its bytes where those are aligned for them, and copies where they are not.
///
/// # Errors
/// `input` for bytes that are no stream.
pub fn read_stream(bytes: impl Into<Bytes>) -> Result<(Arc<Schema>, Vec<RecordBatch>)> {
    Assembler::of(bytes).into_batches()
}

/// What messages of a stream begin with since Arrow 0.15.
const CONTINUES: [u8; 4] = [0xFF; 4];
/// What a stream ends with.
const END: [u8; 4] = [0; 4];

fn cut() -> Error {
    malformed("an Arrow stream that is cut off")
}

/// The next so many bytes, in one piece.
fn take(stream: &mut Rope, bytes: usize) -> Result<Bytes> {
    if stream.remaining() < bytes { Err(cut()) } else { Ok(stream.copy_to_bytes(bytes)) }
}

/// How long the next message's header is, as it is said; none at the end of the stream, behind which nothing comes.
fn next_length(stream: &mut Rope) -> Result<Option<Bytes>> {
    let word = take(stream, 4)?;
    let length = if *word == CONTINUES { take(stream, 4)? } else { word };
    match *length == END {
        true if stream.has_remaining() => Err(malformed("an Arrow stream that goes on behind its end")),
        is_end => Ok((!is_end).then_some(length)),
    }
}

/// The next message: how long its header is, the header, and the body. None at the end. Refuses one that says that it is longer than the
/// stream, and one for which the library would make more room than it takes ([`check_buffers`]).
fn next_message(stream: &mut Rope) -> Result<Option<[Bytes; 3]>> {
    let Some(word) = next_length(stream)? else { return Ok(None) };
    let length = word.as_ref().try_into().map(u32::from_le_bytes).map_err(|_| cut())?;
    let header = take(stream, length as usize)?;
    let message = message_of(&header)?;
    let body_bytes = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
    if body_bytes > stream.remaining() {
        return Err(cut());
    }
    check_buffers(&message, body_bytes)?;
    Ok(Some([word, header, take(stream, body_bytes)?]))
}

/// The pieces of a stream: one where it is not longer than [`FRAMED_PIECE_BYTES`].
pub fn pieces(stream: impl Into<Bytes>) -> impl Iterator<Item = Bytes> {
    let whole = stream.into();
    let step = if whole.len() <= FRAMED_PIECE_BYTES { FRAMED_PIECE_BYTES } else { PIECE_BYTES };
    let starts = (0..whole.len().max(1)).step_by(step);
    starts.map(move |start| whole.slice(start..whole.len().min(start + step)))
}

/// A stream as it comes, in pieces.
#[derive(Clone, Debug, Default)]
pub struct Assembler(Rope);

impl Assembler {
    /// Of a stream that is there.
    pub fn of(stream: impl Into<Bytes>) -> Self {
        let mut assembler = Assembler::default();
        assembler.push(stream.into());
        assembler
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: Bytes) {
        self.0.push(piece);
    }

    /// Whether nothing has come.
    pub fn is_empty(&self) -> bool {
        !self.0.has_remaining()
    }

    /// Its batches. They hold the bytes that came where a message is in one piece and aligned for them, else copies.
    ///
    /// # Errors
    /// `input` for bytes that are no stream.
    pub fn into_batches(mut self) -> Result<(Arc<Schema>, Vec<RecordBatch>)> {
        let (mut decoder, mut batches) = (StreamDecoder::new(), Vec::new());
        while let Some(message) = next_message(&mut self.0)? {
            for part in message {
                batches.extend(decoded(&mut decoder, part)?);
            }
        }
        batches.extend(decoded(&mut decoder, Bytes::from_static(&END))?); // behind a message without a body, too
        decoder.finish().map_err(unreadable)?;
        let no_schema = || unreadable(ArrowError::IpcError("no schema".to_owned()));
        Ok((decoder.schema().ok_or_else(no_schema)?, batches))
    }

    /// All of it as one batch. Texts and bytes of several stay where they came, all else is put together.
    ///
    /// # Errors
    /// `input` for bytes that are no stream.
    pub fn into_batch(self) -> Result<RecordBatch> {
        let (schema, mut batches) = self.into_batches()?;
        match batches.len() {
            0 => Ok(RecordBatch::new_empty(schema)),
            1 => Ok(batches.remove(0)),
            _ => joined(&schema, &batches),
        }
    }
}

/// Several batches as one.
fn joined(schema: &Arc<Schema>, batches: &[RecordBatch]) -> Result<RecordBatch> {
    if !schema.fields().iter().all(|field| takes_what_it_came_in(field.data_type())) {
        return Err(malformed("several batches, of columns that no table has, where one is due"));
    }
    let join = || concat_batches(schema, batches);
    match catch_unwind(AssertUnwindSafe(join)) {
        Ok(joined) => joined.map_err(unreadable),
        Err(_) => Err(malformed("batches that do not fit together")),
    }
}

/// Whether a column that is written out takes about as much as it came in. Not so a list view, of which a few bytes name the same values again
/// and again, nor what takes no bytes at all, of which there may be any number. All that a table's columns can be is one that does.
fn takes_what_it_came_in(of: &DataType) -> bool {
    match of {
        DataType::Boolean | DataType::Utf8 | DataType::Binary | DataType::Utf8View | DataType::BinaryView => {
            true
        }
        DataType::FixedSizeBinary(bytes) => *bytes > 0,
        DataType::List(item) => takes_what_it_came_in(item.data_type()),
        DataType::FixedSizeList(item, elements) => *elements > 0 && takes_what_it_came_in(item.data_type()),
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| takes_what_it_came_in(field.data_type()))
        }
        of => of.is_primitive(),
    }
}

/// The batch that ends with these bytes, if one does.
fn decoded(decoder: &mut StreamDecoder, part: Bytes) -> Result<Option<RecordBatch>> {
    let decode = || -> Result<Option<RecordBatch>, ArrowError> {
        let (mut rest, mut batch) = (Buffer::from(part), None);
        while !rest.is_empty() {
            batch = decoder.decode(&mut rest)?.or(batch);
        }
        Ok(batch)
    };
    // The library panics on some bytes that are none of Arrow's, and a peer must not end this process. Who is refused here
    // goes on with nothing of the decoder.
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded.map_err(unreadable),
        Err(_) => Err(malformed("not an Arrow stream")),
    }
}

fn unreadable(error: ArrowError) -> Error {
    malformed(&format!("not an Arrow stream ({error})")).because(error)
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::{Int32Array, StringViewArray};
    use arrow_schema::{Field, Fields};

    use super::*;

    fn batch(rows: i32) -> RecordBatch {
        let texts: StringViewArray = (0..rows).map(|at| Some(format!("text number {at}"))).collect();
        let numbers = Int32Array::from_iter_values(0..rows);
        RecordBatch::try_from_iter([("text", Arc::new(texts) as _), ("number", Arc::new(numbers) as _)])
            .unwrap()
    }

    #[test]
    fn a_batch_comes_back_from_its_pieces() {
        for rows in [0, 1, 200_000] {
            let batch = batch(rows);
            let stream = write_stream(&batch.schema(), std::slice::from_ref(&batch)).unwrap();
            assert_eq!(pieces(stream.clone()).count(), stream.len().div_ceil(PIECE_BYTES));
            let mut assembler = Assembler::default();
            pieces(stream).for_each(|piece| assembler.push(piece));
            assert_eq!(assembler.into_batch().unwrap(), batch);
        }
    }

    #[test]
    fn batches_of_one_stream_are_one_again_and_their_texts_stay_where_they_came() {
        let whole = batch(5_000);
        let parts: Vec<RecordBatch> = (0..5).map(|at| whole.slice(at * 1_000, 1_000)).collect();
        let stream = write_stream(&whole.schema(), &parts).unwrap();
        let came: Vec<Bytes> = pieces(stream).collect();
        let mut assembler = Assembler::default();
        came.iter().for_each(|piece| assembler.push(piece.clone()));
        let read = assembler.into_batch().unwrap();
        assert_eq!(read, whole);
        let lies_in_what_came =
            |text: &str| came.iter().any(|piece| piece.as_ptr_range().contains(&text.as_ptr()));
        let texts = read.column(0).as_string_view();
        let long = texts.iter().flatten().filter(|text| text.len() > 12);
        assert!(long.clone().count() > 4_000 && long.clone().all(lies_in_what_came));
    }

    #[test]
    fn batches_whose_few_bytes_may_stand_for_many_are_not_put_together() {
        let stream = streams().swap_remove(1); // four batches, one column of them list views
        assert_eq!(read_stream(stream.clone()).unwrap().1.len(), 4);
        let error = Assembler::of(stream).into_batch().unwrap_err();
        assert_eq!(error.cause(), "Protocol");
        assert!(error.to_string().contains("several batches"), "{error}");
        let nested = |of: DataType| DataType::List(Arc::new(Field::new("item", of, true)));
        for of in [
            DataType::Null,
            DataType::FixedSizeBinary(0),
            DataType::Struct(Fields::empty()),
            DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, true)), 0),
        ] {
            assert!(!takes_what_it_came_in(&of) && !takes_what_it_came_in(&nested(of.clone())), "{of}");
        }
    }

    #[test]
    fn a_stream_ends_where_it_says_and_nowhere_else() {
        let whole = batch(3_000);
        let parts = [whole.slice(0, 1_500), whole.slice(1_500, 1_500)];
        let stream = write_stream(&whole.schema(), &parts).unwrap();
        let first = write_stream(&whole.schema(), &parts[..1]).unwrap();
        let without_end = first.len() - 8;
        assert_eq!(stream[..without_end], first[..without_end], "a batch behind the other");
        let longer = [&stream[..], &[0; 8]].concat();
        for bytes in [&stream[..without_end], &longer] {
            assert_eq!(read_stream(bytes.to_vec()).unwrap_err().cause(), "Protocol");
        }
    }

    #[test]
    fn a_stream_without_a_batch_is_an_empty_one_and_hostile_bytes_are_refused() {
        let none = write_stream(&batch(1).schema(), &[]).unwrap();
        assert_eq!(Assembler::of(none).into_batch().unwrap().num_rows(), 0);
        let mut stream = write_stream(&batch(3).schema(), &[batch(3)]).unwrap();
        for at in 0..stream.len() {
            stream[at] ^= 0x55;
            let _ = read_stream(stream.clone()); // an error or another batch, and this goes on
            stream[at] ^= 0x55;
            let _ = read_stream(stream[..at].to_vec());
        }
    }

    // One that says that it holds 200 GB would end the process.
    #[test]
    fn a_packed_stream_is_refused_before_it_is_unpacked() {
        use arrow_ipc::CompressionType;
        use arrow_ipc::writer::IpcWriteOptions;
        let rows = batch(1000);
        let options =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &rows.schema(), options).unwrap();
        writer.write(&rows).unwrap();
        let error = read_stream(writer.into_inner().unwrap()).unwrap_err();
        assert!(error.to_string().contains("packed"), "{error}");
    }

    /// Streams with all that the protocol's columns can be: views, lists of lists, tensors, bits, nulls, several batches.
    fn streams() -> Vec<Vec<u8>> {
        use arrow_array::builder::*;
        use arrow_array::types::Float32Type;
        use arrow_array::{BooleanArray, FixedSizeListArray, ListArray};
        let mut lists = ListViewBuilder::new(Int32Builder::new());
        let mut bytes = BinaryViewBuilder::new();
        for at in 0..20 {
            lists.append_value((0..at).map(Some));
            bytes.append_option((at % 3 > 0).then(|| vec![at as u8; at as usize * 4]));
        }
        let parts = || (0..20).map(|at| (at % 4 > 0).then(|| vec![Some(at as f32); 3]));
        let columns: [(&str, arrow_array::ArrayRef); 6] = [
            ("tokens", Arc::new(lists.finish())),
            ("image", Arc::new(bytes.finish())),
            ("tensor", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(parts(), 3))),
            ("parts", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(parts()))),
            (
                "flag",
                Arc::new((0..20).map(|at| (at % 5 > 0).then_some(at % 2 == 0)).collect::<BooleanArray>()),
            ),
            ("text", batch(20).column(0).clone()),
        ];
        let all =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
                .unwrap();
        let parted: Vec<RecordBatch> = (0..4).map(|at| all.slice(at * 5, 5)).collect();
        let joinable: Vec<RecordBatch> =
            parted.iter().map(|part| part.project(&[1, 2, 3, 4, 5]).unwrap()).collect();
        vec![
            write_stream(&all.schema(), std::slice::from_ref(&all)).unwrap(),
            write_stream(&all.schema(), &parted).unwrap(),
            write_stream(&joinable[0].schema(), &joinable).unwrap(),
            write_stream(&batch(3).schema(), &[batch(3)]).unwrap(),
        ]
    }

    /// `FOREBAY_ROUNDS=2000000 FOREBAY_SEED=7 cargo test -p forebay-client --lib streams_that_nobody_wrote` is the long form.
    #[test]
    fn streams_that_nobody_wrote_are_refused_or_hold_what_can_be_read() {
        use forebay_store::{Randomness, SeededRandomness};
        let from = |name: &str, otherwise| {
            std::env::var(name).map_or(otherwise, |text| text.parse::<u64>().unwrap())
        };
        let (seed, rounds) = (from("FOREBAY_SEED", 51), from("FOREBAY_ROUNDS", 6_000));
        let (dice, sound, mut read) = (SeededRandomness::new(seed), streams(), 0_u64);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {})); // the library's own panics are caught, and are not to be seen
        for round in 0..rounds {
            let mut bytes = sound[dice.next_u64() as usize % sound.len()].clone();
            for _ in 0..1 + dice.next_u64() % 3 {
                let at = dice.next_u64() as usize % bytes.len();
                match dice.next_u64() % 5 {
                    0 => bytes[at] ^= 1 << (dice.next_u64() % 8),
                    1 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][dice.next_u64() as usize % 5],
                    2 => bytes.truncate(at.max(8)),
                    3 => {
                        let end = bytes.len().min(at + 8);
                        bytes[at..end].fill(0xFF);
                    }
                    _ => {
                        let end = bytes.len().min(at + 4);
                        let number = (dice.next_u64() as u32 % 64).to_le_bytes();
                        bytes[at..end].copy_from_slice(&number[..end - at]);
                    }
                }
            }
            let Ok((_, mut batches)) = read_stream(bytes.clone()) else { continue };
            read += 1;
            batches.extend(Assembler::of(bytes).into_batch());
            for batch in &batches {
                for column in batch.columns() {
                    let whole = column.to_data().validate_full();
                    assert!(whole.is_ok(), "seed {seed}, round {round}: {whole:?}");
                }
            }
        }
        std::panic::set_hook(hook);
        assert!(read > 0, "seed {seed}: nothing was read, so nothing was tried");
    }
}
