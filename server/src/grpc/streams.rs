//! Answers that come in pieces.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use bytes::Bytes;
use forebay_client::wire::proto::ArrowPiece;
use forebay_client::wire::{PIECE_BYTES, SentCell};
use forebay_client::{Epoch, Error, Holder, wire};
use forebay_query::RowStream;
use forebay_store::{Kind, Lists};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use tonic::Status;

use super::reading::Reader;
use super::sending::{Part, Sending, messages};
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

/// What a row counts for in a column whose values are sent by their places, in bytes.
const PLACED_BYTES: u64 = 64;

/// The pieces of a stream that is there.
fn pieces(whole: impl Into<Bytes> + 'static) -> Answers<ArrowPiece> {
    messages(Part::of_whole(whole))
}

/// A stream that is there, with the memory that it has until it was taken.
pub(super) struct Whole {
    pub(super) stream: Vec<u8>,
    /// What was thought that it takes, and what it takes beyond that.
    _taken: [Taken; 2],
}

impl Whole {
    /// The cells of columns, if there is room for them.
    pub(super) fn of_cells(columns: &[Vec<SentCell>], room: &Gathered) -> Result<Self, Error> {
        // Before they are copied: a few rows may be asked for again and again.
        Self::sized(wire::bytes_of_cells(columns), room, || whole(&wire::from_cells(columns)?))
    }

    /// A stream of about so many bytes, made once there is room for it.
    fn sized(
        bytes: u64,
        room: &Gathered,
        make: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Self, Error> {
        let thought = room_for(bytes, room)?;
        let stream = make()?;
        let beyond = room_for((stream.len() as u64).saturating_sub(bytes), room)?;
        Ok(Whole { stream, _taken: [thought, beyond] })
    }

    /// Its pieces, each of which keeps all of it, and so its memory.
    pub(super) fn parts(self) -> Answers<Part> {
        Part::of_whole(self.into_bytes())
    }

    /// All of it for a message, which has the memory until it was made into bytes.
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.stream
    }
}

pub(super) fn room_for(bytes: u64, room: &Gathered) -> Result<Taken, Error> {
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
    let pieces = written.flat_map(|written: Result<Vec<u8>, Status>| match written {
        Ok(bytes) => pieces(bytes),
        Err(status) => stream::iter([Err(status)]).boxed(),
    });
    Ok(pieces.boxed())
}

fn unwritable(error: ArrowError) -> Status {
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

/// Columns of a claim that are asked for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) names: Vec<String>,
    /// Cell by cell, or as Arrow shows them.
    pub(super) cells: bool,
    /// With the places of values, or with those.
    pub(super) placed: bool,
}

/// Refuses more columns than a table has, and one that is named again: a small question about large values would have a huge answer.
pub(super) fn check_columns(names: &[String]) -> Result<(), Error> {
    if names.len() > COLUMNS_MAX {
        let message =
            format!("{} columns were asked for, and {COLUMNS_MAX} are the most at once", names.len());
        return Err(Error::new(Kind::Input, "TooLarge", message));
    }
    let mut named = HashSet::new();
    let Some(twice) = names.iter().find(|name| !named.insert(name.as_str())) else { return Ok(()) };
    let message = format!("column {twice:?} was asked for twice; name each column once");
    Err(Error::new(Kind::Input, "ColumnTwice", message))
}

/// Columns of a claim as an answer of their own: values that travel in pieces as they are read.
pub(super) fn answer_of_claim(
    holder: &Holder,
    claim: Epoch,
    wanted: &Wanted,
    reader: &Reader,
) -> Result<Answers<Part>, Error> {
    let room = &reader.answers;
    if wanted.cells || wanted.placed {
        return of_claim(holder, claim, wanted, u64::MAX, room).map(Whole::parts);
    }
    check_columns(&wanted.names)?;
    let names: Vec<&str> = wanted.names.iter().map(String::as_str).collect();
    let bytes = holder.look(claim, |claim| claim.bytes_of(names.iter().copied()))??;
    let taken = room_for(bytes, room)?; // before they are read
    Ok(Sending::new(holder.columns(claim, &names, Lists::Together)?, taken)?.parts(reader.clone()))
}

/// Columns of a claim as they travel, where they take no more bytes than that. Nothing of them is read before there is room for it.
pub(super) fn of_claim(
    holder: &Holder,
    claim: Epoch,
    wanted: &Wanted,
    bytes_max: u64,
    room: &Gathered,
) -> Result<Whole, Error> {
    check_columns(&wanted.names)?;
    let names: Vec<&str> = wanted.names.iter().map(String::as_str).collect();
    if wanted.cells {
        let cells = holder.sent_cells(claim, &names, wanted.placed)?; // bytes stay where they lie
        check_bytes(wire::bytes_of_cells(&cells), bytes_max)?;
        return Whole::of_cells(&cells, room);
    }
    let bytes = match wanted.placed {
        true => holder.look(claim, |claim| PLACED_BYTES * (claim.len() * names.len()) as u64)?,
        false => holder.look(claim, |claim| claim.bytes_of(names.iter().copied()))??,
    };
    check_bytes(bytes, bytes_max)?;
    Whole::sized(bytes, room, || match wanted.placed {
        true => whole(holder.places(claim, &names)?.batch()),
        false => written(&holder.columns(claim, &names, Lists::Together)?),
    })
}

fn check_bytes(bytes: u64, most: u64) -> Result<(), Error> {
    if bytes <= most {
        return Ok(());
    }
    let message = format!("the columns take {bytes} bytes, and {most} are the most here; ask for fewer");
    Err(Error::new(Kind::Input, "TooLarge", message))
}

/// Rows as they travel: nothing of an extent beside the values.
pub(super) fn written(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    whole(&forebay_store::compact(batch).map_err(bug)?)
}

/// What no batch of this store can cause.
pub(super) fn bug(error: ArrowError) -> Error {
    Error::new(Kind::State, "Bug", error.to_string())
}

/// A batch as a stream of its own.
pub(super) fn whole(batch: &RecordBatch) -> Result<Vec<u8>, Error> {
    wire::write_stream(&batch.schema(), std::slice::from_ref(batch))
}

#[cfg(test)]
mod tests {
    use arrow_array::BinaryViewArray;

    use super::*;

    const ROOM_BYTES: usize = 16 << 20;

    /// Whether a piece has its answer's room for as long as it is there, and no longer.
    fn has_its_room(mut pieces: Answers<ArrowPiece>, room: &Gathered) {
        let piece = futures_util::FutureExt::now_or_never(pieces.next()).flatten().unwrap().unwrap();
        drop(pieces); // whoever made them is gone
        assert!(room.take(ROOM_BYTES as u64).is_none(), "it is in memory yet");
        drop(piece);
        assert!(room.take(ROOM_BYTES as u64).is_some());
    }

    #[test]
    fn a_piece_that_nobody_takes_keeps_the_room_of_what_it_lies_in() {
        let room = Gathered::new(ROOM_BYTES);
        let whole = Whole::sized(8 << 20, &room, || Ok(vec![7; 9 << 20])).unwrap();
        has_its_room(messages(whole.parts()), &room);
    }

    #[tokio::test]
    async fn a_piece_that_was_made_of_rows_keeps_room_too() {
        let room = Gathered::new(ROOM_BYTES);
        let values = BinaryViewArray::from_iter_values((0..4).map(|at| vec![at; 1 << 20]));
        let rows = RecordBatch::try_from_iter([("image", Arc::new(values) as _)]).unwrap();
        let mut pieces = Sending::with_room(rows, &room).unwrap().pieces(Reader::alone(&room));
        let first = pieces.next().await.unwrap().unwrap();
        has_its_room(stream::iter([Ok(first)]).chain(pieces).boxed(), &room);
    }
}
