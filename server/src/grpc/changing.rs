//! The changes that a message brings, made.

use std::time::Duration;

use forebay_client::wire::proto::Changes;
use forebay_client::wire::{self, malformed};
use forebay_client::{Error, Holder};
use forebay_store::{Row, Store, Wait};

use super::quick;
use super::sessions::Session;

/// The longest wait for room that a message may ask for. It keeps a thread, and nothing ends it before.
const WAIT_MAX: Duration = Duration::from_secs(300);

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
