//! A look at a message of Arrow, before the library makes arrays of it.

use arrow_ipc::Message;
use flatbuffers::VerifierOptions;

use super::malformed;
use crate::error::Result;

/// How much larger than its bytes a header may look, and more for a small one: what it says once is looked at from several sides.
const APPARENT_TIMES: usize = 16;
const APPARENT_BYTES: usize = 4096;

/// Refuses a message of Arrow, by its header and how long its body is, for which the library would make more room than it takes: one
/// that is packed, which none here is and whose lengths the library believes, ending the process where there is no room; one whose
/// buffers lie outside of its body, or share it; and one whose parts are named many times over. One without a header has nothing but
/// metadata.
///
/// # Errors
/// `input` for such a message, and for a header that is none.
pub fn check_message(header: &[u8], body_bytes: usize) -> Result<()> {
    match header {
        [] => Ok(()),
        header => check_buffers(&message_of(header)?, body_bytes),
    }
}

/// What a header says, which is no more than its bytes hold.
pub(super) fn message_of(header: &[u8]) -> Result<Message<'_>> {
    let max_apparent_size = APPARENT_BYTES + APPARENT_TIMES * header.len();
    let options = VerifierOptions { max_apparent_size, ..VerifierOptions::default() };
    arrow_ipc::root_as_message_with_opts(&options, header)
        .map_err(|error| malformed(&format!("not an Arrow message ({error})")))
}

/// Refuses what is packed, and buffers that are not in a body of that length, each in a place of its own.
pub(super) fn check_buffers(message: &Message<'_>, body_bytes: usize) -> Result<()> {
    let dictionary = message.header_as_dictionary_batch().and_then(|batch| batch.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(()) };
    if batch.compression().is_some() {
        return Err(malformed("an Arrow message that is packed; send its buffers as they are"));
    }
    let mut named = 0_usize;
    for buffer in batch.buffers().into_iter().flatten() {
        let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let end = place.and_then(|(offset, length)| offset.checked_add(length));
        named = named.saturating_add(place.map_or(0, |(_, length)| length));
        if end.is_none_or(|end| end > body_bytes) || named > body_bytes {
            let (offset, length) = (buffer.offset(), buffer.length());
            let message = format!(
                "an Arrow message with {length} bytes at {offset} of a body of {body_bytes}, of which others have their own"
            );
            return Err(malformed(&message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::{DataType, Field, Schema};
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// The header of a batch of two columns of 100 numbers, and how long its body is.
    fn header() -> (Vec<u8>, usize) {
        let numbers: arrow_array::ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
        let batch = RecordBatch::try_from_iter([("a", numbers.clone()), ("b", numbers)]).unwrap();
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        let before = writer.get_ref().len();
        writer.write(&batch).unwrap();
        let message = writer.get_ref()[before..].to_vec();
        let length = u32::from_le_bytes(*message[4..].first_chunk().unwrap()) as usize;
        let header = message[8..8 + length].to_vec();
        (header, message.len() - 8 - length)
    }

    fn refused(header: &[u8], body_bytes: usize) -> String {
        let error = check_message(header, body_bytes).unwrap_err();
        assert_eq!(error.cause(), "Protocol");
        error.to_string()
    }

    #[test]
    fn a_message_that_is_sound_is_taken_and_so_is_one_without_a_header() {
        let (header, body_bytes) = header();
        check_message(&header, body_bytes).unwrap();
        check_message(&[], 0).unwrap();
    }

    #[test]
    fn buffers_beyond_the_body_and_buffers_that_share_it_are_refused() {
        let (mut header, body_bytes) = header();
        assert!(refused(&header, body_bytes - 65).contains("an Arrow message with 800 bytes at"));
        // Where the second column lies: as far as the first is long, with its padding.
        let place: Vec<u8> = [832_u64, 800].into_iter().flat_map(u64::to_le_bytes).collect();
        let at = header.windows(16).position(|bytes| bytes == place).unwrap();
        header[at..at + 8].fill(0);
        assert!(refused(&header, 832).contains("an Arrow message with 800 bytes at 0"));
        header[at + 7] = 0x80; // negative
        assert!(refused(&header, body_bytes).contains("an Arrow message with 800 bytes at -"));
    }

    // A few kilobytes that stand for a schema of hundreds of megabytes: every field is the same, with a long name.
    #[test]
    fn a_header_whose_parts_are_named_again_and_again_is_refused() {
        let mut writer = FlatBufferBuilder::new();
        let name = writer.create_string(&"n".repeat(10_000));
        let kind = arrow_ipc::NullBuilder::new(&mut writer).finish();
        let mut field = arrow_ipc::FieldBuilder::new(&mut writer);
        field.add_name(name);
        field.add_type_type(arrow_ipc::Type::Null);
        field.add_type_(kind.as_union_value());
        let field = field.finish();
        let fields = writer.create_vector(&vec![field; 50_000]);
        let mut schema = arrow_ipc::SchemaBuilder::new(&mut writer);
        schema.add_fields(fields);
        let schema = schema.finish();
        let mut message = arrow_ipc::MessageBuilder::new(&mut writer);
        message.add_header_type(arrow_ipc::MessageHeader::Schema);
        message.add_header(schema.as_union_value());
        let message = message.finish();
        writer.finish(message, None);
        assert!(arrow_ipc::root_as_message(writer.finished_data()).is_ok(), "the library would take it");
        refused(writer.finished_data(), 0);
    }

    #[test]
    fn a_schema_of_thousands_of_columns_is_taken() {
        let fields: Vec<Field> =
            (0..5_000).map(|at| Field::new(at.to_string(), DataType::Utf8, true)).collect();
        let writer = StreamWriter::try_new(Vec::new(), &Schema::new(fields)).unwrap();
        let header = &writer.get_ref()[8..];
        check_message(header, 0).unwrap();
    }
}
