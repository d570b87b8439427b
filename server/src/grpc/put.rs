//! Objects that steps name, taken and given in pieces: no more of one is in memory than a piece.
//!
//! What comes goes to its file as it comes, under no name yet. Whoever goes half-way leaves nothing behind.

use forebay_client::Error;
use forebay_client::wire::proto::{ObjectPiece, ObjectRef};
use forebay_client::wire::{self, PIECE_BYTES, from_error, malformed};
use forebay_store::{Kind, ObjectPut};
use futures_util::{StreamExt, stream};
use tonic::{Status, Streaming};

use super::call::{Call, Reply, Service, blocking};
use super::streams::Answers;

/// The largest object that is taken, in bytes.
const OBJECT_BYTES_MAX: u64 = 16 << 30;

fn refused(error: &Error) -> Status {
    from_error(error)
}

impl Service {
    /// Takes an object, once under the name of the call.
    pub(super) async fn put(&self, call: Call, mut pieces: Streaming<ObjectPiece>) -> Reply<ObjectRef> {
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
        let (store, ObjectRef { key, version, bytes, .. }) = (self.store.clone(), object);
        let put = blocking(move || Ok(store.begin_put(&key, version)?)).await?;
        let put = written(put, bytes, pieces).await?;
        self.once(call, move |_| Ok(wire::from_object(&put.finish()?))).await
    }

    /// An object in pieces, each read when the one before it was taken.
    pub(super) async fn parts_of(
        &self,
        object: forebay_store::ObjectRef,
    ) -> Result<Answers<ObjectPiece>, Status> {
        let store = self.store.clone();
        let parts = blocking(move || Ok(store.object_parts(&object)?)).await?;
        let pieces = stream::unfold(Some(parts), |parts| async move {
            let mut parts = parts?;
            match blocking(move || Ok((parts.next_part(PIECE_BYTES)?, parts))).await {
                Ok((Some(part), parts)) => {
                    Some((Ok(ObjectPiece { object: None, bytes: part.into() }), Some(parts)))
                }
                Ok((None, _)) => None,
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(pieces.boxed())
    }
}

/// Writes what comes, which is so many bytes.
async fn written(
    mut put: ObjectPut,
    bytes: u64,
    mut pieces: Streaming<ObjectPiece>,
) -> Result<ObjectPut, Status> {
    while let Some(piece) = pieces.message().await? {
        if put.bytes() + piece.bytes.len() as u64 > bytes {
            return Err(refused(&malformed("an object that is longer than it says")));
        }
        put = blocking(move || {
            put.write(&piece.bytes)?;
            Ok(put)
        })
        .await?;
    }
    match put.bytes() == bytes {
        true => Ok(put),
        false => Err(refused(&malformed("an object that is shorter than it says"))),
    }
}
