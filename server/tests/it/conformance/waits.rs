//! Waits that hold no thread, and the end of a client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_client::{ClaimFuture, Plan, Waited};
use forebay_store::{ConsumerKind, Gang, Kind, NewRow, RateLimiter};

use super::*;

pub(crate) fn awaited<T>(future: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// The claim of a wait that has come to one.
fn claimed(wait: ClaimFuture) -> Claim {
    match awaited(wait).unwrap() {
        Waited::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// Looks once, as an event loop does that is then busy with other things.
pub(crate) fn look<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Tries again until it holds: something is on its way, and nobody says when it has come.
pub(crate) fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

pub(crate) fn leased(world: &World) -> usize {
    world.store.claims().iter().filter(|claim| claim.progress.as_str() == "leased").count()
}

#[test]
fn a_wait_without_a_thread_comes_to_rows_as_a_blocking_one_does() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let wait = judge.claim_async(up_to(1), Wait::Forever).unwrap();
        row(&table, 0, "q_0_0", None);
        let claim = claimed(wait);
        assert_eq!(ids(&claim), ["q_0_0"]);
        let verdict = verdicts(&claim, 0.5);
        claim.finish(&verdict).unwrap();
    });
}

#[test]
fn steps_and_ranks_wait_without_a_thread_until_the_plan_is_complete() {
    on_every_way(|world| {
        let client = world.client();
        let (table, train) = (solver(&client), trainer(&client));
        (0..2).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), Some(1.0)));
        let mut step = client.begin_step(&Plan::new().rows("train", 2)).unwrap();
        claimed(step.next_async(&train, up_to(1), LONG).unwrap()).accumulated().unwrap();
        let member = step.join(&train, &Gang::new("ranks", 0, 1)).unwrap();
        claimed(member.next_async(up_to(1), LONG).unwrap()).accumulated().unwrap();
        for wait in [step.next_async(&train, up_to(1), LONG), member.next_async(up_to(1), LONG)] {
            let outcome = awaited(wait.unwrap()).unwrap();
            assert!(matches!(outcome, Waited::Complete), "{outcome:?}");
        }
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 2);
    });
}

#[test]
fn a_wait_that_is_given_up_takes_no_row_from_others() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        for at in 0..8 {
            let mut wait = judge.claim_async(up_to(1), Wait::Forever).unwrap();
            assert!(look(&mut wait).is_pending());
            let id = format!("q{at}_0_0");
            // Given up before the row comes, and while it comes.
            match at % 2 {
                0 => drop(wait),
                _ => std::thread::scope(|scope| {
                    scope.spawn(move || drop(wait));
                    row(&table, 0, &id, None);
                }),
            }
            if at % 2 == 0 {
                row(&table, 0, &id, None);
            }
            let claim = judge.claim(up_to(1), LONG).unwrap().expect("the row is there for others");
            assert_eq!(ids(&claim), [id]);
            let verdict = verdicts(&claim, 1.0);
            claim.finish(&verdict).unwrap();
        }
    });
}

#[test]
fn rows_that_came_and_that_nobody_took_go_back() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let mut wait = judge.claim_async(up_to(1), Wait::Forever).unwrap();
        assert!(look(&mut wait).is_pending());
        row(&table, 0, "q_0_0", None);
        if world.way != Way::Embedded {
            until(|| leased(world) == 1); // an embedded store claims when it is looked at, and not before
        }
        drop(wait);
        assert!(judge.claim(up_to(1), LONG).unwrap().is_some());
    });
}

#[test]
fn waits_without_number_leave_room_for_who_ends_them() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let rows = 1_500; // more than one connection may have calls under way
        let waits: Vec<ClaimFuture> =
            (0..rows).map(|_| judge.claim_async(up_to(1), Wait::Forever).unwrap()).collect();
        let mut changes = Changes::new();
        for at in 0..rows {
            let new = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            changes.insert("solver", new, [("response", vec![1_i32].into())]);
        }
        client.write(&changes).unwrap();
        assert_eq!(table.counts().unwrap().written, rows);
        let mut seen: Vec<String> = waits.into_iter().flat_map(|wait| ids(&claimed(wait))).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len() as u64, rows);
    });
}

#[test]
fn waits_that_are_given_up_by_the_hundred_disturb_no_call() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let mut waits: Vec<ClaimFuture> =
            (0..400).map(|_| judge.claim_async(up_to(1), Wait::Forever).unwrap()).collect();
        assert!(waits.iter_mut().all(|wait| look(wait).is_pending()));
        drop(waits);
        for at in 0..20 {
            row(&table, 0, &format!("q{at}_0_0"), None);
            let claim = judge.claim(up_to(1), LONG).unwrap().expect("it is for who waits");
            let verdict = verdicts(&claim, 1.0);
            claim.finish(&verdict).unwrap();
        }
    });
}

#[test]
fn a_wait_of_a_server_ends_by_its_clock() {
    for way in [Way::Socket, Way::Tcp] {
        let world = World::new(way);
        let client = world.client();
        solver(&client);
        let judge = judge(&client);
        for wait in [Wait::No, Wait::For(Duration::from_millis(5))] {
            let outcome = awaited(judge.claim_async(up_to(1), wait).unwrap()).unwrap();
            assert!(matches!(outcome, Waited::TimedOut), "{way:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_claim_shows_the_holder_that_was_named() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        row(&table, 0, "q_0_0", None);
        let ask = forebay_client::Ask {
            consumer: judge.name(),
            rule: up_to(1),
            role: forebay_client::Role::Task,
            owner: Some("worker 7"),
            columns: &[],
        };
        let _claim = claimed(client.claim_async(&ask, LONG).unwrap());
        assert_eq!(world.store.claims()[0].owner, "worker 7");
    });
}

#[test]
fn consumers_are_told_with_their_kinds_and_tables() {
    on_every_way(|world| {
        let client = world.client();
        assert!(client.consumers().unwrap().is_empty());
        solver(&client);
        client.create_table("checker", Schema::new().data("reward", DataType::Float32)).unwrap();
        client.create_consumer("both", Consumer::trainer(["solver", "checker"]).ready(["reward"])).unwrap();
        judge(&client);
        let told = client.consumers().unwrap();
        let told: Vec<_> = told.iter().map(|told| (&*told.name, told.kind, told.tables.join(" "))).collect();
        let both = ("both", ConsumerKind::Trainer, "solver checker".to_owned());
        assert_eq!(told, [both, ("judge", ConsumerKind::Task, "solver".to_owned())]);
    });
}

#[test]
fn questions_may_be_awaited_and_given_up() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        (0..300).for_each(|at| _ = table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), []).unwrap());
        let endless =
            "SELECT sum(a.turn + b.turn + c.turn + d.turn) FROM solver a, solver b, solver c, solver d";
        let mut given_up = client.query_async(endless).unwrap();
        assert!(look(&mut given_up).is_pending());
        drop(given_up);
        let (_, counted) =
            awaited(client.query_async("SELECT count(*) AS rows FROM solver").unwrap()).unwrap();
        assert_eq!(counted[0].column(0).as_primitive::<Int64Type>().value(0), 300);
        let error = awaited(client.query_async("SELECT rewrd FROM solver").unwrap()).unwrap_err();
        assert_eq!(error.kind(), Kind::Input, "{error}");
    });
}

#[test]
fn closing_ends_every_wait_and_gives_back_what_was_held() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let judge = judge(&client);
        row(&table, 0, "q_0_0", None);
        let held = judge.claim(up_to(1), LONG).unwrap().unwrap();
        let waiting = judge.claim_async(up_to(1), Wait::Forever).unwrap();
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| judge.claim(up_to(1), Wait::Forever));
            client.close().unwrap();
            assert_eq!(blocked.join().unwrap().unwrap_err().kind(), Kind::Closed);
        });
        assert_eq!(awaited(waiting).unwrap_err().kind(), Kind::Closed);
        client.close().unwrap();
        drop(held); // it was given back
        let inserted = table.insert(NewRow::new(0, "q_0_1").unwrap(), []);
        for refused in [judge.claim(up_to(1), Wait::No).map(drop), inserted.map(drop)] {
            assert_eq!(refused.unwrap_err().kind(), Kind::Closed);
        }
        if world.way != Way::Embedded {
            let other = world.client().consumer("judge").unwrap();
            assert!(other.claim(up_to(1), LONG).unwrap().is_some(), "at once, and not with a grace");
        }
    });
}

// Who inserts waits for who takes, with values of any size.
#[test]
fn an_insert_that_is_held_back_waits_or_says_so_and_is_made_once() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        let limited =
            Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 2.0));
        let read = client.create_consumer("read", limited).unwrap();
        let insert = |at: usize, wait: Wait| {
            let (id, long) = (format!("q{at}_0_0"), format!("prompt {at} ").repeat(500));
            let mut changes = Changes::new();
            changes.insert("solver", NewRow::new(0, &id).unwrap(), [("prompt", long.into())]).wait(wait);
            client.write(&changes).map(|rows| rows.len())
        };
        let held_back = (0..10).find_map(|at| insert(at, Wait::No).err().map(|error| (at, error)));
        let (at, error) = held_back.unwrap();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "HeldBack"));
        std::thread::scope(|scope| {
            let inserts = scope.spawn(|| insert(at, LONG));
            while !inserts.is_finished() {
                let claim = read.claim(up_to(1), Wait::For(Duration::from_millis(10))).unwrap();
                claim.into_iter().for_each(|claim| _ = claim.finish(&Changes::new()).unwrap());
            }
            assert_eq!(inserts.join().unwrap().unwrap(), 1);
        });
        assert_eq!(client.table("solver").unwrap().counts().unwrap().written, at as u64 + 1);
    });
}
