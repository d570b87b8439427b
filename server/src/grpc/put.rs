//! Objects that steps name, taken and given in pieces: no more of one is in memory than a piece.
//!
//! What comes goes to its file as it comes, under no name yet. Whoever goes half-way leaves nothing behind. Each has a file open
//! meanwhile, and handles are few, so that others wait for their turn. Nobody waits for what another caller has taken alone: a caller has half of the
//! turns at most.

use std::time::Duration;

use forebay_client::Error;
use forebay_client::wire::proto::{ObjectPiece, ObjectRef};
use forebay_client::wire::{self, PIECE_BYTES, from_error, malformed};
use forebay_store::{Kind, ObjectPut};
use futures_util::{StreamExt, stream};
use tonic::{Request, Status, Streaming};

use super::call::{Call, Reply, Service, blocking};
use super::pace::Clock;
use super::room::{Shares, Taken};
use super::streams::Answers;
use crate::access::Caller;

/// The largest object that is taken, in bytes.
const OBJECT_BYTES_MAX: u64 = 16 << 30;

/// How many are taken and given at the same time, of one caller; twice as many of all together.
pub(super) const STREAMS_MAX: u32 = 512;
/// How soon whoever had no turn is to ask again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The turn of one of a caller that has a file open.
async fn turn(turns: &Shares, caller: &str) -> Result<Taken, Error> {
    turns.turn(caller).await.ok_or_else(|| {
        let message = format!(
            "as many objects are on their way in pieces as may be, {STREAMS_MAX} of one caller and twice as many of all, and none of them ended for long; ask again"
        );
        Error::new(Kind::Retry, "Busy", message).retry_after(Some(ASK_AGAIN_AFTER))
    })
}

fn refused(error: &Error) -> Status {
    from_error(error)
}

impl Service {
    /// Takes an object, once under the name of the call.
    pub(super) async fn put(&self, call: Call, request: Request<Streaming<ObjectPiece>>) -> Reply<ObjectRef> {
        let clock = request.extensions().get::<Clock>().cloned();
        let mut pieces = request.into_inner();
        let first = pieces.message().await?.and_then(|piece| piece.object);
        let object = first.ok_or_else(|| refused(&malformed("an object without its name")))?;
        call.caller.check_object(&object.key).map_err(|error| refused(&error))?;
        if object.bytes > OBJECT_BYTES_MAX {
            let message = format!(
                "an object of {} bytes is more than the {OBJECT_BYTES_MAX} that are taken",
                object.bytes
            );
            return Err(refused(&Error::new(Kind::Input, "TooLarge", message)));
        }
        if let Some(answer) = call.session.replies.known::<ObjectRef>(call.name)? {
            return answer.await.map(tonic::Response::new); // it was sent again
        }
        let _turn = self.object_turn(&call.caller).await?;
        clock.into_iter().for_each(|clock| clock.restart()); // nothing was read meanwhile
        let (store, ObjectRef { key, version, bytes, .. }) = (self.store.clone(), object);
        let begin = call.holding(move || Ok(store.begin_put(&key, version)?));
        let put = self.object_written(&call, begin).await?;
        let put = self.object_taken(&call, put, bytes, pieces).await?;
        let turn = self.object_writers.turn_at_last(&call.caller.name).await;
        self.once(call, move |_| {
            let _until_it_is_done = turn;
            Ok(wire::from_object(&put.finish()?))
        })
        .await
    }

    async fn object_turn(&self, caller: &Caller) -> Result<Taken, Status> {
        turn(&self.object_streams, &caller.name).await.map_err(|error| refused(&error))
    }

    /// Writes what comes, which is so many bytes.
    async fn object_taken(
        &self,
        call: &Call,
        mut put: ObjectPut,
        bytes: u64,
        mut pieces: Streaming<ObjectPiece>,
    ) -> Result<ObjectPut, Status> {
        while let Some(piece) = pieces.message().await? {
            if put.bytes() + piece.bytes.len() as u64 > bytes {
                return Err(refused(&malformed("an object that is longer than it says")));
            }
            let write = call.holding(move || {
                put.write(&piece.bytes)?;
                Ok(put)
            });
            put = self.object_written(call, write).await?;
        }
        match put.bytes() == bytes {
            true => Ok(put),
            false => Err(refused(&malformed("an object that is shorter than it says"))),
        }
    }

    /// Writes something of an object, once there is a turn for that: a slow disk keeps no more threads than those.
    async fn object_written<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.object_writers.turn_at_last(&call.caller.name).await;
        blocking(move || {
            let _until_it_is_done = turn;
            work()
        })
        .await
    }

    /// An object in pieces, each read when the one before it was taken.
    pub(super) async fn parts_of(
        &self,
        object: forebay_store::ObjectRef,
        call: &Call,
    ) -> Result<Answers<ObjectPiece>, Status> {
        let (store, reader) = (self.store.clone(), self.reader(call));
        let turn = self.object_turn(&call.caller).await?;
        let parts = reader.read(move || Ok(store.object_parts(&object)?)).await?;
        let pieces = stream::unfold(Some((parts, reader, turn)), |reads| async move {
            let (mut parts, reader, turn) = reads?;
            match reader.read_on(move || Ok((parts.next_part(PIECE_BYTES)?, parts))).await {
                Ok((Some(part), parts)) => {
                    Some((Ok(ObjectPiece { object: None, bytes: part.into() }), Some((parts, reader, turn))))
                }
                Ok((None, _)) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(pieces.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_no_turn_in_time_hears_when_to_ask_again_and_turns_come_back() {
        let turns = Shares::new(2, Duration::from_millis(1));
        let held = [turn(&turns, "puts").await.unwrap(), turn(&turns, "puts").await.unwrap()];
        let error = turn(&turns, "puts").await.unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Busy"));
        assert_eq!(error.wait_before_retry(), Some(ASK_AGAIN_AFTER));
        drop(held);
        drop(turn(&turns, "puts").await.unwrap());
        assert_eq!(turns.free_of("puts"), 2);
    }

    #[tokio::test]
    async fn one_caller_has_half_of_the_turns_and_keeps_none_from_others() {
        let turns = Shares::new(2, Duration::from_millis(1));
        let mut held = vec![turn(&turns, "puts").await.unwrap(), turn(&turns, "puts").await.unwrap()];
        assert_eq!(turn(&turns, "puts").await.unwrap_err().cause(), "Busy");
        held.extend([turn(&turns, "reads").await.unwrap(), turn(&turns, "reads").await.unwrap()]);
        assert_eq!(turn(&turns, "looks").await.unwrap_err().cause(), "Busy", "all turns are taken");
        held.clear();
        drop(turn(&turns, "looks").await.unwrap());
    }
}
