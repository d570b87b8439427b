use std::sync::mpsc;
use std::time::Duration;

use forebay_client::wire::failure_of;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;
use crate::access::{Access, Grant};
use crate::token::Token;

fn turns(wait_max: Duration) -> Turns {
    Turns::new(&Limits { room_time_max: wait_max, ..Limits::default() })
}

fn callers<const N: usize>(names: [&str; N]) -> [Arc<Caller>; N] {
    let mut access = Access::default();
    names.iter().for_each(|name| access.add(Grant::new(name, Token::new(name).unwrap())));
    names.map(|name| Arc::new(access.caller(&format!("Bearer {name}")).unwrap()))
}

fn reader(turns: &Turns, of: &OfSession, caller: &Arc<Caller>) -> Reader {
    turns.reader(of, caller, &Gathered::new(1 << 20))
}

#[tokio::test]
async fn a_session_has_half_of_the_reads_a_caller_three_quarters_and_others_the_rest() {
    let turns = turns(Duration::from_millis(1));
    let [greedy, other] = callers(["greedy", "other"]);
    let sessions = [(); 4].map(|()| OfSession::new());
    let readers = sessions.each_ref().map(|of| reader(&turns, of, &greedy));
    let first = readers[0].take_all();
    assert_eq!(first.len(), READS.of_session);
    let error = readers[0].read(|| Ok(())).await.unwrap_err();
    let error = failure_of(&error).unwrap();
    assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Busy"));
    assert_eq!(error.wait_before_retry(), Some(ASK_AGAIN_AFTER));
    readers[1].read(|| Ok(())).await.unwrap();
    let more: Vec<_> = readers[1..].iter().map(Reader::take_all).collect();
    assert_eq!(first.len() + more.iter().map(Vec::len).sum::<usize>(), READS.of_caller);
    assert!(readers[3].read(|| Ok(())).await.is_err() && readers[3].read_now(|| Ok(())).await.is_none());
    let of_other = OfSession::new();
    let theirs = reader(&turns, &of_other, &other);
    theirs.read(|| Ok(())).await.unwrap();
    assert_eq!(theirs.take_all().len(), READS.all - READS.of_caller);
    drop((first, more));
    assert_eq!(readers[3].take_all().len(), READS.of_session, "all came back");
}

#[tokio::test]
async fn a_query_has_a_turn_of_its_own_kind_and_one_caller_has_not_all() {
    let turns = turns(Duration::from_millis(1));
    let [greedy, other] = callers(["greedy", "other"]);
    let sessions = [(); 3].map(|()| OfSession::new());
    let reads: Vec<_> = sessions.iter().map(|of| reader(&turns, of, &greedy).take_all()).collect();
    let mut held = Vec::new();
    for of in &sessions {
        while let Some(turn) = turns.query(of, &greedy).now_or_never() {
            held.push(turn.unwrap());
        }
    }
    assert_eq!(held.len(), QUERIES.of_caller, "whatever is read");
    let mut next = turns.query(&sessions[0], &greedy).boxed();
    assert!(futures_util::poll!(&mut next).is_pending());
    turns.query(&OfSession::new(), &other).await.unwrap();
    held.clear();
    next.await.unwrap();
    drop(reads);
}

#[tokio::test]
async fn who_waits_for_himself_keeps_no_turn_from_others() {
    let turns = turns(Duration::from_secs(3600));
    let [caller] = callers(["reads"]);
    let sessions = [(); 2].map(|()| OfSession::new());
    let [one, other] = sessions.each_ref().map(|of| reader(&turns, of, &caller));
    let first = one.take_all();
    let mut waits = join_all((0..READS.all).map(|_| one.read_on(|| Ok(())).boxed()));
    assert!(futures_util::poll!(&mut waits).is_pending());
    other.read(|| Ok(())).await.unwrap();
    drop(first);
    assert!(waits.await.into_iter().all(|read| read.is_ok()));
}

#[tokio::test]
async fn a_read_whose_client_has_gone_keeps_its_turn_until_it_is_done() {
    let turns = turns(Duration::from_secs(3600));
    let [caller] = callers(["reads"]);
    let of = OfSession::new();
    let reader = reader(&turns, &of, &caller);
    let (go_on, held_up) = mpsc::channel::<()>();
    let slow = reader.read(move || Ok(held_up.recv().is_err()));
    assert!(slow.now_or_never().is_none(), "it is being read, and nobody waits for it any more");
    let rest = reader.take_all();
    assert_eq!(rest.len(), READS.of_session - 1);
    drop(go_on);
    reader.read(|| Ok(())).await.unwrap(); // once the first is done
    drop(rest);
}
