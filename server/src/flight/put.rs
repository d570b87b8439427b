//! What clients send: the values of a prepared statement. All else would write.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_schema::{ArrowError, Schema};
use forebay_client::wire::check_message;
use forebay_query::{Cause, Error};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tonic::{Status, Streaming};

use super::status;

/// The most rows of values that one statement is asked with.
const ROWS_MAX: usize = 10_000;
/// The most that the values of one statement take, in bytes.
const BYTES_MAX: usize = 4 << 20;
/// The most that comes for one statement, with all that is not values: heads, padding, what dictionaries were before.
const COME_MAX: usize = 4 * BYTES_MAX;

/// The batches of a `DoPut` as one; `first` is the message that carried the command.
pub(crate) async fn values(first: FlightData, rest: Streaming<FlightData>) -> Result<RecordBatch, Status> {
    // The library panics on some bytes that are none of Arrow's. Nothing is shared with what panicked.
    let gathered = AssertUnwindSafe(gathered(first, rest)).catch_unwind().await;
    gathered
        .unwrap_or_else(|_| Err(Status::invalid_argument("the values cannot be read: they are not Arrow's")))
}

async fn gathered(first: FlightData, rest: Streaming<FlightData>) -> Result<RecordBatch, Status> {
    let mut come = 0;
    let messages = stream::iter([Ok(first)]).chain(rest).map(move |message| looked_at(message?, &mut come));
    let messages = messages.try_filter(|message| std::future::ready(has_values(message)));
    let messages = messages.map_err(|status| FlightError::Tonic(Box::new(status)));
    let mut decoded = FlightRecordBatchStream::new_from_flight_data(messages);
    let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
    while let Some(batch) = decoded.try_next().await.map_err(unreadable)? {
        rows += batch.num_rows();
        bytes += batch.get_array_memory_size();
        if rows > ROWS_MAX || bytes > BYTES_MAX {
            return Err(too_many());
        }
        batches.push(batch);
    }
    let Some(schema) = decoded.schema().cloned() else {
        return Err(Status::invalid_argument(
            "the values of a statement come with their schema; there was none",
        ));
    };
    let values = concat_batches(&schema, &batches).and_then(|values| without_metadata(&values));
    values.map_err(|error| Status::invalid_argument(error.to_string()))
}

/// The same values without the metadata of their schema, which what values take does not count.
fn without_metadata(values: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = Arc::new(Schema::new(values.schema_ref().fields().clone()));
    let rows = RecordBatchOptions::new().with_row_count(Some(values.num_rows()));
    RecordBatch::try_new_with_options(schema, values.columns().to_vec(), &rows)
}

/// A message, unless the library would make more room for it than it takes, or too much has come.
fn looked_at(message: FlightData, come: &mut usize) -> Result<FlightData, Status> {
    let FlightData { data_header, data_body, app_metadata, .. } = &message;
    *come += size_of::<FlightData>() + data_header.len() + data_body.len() + app_metadata.len();
    if *come > COME_MAX {
        return Err(too_many());
    }
    let looked = check_message(data_header, data_body.len());
    looked.map_err(|error| Status::invalid_argument(format!("the values cannot be read: {error}")))?;
    Ok(message)
}

/// Whether there is more in a message than the command, or metadata.
fn has_values(message: &FlightData) -> bool {
    !message.data_header.is_empty() || !message.data_body.is_empty()
}

fn too_many() -> Status {
    Status::invalid_argument(format!(
        "too many values for one statement: {ROWS_MAX} rows of {BYTES_MAX} bytes in all are the most"
    ))
}

fn unreadable(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        error => Status::invalid_argument(format!("the values cannot be read: {error}")),
    }
}

/// The refusal of a bulk load.
pub(crate) fn no_ingest() -> Status {
    let instead = "rows are inserted with `Table::insert`, many at once with `Store::batch`";
    status::of(&Error::from(Cause::ReadOnly { verb: "a bulk load".to_owned(), instead }))
}

/// The refusal to run as an update what reads.
pub(crate) fn no_update() -> Status {
    Status::invalid_argument("the statement reads; ask for its rows instead of the number of changed ones")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn values_keep_their_rows_and_nothing_that_was_said_beside_them() {
        let long = HashMap::from([("comment".to_owned(), "x".repeat(1 << 20))]);
        let number = Field::new("a", DataType::Int64, false);
        let schema = Arc::new(Schema::new_with_metadata(vec![number], long.clone()));
        let column = Arc::new(Int64Array::from(vec![7, 8]));
        let values = RecordBatch::try_new(schema, vec![column]).unwrap();
        let kept = without_metadata(&values).unwrap();
        assert_eq!(
            (kept.columns(), kept.schema_ref().fields()),
            (values.columns(), values.schema_ref().fields())
        );
        assert!(kept.schema_ref().metadata().is_empty());
        let none = Arc::new(Schema::new_with_metadata(Vec::<Field>::new(), long));
        let rows = RecordBatchOptions::new().with_row_count(Some(3));
        let rows = RecordBatch::try_new_with_options(none, Vec::new(), &rows).unwrap();
        assert_eq!(without_metadata(&rows).unwrap().num_rows(), 3);
    }
}
