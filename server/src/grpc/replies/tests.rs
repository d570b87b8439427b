use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[tokio::test]
async fn a_call_is_made_once_however_often_it_is_asked_for() {
    let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
    let ask = |name| {
        let made = made.clone();
        replies.once(name, 1, move || async move { Ok(made.fetch_add(1, Ordering::Relaxed)) })
    };
    drop(ask(7).unwrap()); // nobody waits; it is made all the same
    assert_eq!((ask(7).unwrap().await.unwrap(), ask(7).unwrap().await.unwrap()), (0, 0));
    assert_eq!(ask(8).unwrap().await.unwrap(), 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
    let other = replies.once(7, 1, || async { Ok("text") });
    assert_eq!(other.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn failures_are_answers_too_and_the_oldest_answers_are_forgotten() {
    let replies = Replies::default();
    let fail = |name| replies.once::<u8, _>(name, 1, || async { Err(Status::not_found("none")) });
    assert_eq!(fail(0).unwrap().await.unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(replies.note(1, (1_u64, 2_u64)), None);
    assert_eq!(replies.note(1, (3_u64, 4_u64)), Some((1, 2)));
    for name in 2..=KEPT as u128 {
        replies.note(name, 0_u8);
    }
    assert_eq!(replies.noted::<(u64, u64)>(1), Some((1, 2)));
    replies.note(u128::MAX, 0_u8);
    assert_eq!(replies.noted::<(u64, u64)>(1), Some((1, 2)), "it is young");
    replies.forget(Instant::now() + YOUNG);
    assert_eq!(replies.noted::<(u64, u64)>(1), None);
    assert_eq!(replies.noted::<u8>(3), Some(0), "the latest stay, however old");
}

#[tokio::test]
async fn as_many_young_answers_are_remembered_as_there_is_memory_for() {
    let replies = Replies::default();
    (0..YOUNG_MAX as u128).for_each(|name| _ = replies.note(name, 7_u8));
    assert_eq!(replies.noted(0), Some(7_u8));
    replies.note(u128::MAX, 7_u8);
    assert_eq!((replies.noted::<u8>(0), replies.noted(1)), (None, Some(7_u8)));
    replies.forget(Instant::now());
    assert_eq!(replies.noted(1), Some(7_u8));
    replies.forget(Instant::now() + YOUNG);
    let inner = replies.inner();
    assert_eq!((inner.found.len(), inner.by_name.len()), (KEPT, KEPT));
    assert!(
        inner.found.capacity() <= 8 * KEPT && inner.by_name.capacity() <= 8 * KEPT,
        "their memory is free"
    );
}

#[tokio::test]
async fn an_answer_that_is_being_found_is_never_forgotten_and_too_many_are_refused() {
    let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
    let (hold, held) = tokio::sync::watch::channel(true);
    let ask = |name| {
        let (made, mut held) = (made.clone(), held.clone());
        replies.once(name, 1, move || async move {
            let _ = held.wait_for(|held| !held).await;
            Ok(made.fetch_add(1, Ordering::Relaxed))
        })
    };
    let first = ask(0).unwrap();
    for name in 1..=2 * KEPT as u128 {
        replies.once(name, ROWS_KEPT / 8, || async { Ok(7_u32) }).unwrap().await.unwrap();
    }
    let again = ask(0).unwrap();
    let more: Vec<_> = (0..KEPT as u128 - 1).map(|name| ask(1 << 64 | name).unwrap()).collect();
    let refused = ask(1 << 65).unwrap_err();
    let failure = forebay_client::wire::failure_of(&refused).unwrap();
    assert_eq!((failure.kind(), failure.cause()), (Kind::Capacity, "Calls"));
    hold.send_replace(false);
    assert_eq!(
        (first.await.unwrap(), again.await.unwrap()),
        (again_of(&replies).await, again_of(&replies).await)
    );
    for answer in more {
        answer.await.unwrap();
    }
    assert_eq!(made.load(Ordering::Relaxed) as usize, KEPT, "each was made once");
    ask(1 << 65).unwrap().await.unwrap();
}

// A copy or a compaction whose client lost its line is asked for again under its name: it is the one that goes on.
#[tokio::test]
async fn an_answer_is_not_forgotten_while_the_work_goes_on_that_it_tells_of() {
    let (replies, begun, mut goes_on) = (Replies::default(), AtomicU32::new(0), Vec::new());
    let ask = |goes_on: &mut Vec<Found>| {
        let work = |found| {
            goes_on.push(found);
            Ok(begun.fetch_add(1, Ordering::Relaxed))
        };
        replies.once_begun(7, 1, work).unwrap()
    };
    let crowd = |from: u128| {
        (0..2 * KEPT as u128).for_each(|at| _ = replies.once_here(from + at, ROWS_KEPT / 8, || Ok(0_u8)));
    };
    assert_eq!(ask(&mut goes_on).await.unwrap(), 0);
    crowd(1 << 64);
    assert_eq!((ask(&mut goes_on).await.unwrap(), goes_on.len()), (0, 1), "it is begun once");
    goes_on.clear();
    assert_eq!(ask(&mut goes_on).await.unwrap(), 0, "what it came to is there for who asks again");
    crowd(1 << 65);
    assert_eq!(ask(&mut goes_on).await.unwrap(), 1, "and is forgotten as others are");
}

#[tokio::test]
async fn answers_that_are_being_found_push_out_none_that_were_found() {
    let replies = Replies::default();
    for name in 0..KEPT as u128 {
        replies.once(name, 1, || async { Ok(7_u8) }).unwrap().await.unwrap();
    }
    let under_way: Vec<_> = (0..KEPT as u128)
        .map(|name| replies.once(1 << 64 | name, ROWS_KEPT, std::future::pending::<Reply<u8>>).unwrap())
        .collect();
    assert_eq!(under_way.len(), KEPT);
    for name in 0..KEPT as u128 {
        assert_eq!(replies.once(name, 1, || async { Ok(8_u8) }).unwrap().await.unwrap(), 7, "{name}");
    }
}

/// What the first call was answered with.
async fn again_of(replies: &Replies) -> u32 {
    replies.once(0, 1, || async { Ok(u32::MAX) }).unwrap().await.unwrap()
}

#[tokio::test]
async fn many_rows_are_forgotten_sooner_and_the_newest_answer_never() {
    let (replies, made) = (Replies::default(), Arc::new(AtomicU32::new(0)));
    let ask = |name, rows| {
        let made = made.clone();
        replies.once(name, rows, move || async move { Ok(made.fetch_add(1, Ordering::Relaxed)) })
    };
    for name in 0..3 {
        assert_eq!(ask(name, ROWS_KEPT / 2).unwrap().await.unwrap(), name as u32);
    }
    assert_eq!(ask(1, 1).unwrap().await.unwrap(), 1, "it is kept");
    assert_eq!(ask(0, ROWS_KEPT * 2).unwrap().await.unwrap(), 3, "it was forgotten");
    assert_eq!(ask(0, 1).unwrap().await.unwrap(), 3, "the newest is kept, however large");
}
