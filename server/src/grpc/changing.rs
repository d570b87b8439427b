//! The changes that a message brings, made: as a call of its own, in frames, or one after the other in one call.

use std::time::Duration;

use forebay_client::wire::proto::settle_request::How;
use forebay_client::wire::proto::{Changes, SettleReply, SettleRequest, WriteReply, WriteRequest};
use forebay_client::wire::{self, inserted_in, malformed};
use forebay_client::{Epoch, Error, Holder};
use forebay_store::{Row, Store, Wait};

use super::bulk::Brought;
use super::call::{Call, Reply, Service};
use super::once::Manner;
use super::quick;
use super::sessions::Session;
use super::turns::Turning;

/// The longest wait for room that a message may ask for. It keeps a thread, and nothing ends it before.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

impl Service {
    /// Makes changes, with what came behind them.
    pub(super) async fn written(
        &self,
        call: Call,
        message: WriteRequest,
        Brought { frames, room }: Brought,
    ) -> Reply<WriteReply> {
        call.check_tables(&message)?;
        let rows = message.changes.as_ref().map_or(0, inserted_in) as usize;
        let session = call.session.clone();
        let is_quick =
            message.changes.as_ref().is_some_and(|changes| quick::is_quick(&self.store, changes, &frames));
        let write = move |holder: &Holder| {
            let _room = room; // until the frames are gone
            let changes = message.changes.as_ref();
            let rows = changed(holder, changes, frames, &session, |changes| apply(changes, holder.store()))?;
            Ok(WriteReply { rows: rows_of(&rows) })
        };
        let manner = if is_quick { Manner::Here } else { Manner::InTurn(Turning::Write) };
        self.once_changed(call, manner, rows, write).await
    }

    /// Ends a claim, or holds on to it.
    pub(super) async fn settled(&self, call: Call, message: SettleRequest) -> Reply<SettleReply> {
        let SettleRequest { incarnation, claim, how, member } = message;
        let changes = match &how {
            Some(How::Finish(changes)) => Some(changes),
            _ => None,
        };
        changes.map_or(Ok(()), |changes| call.check_changes(changes))?;
        let inserted = changes.filter(|changes| !changes.changes.is_empty()).map(inserted_in);
        let is_quick = match &how {
            Some(How::Finish(changes)) => {
                changes.changes.is_empty() && !quick::waits_for_disk(&self.store, &changes.durability)
            }
            Some(How::Release(_) | How::Accumulated(_)) => !quick::waits_for_disk(&self.store, ""),
            Some(How::ExtendMs(_)) | None => false, // it first ends leases that are over, of which there may be many
        };
        let (session, of) = (call.session.clone(), call.session.clone());
        let settle = move |holder: &Holder| settle(holder, (incarnation, claim, member), how, &of);
        let (manner, rows) = match (is_quick, inserted) {
            (true, _) => (Manner::Here, 1),
            (false, None) => (Manner::Aside, 1),
            // It may wait for room, and is kept as a write is from those who make it.
            (false, Some(rows)) => (Manner::InTurn(Turning::EndOfClaim), rows as usize),
        };
        let reply = self.once_changed(call, manner, rows, settle).await;
        session.settled.notify_waiters();
        reply
    }
}

fn settle(holder: &Holder, claim: Epoch, how: Option<How>, of: &Session) -> Result<SettleReply, Error> {
    let done = SettleReply::default();
    Ok(match how.ok_or_else(|| malformed("a claim is settled in some way"))? {
        How::Finish(changes) => {
            let finish = |changes: &forebay_client::Changes<'_>| holder.finish(claim, changes);
            SettleReply { rows: rows_of(&changed(holder, Some(&changes), Vec::new(), of, finish)?), ..done }
        }
        How::Release(_) => holder.release(claim).map(|()| done)?,
        How::Accumulated(_) => holder.accumulated(claim).map(|()| done)?,
        How::ExtendMs(ms) => {
            let deadline = holder.extend(claim, Duration::from_millis(ms))?;
            SettleReply { deadline: deadline.0, ..done }
        }
    })
}

fn rows_of(rows: &[Row]) -> Vec<bytes::Bytes> {
    rows.iter().map(|row| wire::from_row(*row)).collect()
}

/// The changes of a message of a session, made by its holder in one of two ways.
pub(super) fn changed<T>(
    holder: &Holder,
    message: Option<&Changes>,
    frames: Vec<wire::Frame>,
    of: &Session,
    make: impl FnOnce(&forebay_client::Changes<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let message = message.ok_or_else(|| malformed("no changes"))?;
    wire::framed_bytes(message, &frames)?;
    let lent = wire::Lent { frames, ..of.lent(message)? };
    wire::slab_bytes(message)?;
    let mut changes = wire::to_changes(message, &lent)?;
    if message.wait_ms.is_some_and(|ms| u128::from(ms) > WAIT_MAX.as_millis()) {
        changes.wait(Wait::For(WAIT_MAX));
    }
    let named: Vec<_> = changes.rows().collect();
    holder.store().check_rows(&named)?;
    make(&changes)
}

/// Makes changes, on whatever thread.
pub(super) fn apply(changes: &forebay_client::Changes<'_>, store: &Store) -> Result<Vec<Row>, Error> {
    let mut batch = store.batch();
    batch.wait_aside(quick::aside);
    changes.fill(store, &mut batch)?;
    Ok(batch.commit()?)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use forebay_store::{
        Consumer, DataType, Kind, NewRow, Options, RateLimiter, Schema, SimulatedClock, Timestamp,
    };

    use super::*;
    use crate::grpc::Limits;
    use crate::grpc::sessions::{Local, Sessions};
    use crate::grpc::tally::Tally;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_write_that_would_wait_for_ever_is_told_that_it_was_held_back() {
        let dir = tempfile::tempdir().unwrap();
        // Of a time that passes at once where it is waited for.
        let options = Options::default().clock(Arc::new(SimulatedClock::new(Timestamp(1_000_000))));
        let store = Store::open(dir.path().join("store"), options).unwrap();
        store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
        let limited =
            Consumer::trainer(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
        store.create_consumer("train", limited).unwrap();
        let sessions = Sessions::new(store.clone(), &Limits::default(), &Tally::default());
        let (id, _present, _) = sessions.let_in("a", "rank 0", None, Local::default()).await.unwrap();
        let session = sessions.find("a", &id).unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let held_back = (0..64).find_map(|at| {
                let mut changes = forebay_client::Changes::new();
                let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
                changes.insert("solver", row, [("prompt", "?".into())]).wait(Wait::Forever);
                let message = wire::from_changes(&changes);
                assert_eq!(message.wait_ms, Some(u64::MAX));
                let made = changed(&session.holder, Some(&message), Vec::new(), &session, |changes| {
                    apply(changes, session.holder.store())
                });
                made.err()
            });
            tell.send(held_back).unwrap();
        });
        let error = told.recv_timeout(LONG).expect("it does not wait for ever").expect("it is held back");
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "HeldBack"), "{error}");
    }
}
