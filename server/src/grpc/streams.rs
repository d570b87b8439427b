//! Answers that come in pieces.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use forebay_client::wire::proto::ArrowPiece;
use forebay_client::wire::{PIECE_BYTES, SentCell};
use forebay_client::{Epoch, Error, Holder, wire};
use forebay_query::RowStream;
use forebay_store::Kind;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use tonic::Status;

use super::sessions::Present;
use crate::asked::failure;
use crate::gathered::{Gathered, Taken};
use crate::queries::Query;

/// What a call with many messages answers.
pub(crate) type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// How often a client hears that the server is there.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// How many columns may be asked for at once: those that a table may have, with all that the engine keeps.
const COLUMNS_MAX: usize = 256;

/// The pieces of a stream that is there.
pub(super) fn pieces(whole: Vec<u8>) -> Answers<ArrowPiece> {
    stream::iter(wire::pieces(whole).map(|bytes| Ok(ArrowPiece { bytes }))).boxed()
}

/// A stream that is there, with the memory that it has until it was taken.
pub(super) struct Whole {
    pub(super) stream: Vec<u8>,
    taken: Taken,
}

impl Whole {
    /// The cells of columns, if there is room for them.
    pub(super) fn of_cells(columns: &[Vec<SentCell>], room: &Gathered) -> Result<Self, Error> {
        // Before they are copied: a few rows may be asked for again and again.
        let taken = room_for(wire::bytes_of_cells(columns), room)?;
        Ok(Whole { stream: whole(&wire::from_cells(columns)?)?, taken })
    }

    /// Rows, where there is room for them.
    fn of_rows(batch: &RecordBatch, room: &Gathered) -> Result<Self, Error> {
        let stream = written(batch)?;
        let taken = room_for(stream.len() as u64, room)?;
        Ok(Whole { stream, taken })
    }

    pub(super) fn pieces(self) -> Answers<ArrowPiece> {
        let Whole { stream, taken } = self;
        let pieces = wire::pieces(stream).map(move |bytes| {
            let _until_the_last = &taken;
            Ok(ArrowPiece { bytes })
        });
        stream::iter(pieces).boxed()
    }
}

fn room_for(bytes: u64, room: &Gathered) -> Result<Taken, Error> {
    room.take(bytes).ok_or_else(|| {
        let message = format!(
            "an answer of {bytes} bytes does not fit into what answers of rows have together; ask for fewer rows or columns at once"
        );
        Error::new(Kind::Capacity, "Answers", message)
    })
}

/// A query's rows as an Arrow stream, written as they come. The query counts as running while they are read.
pub(super) fn rows(rows: RowStream, query: Arc<Query>) -> Result<Answers<ArrowPiece>, Status> {
    let writer = StreamWriter::try_new(Vec::new(), rows.schema()).map_err(unwritable)?;
    let state = (rows, Some(writer), query);
    let written = stream::unfold(state, |(mut rows, writer, query)| async move {
        let mut writer = writer?;
        let last = loop {
            match rows.next().await {
                Some(Ok(batch)) => {
                    if let Err(error) = writer.write(&batch) {
                        return Some((Err(unwritable(error)), (rows, None, query)));
                    }
                    if writer.get_ref().len() >= PIECE_BYTES {
                        break false;
                    }
                }
                Some(Err(error)) => {
                    query.failed(error.kind().as_str());
                    return Some((Err(wire::from_error(&failure(&error))), (rows, None, query)));
                }
                None => break true,
            }
        };
        if last && let Err(error) = writer.finish() {
            return Some((Err(unwritable(error)), (rows, None, query)));
        }
        let bytes = std::mem::take(writer.get_mut());
        Some((Ok(bytes), (rows, (!last).then_some(writer), query)))
    });
    let split = written.flat_map(|written| match written {
        Ok(bytes) => pieces(bytes),
        Err(status) => stream::iter([Err(status)]).boxed(),
    });
    Ok(split.boxed())
}

fn unwritable(error: arrow_schema::ArrowError) -> Status {
    tracing::error!(%error, "an answer could not be written");
    Status::internal(error.to_string())
}

/// What a session's stream says first, and then, for as long as the client is there, that the server is.
pub(super) fn presence<T: Send + 'static>(
    first: T,
    alive: impl Fn() -> T + Send + 'static,
    present: Present,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Answers<T> {
    let beats = stream::unfold((), |()| async {
        tokio::time::sleep(ALIVE_EVERY).await;
        Some(((), ()))
    });
    let beats = beats.map(move |()| {
        let _until_the_end = &present;
        Ok(alive())
    });
    stream::iter([Ok(first)]).chain(beats).take_until(stop).boxed()
}

/// Columns of a claim as they travel: as Arrow shows them or cell by cell, with their values or with the places of those.
pub(super) fn of_claim(
    holder: &Holder,
    claim: Epoch,
    names: &[String],
    cells: bool,
    placed: bool,
    room: &Gathered,
) -> Result<Whole, Error> {
    if names.len() > COLUMNS_MAX {
        let message =
            format!("{} columns were asked for, and {COLUMNS_MAX} are the most at once", names.len());
        return Err(Error::new(Kind::Input, "TooLarge", message));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match (cells, placed) {
        (true, _) => Whole::of_cells(&holder.sent_cells(claim, &names, placed)?, room),
        (false, true) => {
            let stream = whole(holder.places(claim, &names)?.batch())?;
            let taken = room_for(stream.len() as u64, room)?;
            Ok(Whole { stream, taken })
        }
        (false, false) => Whole::of_rows(&holder.columns(claim, &names)?, room),
    }
}

/// Rows as they travel: nothing of an extent beside the values.
pub(super) fn written(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    let compacted =
        forebay_store::compact(batch).map_err(|error| Error::new(Kind::State, "Bug", error.to_string()))?;
    whole(&compacted)
}

/// A batch as a stream of its own.
pub(super) fn whole(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    wire::write_stream(&batch.schema(), std::slice::from_ref(batch))
}
