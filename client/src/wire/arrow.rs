//! Record batches as Arrow IPC streams, whole or in pieces.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use bytes::{Bytes, BytesMut};

use super::arrow_message::{check_buffers, message_of};
use super::malformed;
use crate::error::{Error, Result};

/// How large the pieces are in which a stream travels, in bytes.
pub const PIECE_BYTES: usize = 1 << 20;

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
    let bytes = bytes.into();
    check(&bytes)?;
    let read = || -> Result<(Arc<Schema>, Vec<RecordBatch>), ArrowError> {
        let (mut decoder, mut rest, mut batches) = (StreamDecoder::new(), Buffer::from(bytes), Vec::new());
        while !rest.is_empty() {
            batches.extend(decoder.decode(&mut rest)?);
        }
        decoder.finish()?;
        let no_schema = || ArrowError::IpcError("no schema".to_owned());
        Ok((decoder.schema().ok_or_else(no_schema)?, batches))
    };
    // The library panics on some bytes that are none of Arrow's, and a peer must not end this process. Nothing is shared
    // with what panicked.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(unreadable),
        Err(_) => Err(malformed("not an Arrow stream")),
    }
}

/// Refuses a stream whose messages say that they are longer than it is, and messages for which the library would make more room than
/// they take ([`check_message`](super::check_message)).
fn check(stream: &[u8]) -> Result<()> {
    const CONTINUES: [u8; 4] = [0xFF; 4];
    let cut = || malformed("an Arrow stream that is cut off");
    let mut rest = stream;
    while !rest.is_empty() {
        let (word, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let (length, after) = match *word {
            CONTINUES => after.split_first_chunk::<4>().ok_or_else(cut)?,
            _ => (word, after),
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 {
            return Ok(()); // the end of the stream
        }
        let (header, body) = after.split_at_checked(length).ok_or_else(cut)?;
        let message = message_of(header)?;
        let body_bytes = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
        rest = body.get(body_bytes..).ok_or_else(cut)?;
        check_buffers(&message, body_bytes)?;
    }
    Ok(())
}

/// The pieces of a stream.
pub fn pieces(stream: impl Into<Bytes>) -> impl Iterator<Item = Bytes> {
    let whole = stream.into();
    let starts = (0..whole.len().max(1)).step_by(PIECE_BYTES);
    starts.map(move |start| whole.slice(start..whole.len().min(start + PIECE_BYTES)))
}

/// Puts a stream together from its pieces.
#[derive(Debug, Default)]
pub struct Assembler(Vec<Bytes>);

impl Assembler {
    /// Of a stream that is there.
    pub fn of(stream: impl Into<Bytes>) -> Self {
        Assembler(vec![stream.into()])
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: Bytes) {
        self.0.push(piece);
    }

    /// The bytes that came. One piece stays where it is; of several there is a copy.
    pub fn into_bytes(mut self) -> Bytes {
        if self.0.len() < 2 {
            return self.0.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.0.iter().map(Bytes::len).sum());
        self.0.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }

    /// All of it as one batch.
    ///
    /// # Errors
    /// `input` for bytes that are no stream.
    pub fn into_batch(self) -> Result<RecordBatch> {
        let (schema, mut batches) = read_stream(self.into_bytes())?;
        match (batches.pop(), batches.is_empty()) {
            (Some(batch), true) => Ok(batch),
            (None, _) => {
                let options = RecordBatchOptions::new().with_row_count(Some(0));
                let columns =
                    schema.fields().iter().map(|field| arrow_array::new_empty_array(field.data_type()));
                RecordBatch::try_new_with_options(schema.clone(), columns.collect(), &options)
                    .map_err(unreadable)
            }
            (Some(_), false) => Err(malformed("several batches where one is due")),
        }
    }
}

fn unreadable(error: ArrowError) -> Error {
    malformed(&format!("not an Arrow stream ({error})")).because(error)
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, StringViewArray};

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
        vec![
            write_stream(&all.schema(), std::slice::from_ref(&all)).unwrap(),
            write_stream(&all.schema(), &parted).unwrap(),
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
            let Ok((_, batches)) = read_stream(bytes) else { continue };
            read += 1;
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
