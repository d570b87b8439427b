//! Batches as they go over the wire.
//!
//! Invariants
//! - Columns have the types that every driver reads: text and bytes with offsets instead of views, values instead of
//!   dictionaries. So nothing of a mapped extent is shipped beside the values themselves.
//! - A message is about `PIECE_BYTES` large, and never larger than what drivers take: a larger one is refused here, with
//!   words, rather than there.

use std::pin::Pin;
use std::sync::Arc;

use arrow::compute::{cast, take_record_batch};
use arrow_array::{Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use forebay_query::RowStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use tonic::Status;

use super::status;
use crate::queries::Query;

/// The size of a message that is aimed at, in bytes.
const PIECE_BYTES: usize = 2 << 20;
/// The largest message that drivers take, in bytes, with room for its envelope.
const MESSAGE_BYTES_MAX: usize = (16 << 20) - (64 << 10);

/// What a `DoGet` answers.
pub(crate) type Messages = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// The messages of one batch that is there.
pub(crate) fn batch(batch: RecordBatch) -> Messages {
    encoded(batch.schema(), stream::iter([Ok(batch)]))
}

/// The messages of a query. While they are read it counts as running and can be ended.
pub(crate) fn rows(rows: RowStream, query: Arc<Query>) -> Messages {
    let (schema, ended) = (schema(rows.schema()), query.ended());
    let wanted = schema.clone();
    let pieces = rows.map(move |batch| {
        let batch = batch.map_err(|error| {
            query.failed(error.kind().as_str());
            status::of(&error)
        })?;
        pieces(&batch, &wanted).map_err(status::internal)
    });
    let pieces = pieces.map_ok(|pieces| stream::iter(pieces).map(Ok)).try_flatten();
    let until_ended = stream::unfold(Some((Box::pin(pieces), ended)), |state| async move {
        let (mut pieces, ended) = state?;
        tokio::select! {
            biased;
            () = ended.notified() => Some((Err(Status::cancelled("the query was cancelled")), None)),
            piece = pieces.next() => piece.map(|piece| (piece, Some((pieces, ended)))),
        }
    });
    encoded(schema, until_ended)
}

fn encoded(
    schema: SchemaRef,
    batches: impl Stream<Item = Result<RecordBatch, Status>> + Send + 'static,
) -> Messages {
    let batches = batches.map_err(|status| FlightError::Tonic(Box::new(status)));
    let messages = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(usize::MAX) // the batches are pieces already
        .build(batches);
    Box::pin(messages.map(|message| match message {
        Ok(message) => small_enough(message),
        Err(FlightError::Tonic(status)) => Err(*status),
        Err(error) => Err(status::internal(error)),
    }))
}

fn small_enough(message: FlightData) -> Result<FlightData, Status> {
    let bytes = message.data_header.len() + message.data_body.len();
    match bytes > MESSAGE_BYTES_MAX {
        false => Ok(message),
        true => Err(Status::resource_exhausted(format!(
            "one row of the answer takes {bytes} bytes, and a message carries {MESSAGE_BYTES_MAX} at most; ask for a part of \
             its values (`substr`, `array_slice`) or for their lengths"
        ))),
    }
}

/// The schema as it goes over the wire.
pub(crate) fn schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = plain_type(field.data_type());
    let field = Field::new(field.name(), plain, field.is_nullable()).with_metadata(field.metadata().clone());
    Arc::new(field)
}

fn plain_type(data_type: &DataType) -> DataType {
    use DataType as T;
    match data_type {
        T::Utf8View => T::Utf8,
        T::BinaryView => T::Binary,
        T::Dictionary(_, values) => plain_type(values),
        T::RunEndEncoded(_, values) => plain_type(values.data_type()),
        T::List(field) | T::ListView(field) => T::List(plain_field(field)),
        T::LargeList(field) | T::LargeListView(field) => T::LargeList(plain_field(field)),
        T::FixedSizeList(field, length) => T::FixedSizeList(plain_field(field), *length),
        T::Struct(fields) => T::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}

/// The batch in the wire's types, in pieces.
fn pieces(batch: &RecordBatch, schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast(column, field.data_type()),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let plain = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
    let mut pieces = Vec::new();
    cut(plain, &mut pieces)?;
    Ok(pieces)
}

/// Cuts a batch into pieces that own their bytes; again where its rows are of very different sizes.
fn cut(batch: RecordBatch, pieces: &mut Vec<RecordBatch>) -> Result<(), ArrowError> {
    let rows = batch.num_rows();
    let parts = batch.get_array_memory_size().div_ceil(PIECE_BYTES).min(rows);
    if parts <= 1 {
        pieces.push(batch);
        return Ok(());
    }
    let rows_each = rows.div_ceil(parts);
    for from in (0..rows).step_by(rows_each) {
        let to = rows.min(from + rows_each);
        let piece = take_record_batch(&batch, &UInt64Array::from_iter_values(from as u64..to as u64))?;
        match piece.get_array_memory_size() > 2 * PIECE_BYTES && piece.num_rows() < rows {
            true => cut(piece, pieces)?,
            false => pieces.push(piece),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot make its own batch should stop there")]

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, ListArray, StringViewArray};

    use super::*;

    fn of(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn every_driver_can_read_the_types() {
        let words: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let views = StringViewArray::from(vec![Some("x"), None, Some("long enough for a buffer")]);
        let batch = of(vec![("word", Arc::new(words)), ("view", Arc::new(views))]);
        let pieces = pieces(&batch, &schema(&batch.schema())).unwrap();
        assert_eq!(pieces.len(), 1);
        let columns = pieces[0].columns();
        assert_eq!(columns[0].as_string::<i32>().value(2), "a");
        assert!(columns[1].is_null(1) && columns[1].data_type() == &DataType::Utf8);
    }

    #[test]
    fn a_large_batch_goes_in_pieces_of_its_rows() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(
            (0..4096).map(|row| Some(vec![Some(row); if row == 7 { 1 << 20 } else { 500 }])),
        );
        let text: StringViewArray = (0..4096).map(|row| Some(format!("{row:02000}"))).collect();
        let batch = of(vec![("tokens", Arc::new(lists)), ("text", Arc::new(text))]);
        let pieces = pieces(&batch, &schema(&batch.schema())).unwrap();
        assert!(pieces.iter().all(|piece| piece.num_rows() == 1 || piece.get_array_memory_size() < 6 << 20));
        let (mut row, mut largest) = (0, 0);
        for piece in &pieces {
            let texts = piece.column(1).as_string::<i32>();
            for text in texts.iter().flatten() {
                assert_eq!(text, format!("{row:02000}"));
                row += 1;
            }
            largest = largest.max(piece.get_array_memory_size());
        }
        assert_eq!(row, 4096);
        assert!(largest < MESSAGE_BYTES_MAX, "{largest}");
    }

    #[test]
    fn rows_without_columns_are_rows() {
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        let pieces = pieces(&batch, &batch.schema()).unwrap();
        assert_eq!(pieces.iter().map(RecordBatch::num_rows).sum::<usize>(), 5);
    }
}
