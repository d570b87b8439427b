use std::collections::HashSet;
use std::time::SystemTime;

use forebay_client::wire::{failure_of, from_micro_batch};
use forebay_store::{Consumer, ConsumerHandle, DataType, MicroBatch, Options, Schema, Store, Wait};
use futures_util::{FutureExt, StreamExt};

use super::pushing::until_fewer;
use super::*;
use crate::access::{Access, Caller, Grant};
use crate::grpc::Limits;
use crate::grpc::sessions::{Local, Present, SessionId, Sessions};
use crate::grpc::subscriptions::Turn;
use crate::grpc::tally::Tally;
use crate::token::Token;

/// More than anything here takes.
const ROOM_BYTES: usize = 256 << 20;

/// A session over a store with rows whose prompts have so many bytes, and the task that takes them.
struct World {
    _dir: tempfile::TempDir,
    store: Store,
    judge: ConsumerHandle,
    sessions: Sessions,
    id: SessionId,
    _present: Present,
}

impl World {
    async fn of(prompts: &[usize]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8)).unwrap();
        let judge = store.create_consumer("judge", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        for (at, bytes) in prompts.iter().enumerate() {
            let prompt = "p".repeat(*bytes);
            solver.insert(0, &format!("q{at}_0_0"), [("prompt", prompt.as_str().into())]).unwrap();
        }
        let sessions = Sessions::new(store.clone(), &Limits::default(), &Tally::default());
        let (id, present, _) = sessions.let_in("a", "rank 0", None, Local::default()).await.unwrap();
        World { _dir: dir, store, judge, sessions, id, _present: present }
    }

    fn call(&self, caller: Caller) -> Call {
        Call {
            session: self.sessions.find("a", &self.id).unwrap(),
            caller: Arc::new(caller),
            name: wire::new_call(),
            occupied: Default::default(),
        }
    }

    fn claim(&self) -> Option<forebay_store::Claim> {
        self.judge.claim(MicroBatch::up_to(1), "another", Wait::No).unwrap()
    }

    /// A claim of the session.
    fn granted(&self, call: &Call) -> Granted {
        call.session.keep(self.claim().unwrap(), Role::Task).unwrap()
    }

    /// A subscription of the session, with a claim that was pushed.
    fn subscribed(&self, call: &Call) -> Turn {
        let turn =
            call.session.subscriptions.begin(call.name, 0, &HashSet::new(), |_| true).unwrap().unwrap();
        assert!(turn.keep(|| Ok(self.granted(call))).unwrap().is_some());
        turn
    }
}

/// Somebody whose token is good for a moment yet.
fn brief() -> Caller {
    let (mut access, until) = (Access::default(), SystemTime::now() + Duration::from_millis(200));
    access.add(Grant::new("brief", Token::new("b").unwrap()).until(until));
    access.caller("Bearer b").unwrap()
}

fn request() -> ClaimRequest {
    let rule = Some(from_micro_batch(&MicroBatch::up_to(1)));
    ClaimRequest { consumer: "judge".to_owned(), rule, ..ClaimRequest::default() }
}

fn cause<T>(outcome: Result<T, Status>) -> String {
    failure_of(&outcome.err().expect("it is refused")).unwrap().cause().to_owned()
}

#[tokio::test]
async fn rows_that_are_found_for_who_is_gone_go_back() {
    let world = World::of(&[10]).await;
    let (late, expired) = (world.call(Caller::trusted()), world.call(brief()));
    while expired.caller.check_time().is_ok() {
        std::thread::yield_now();
    }
    assert_eq!(cause(found(&expired, Role::Task, Ok(world.claim()))), "Unauthenticated");
    world.sessions.end(&world.id).await.unwrap();
    let claim = world.claim().expect("they went back");
    assert_eq!(late.session.keep(claim, Role::Task).unwrap_err().cause(), "SessionLost");
    let claim = world.claim().expect("they went back");
    assert_eq!(cause(found(&late, Role::Task, Ok(Some(claim)))), "SessionLost");
    assert!(world.claim().is_some() && late.session.holder.claims() == 0);
}

#[tokio::test]
async fn who_waits_for_rows_or_for_the_end_of_claims_hears_that_the_session_has_ended() {
    let world = World::of(&[10]).await;
    let call = world.call(Caller::trusted());
    let (request, wait, turn) = (request(), call.session.waits.begin(call.name), world.subscribed(&call));
    let mut rows = pin!(waited(&call, &request, &wait));
    let mut fewer = pin!(until_fewer(&call, &turn, 1));
    assert!(rows.as_mut().now_or_never().is_none() && fewer.as_mut().now_or_never().is_none());
    world.sessions.end(&world.id).await.unwrap();
    assert_eq!([cause(rows.await), cause(fewer.await)], ["SessionLost"; 2]);
    assert!(world.claim().is_some(), "the row goes to others");
}

#[tokio::test]
async fn who_waits_for_rows_or_for_the_end_of_claims_hears_that_the_token_has_expired() {
    let world = World::of(&[10]).await;
    let call = world.call(brief());
    let (request, wait, turn) = (request(), call.session.waits.begin(call.name), world.subscribed(&call));
    let (rows, fewer) = tokio::join!(waited(&call, &request, &wait), until_fewer(&call, &turn, 1));
    assert_eq!([cause(rows), cause(fewer)], ["Unauthenticated"; 2]);
}

#[tokio::test]
async fn what_comes_along_has_its_memory_for_as_long_as_the_reply_is_there() {
    let world = World::of(&[512 << 10]).await;
    let (call, room) = (world.call(Caller::trusted()), Gathered::new(1 << 20));
    let mut request = request();
    for cells in [false, true] {
        (request.columns, request.cells) = (vec!["prompt".to_owned()], cells);
        let granted = world.granted(&call);
        let epoch = granted.epoch;
        let reply = reply(&call.session, &request, granted, ALONG_BYTES_MAX, &Reader::alone(&room)).await;
        assert!(reply.granted.as_ref().unwrap().columns.len() > 512 << 10);
        assert!(room.take(512 << 10).is_none(), "half of it and more is taken");
        drop(reply);
        assert!(room.take(1 << 20).is_some());
        call.session.holder.release(epoch).unwrap();
    }
}

#[tokio::test]
async fn a_claim_waits_for_no_reader_and_comes_without_its_columns() {
    let world = World::of(&[10, 10]).await;
    let (call, room) = (world.call(Caller::trusted()), Gathered::new(ROOM_BYTES));
    let request = ClaimRequest { columns: vec!["prompt".to_owned()], ..request() };
    let reader = Reader::alone(&room);
    let come = async |granted| {
        let reply = reply(&call.session, &request, granted, ALONG_BYTES_MAX, &reader);
        !reply.await.granted.unwrap().columns.is_empty()
    };
    assert!(come(world.granted(&call)).await);
    let slow = reader.take_all();
    assert!(!come(world.granted(&call)).await);
    drop(slow);
}

#[tokio::test]
async fn what_is_too_large_to_come_along_is_not_read() {
    let world = World::of(&[ALONG_BYTES_MAX + 1, 2 << 20]).await;
    let call = world.call(Caller::trusted());
    let request = ClaimRequest { columns: vec!["prompt".to_owned()], ..request() };
    for room in [Gathered::new(ROOM_BYTES), Gathered::new(1 << 20)] {
        let (granted, reads) = (world.granted(&call), world.store.stats().value_reads);
        let reply = reply(&call.session, &request, granted, ALONG_BYTES_MAX, &Reader::alone(&room)).await;
        assert!(reply.granted.unwrap().columns.is_empty());
        assert_eq!(world.store.stats().value_reads, reads);
    }
}

#[tokio::test]
async fn an_answer_that_has_no_room_is_refused_before_anything_of_it_is_read() {
    let world = World::of(&[2 << 20]).await;
    let call = world.call(Caller::trusted());
    let epoch = world.granted(&call).epoch;
    let wanted = |cells| Wanted { names: vec!["prompt".to_owned()], cells, placed: false };
    let ask = |cells, room: &Gathered| {
        let reader = Reader::alone(room);
        streams::answer_of_claim(&call.session.holder, epoch, &wanted(cells), &reader).map(drop)
    };
    let reads = world.store.stats().value_reads;
    let error = ask(false, &Gathered::new(1 << 20)).unwrap_err();
    assert_eq!((error.cause(), world.store.stats().value_reads), ("Answers", reads));
    assert_eq!(ask(true, &Gathered::new(1 << 20)).unwrap_err().cause(), "Answers");
    let room = Gathered::new(3 << 20);
    ask(false, &room).and(ask(true, &room)).unwrap();
    assert!(room.take(3 << 20).is_some(), "it is given back");
}

#[tokio::test]
async fn an_answer_in_pieces_has_its_room_until_the_last_was_taken() {
    let world = World::of(&[5 << 20]).await;
    let call = world.call(Caller::trusted());
    let (epoch, room) = (world.granted(&call).epoch, Gathered::new(6 << 20));
    let wanted = Wanted { names: vec!["prompt".to_owned()], cells: false, placed: false };
    let reader = Reader::alone(&room);
    let mut pieces = streams::answer_of_claim(&call.session.holder, epoch, &wanted, &reader).unwrap();
    let (mut bytes, mut taken) = (0, 0);
    while let Some(piece) = pieces.next().await {
        taken += 1;
        assert!(room.take(2 << 20).is_none(), "with piece {taken}");
        bytes += piece.unwrap().into_sent().len();
    }
    assert!(bytes > 5 << 20 && taken > 5, "{bytes} bytes in {taken} pieces");
    drop(pieces);
    assert!(room.take(6 << 20).is_some());
}
