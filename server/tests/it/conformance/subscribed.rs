//! Claims that come by themselves.

use std::collections::BTreeSet;

use forebay_client::{CellValue, NextClaim, SubscribeOptions, Subscription};
use forebay_store::{Kind, NewRow};
use futures_util::StreamExt;

use super::waits::{awaited, leased, look, until};
use super::*;

/// A wait for what is not to come.
const BRIEF: Wait = Wait::For(Duration::from_millis(20));

fn outstanding(claims: usize) -> SubscribeOptions {
    SubscribeOptions::default().outstanding(claims)
}

fn next(claims: &Subscription) -> Claim {
    claims.next(LONG).unwrap().expect("it is ready, and nobody else takes it")
}

fn finish(claim: Claim) {
    let verdict = verdicts(&claim, 1.0);
    claim.finish(&verdict).unwrap();
}

#[test]
fn claims_come_as_they_become_ready_and_never_more_than_are_asked_for() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(1), &outstanding(2)).unwrap();
        (0..5).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
        let mut held = vec![next(&claims), next(&claims)];
        assert!(claims.next(BRIEF).unwrap().is_none(), "two are unsettled");
        assert_eq!(leased(world), 2);
        let mut seen = BTreeSet::new();
        for settle in 0..5 {
            assert!(leased(world) <= 2);
            let claim = held.remove(0);
            seen.extend(ids(&claim));
            finish(claim);
            if settle < 3 {
                held.push(next(&claims));
            }
        }
        assert_eq!((seen.len(), leased(world)), (5, 0));
        assert!(claims.next(BRIEF).unwrap().is_none(), "all are judged");
    });
}

#[test]
fn what_nobody_took_goes_back_with_the_subscription_and_what_was_taken_stays() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(1), &outstanding(3)).unwrap();
        (0..3).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
        let taken = next(&claims);
        if world.way != Way::Embedded {
            until(|| leased(world) == 3); // an embedded store claims when it is asked, and not before
        }
        let waiting = claims.next_async();
        drop(claims);
        let over = awaited(waiting).unwrap_err();
        assert_eq!((over.kind(), over.cause()), (Kind::State, "SubscriptionOver"), "{over}");
        let others: Vec<Claim> = (0..2).map(|_| judge.claim(up_to(1), LONG).unwrap().unwrap()).collect();
        assert!(others.iter().all(|claim| ids(claim) != ids(&taken)));
        finish(taken);
        others.into_iter().for_each(finish);
        assert_eq!(leased(world), 0);
    });
}

#[test]
fn a_claim_that_is_released_comes_again_and_one_that_is_dropped_does() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(4), &outstanding(1)).unwrap();
        row(&table, 0, "q_0_0", None);
        next(&claims).release().unwrap();
        drop(next(&claims));
        finish(next(&claims));
    });
}

#[test]
fn a_lease_that_ends_makes_room_for_the_next_claim_and_its_holder_is_refused() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        let world = World::with(way, Options::default().lease(Duration::from_millis(100)));
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(1), &outstanding(1)).unwrap();
        row(&table, 0, "q_0_0", None);
        let late = next(&claims);
        let again = loop {
            world.store.run_once().unwrap();
            if let Some(claim) = claims.next(BRIEF).unwrap() {
                break claim;
            }
        };
        assert_eq!(ids(&again), ids(&late));
        let _ = again.extend(Duration::from_secs(60)); // or it has ended by now, too
        let verdict = verdicts(&late, 1.0);
        let error = late.finish(&verdict).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{error}");
    }
}

#[test]
fn columns_come_along_and_are_what_they_are_otherwise() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let named = ["sample_id", "prompt", "response"];
        for (by, options) in [("q", outstanding(1)), ("named", outstanding(1).columns(named))] {
            let claims = judge.subscribe(up_to(2), &options).unwrap();
            for at in 0..3 {
                row(&table, 0, &format!("{by}{at}_0_0"), None);
                let claim = next(&claims);
                let batch = claim.columns(named).unwrap();
                let other = claim.columns(["response", "prompt"]).unwrap();
                assert_eq!((batch.num_rows(), batch.column(1)), (1, other.column(1)));
                assert_eq!(claim.cells(["prompt"]).unwrap()[0].len(), 1);
                finish(claim);
            }
        }
    });
}

#[test]
fn a_subscription_is_awaited_and_streamed() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let mut claims = judge.subscribe(up_to(1), &outstanding(4)).unwrap();
        let mut given_up = claims.next_async();
        assert!(look(&mut given_up).is_pending());
        let waiting: NextClaim = claims.next_async();
        row(&table, 0, "q0_0_0", None);
        drop(given_up);
        let claim = awaited(waiting).unwrap();
        assert_eq!(ids(&claim), ["q0_0_0"]);
        finish(claim);
        (1..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
        let streamed = awaited(Box::pin(async move {
            let streamed: Vec<_> = StreamExt::take(&mut claims, 3).collect().await;
            (streamed, claims)
        }));
        let seen: BTreeSet<String> =
            streamed.0.iter().flat_map(|claim| ids(claim.as_ref().unwrap())).collect();
        assert_eq!(seen.len(), 3);
        streamed.0.into_iter().for_each(|claim| finish(claim.unwrap()));
    });
}

#[test]
fn subscribers_share_rows_and_none_has_what_another_has() {
    on_every_way(|world| {
        let (one, other) = (world.client(), world.client());
        let (table, judge) = (solver(&one), judge(&one));
        let second = other.consumer("judge").unwrap();
        let subscriptions =
            [&judge, &judge, &second].map(|of| of.subscribe(up_to(2), &outstanding(2)).unwrap());
        let mut changes = Changes::new();
        for at in 0..60 {
            let new = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            changes.insert("solver", new, [("response", vec![1_i32].into())]);
        }
        let inserted = one.write(&changes).unwrap();
        let is_judged = || {
            let rewards = table.cells(&inserted, "reward").unwrap();
            rewards.iter().all(|reward| *reward != CellValue::Empty)
        };
        let mut seen: Vec<String> = std::thread::scope(|scope| {
            let each = subscriptions.each_ref().map(|claims| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    while !is_judged() {
                        let claim = claims.next(BRIEF).unwrap();
                        seen.extend(claim.iter().flat_map(ids));
                        claim.into_iter().for_each(finish);
                    }
                    seen
                })
            });
            each.into_iter().flat_map(|one| one.join().unwrap()).collect()
        });
        seen.sort();
        let unique: BTreeSet<&String> = seen.iter().collect();
        assert_eq!((seen.len(), unique.len()), (60, 60), "each once");
    });
}

#[test]
fn what_no_subscription_can_be_is_refused_in_the_same_words() {
    let told = Way::ALL.map(|way| {
        let world = World::new(way);
        let client = world.client();
        solver(&client);
        let (judge, train) = (judge(&client), trainer(&client));
        let refused = [
            (train.subscribe(up_to(1), &outstanding(1)), (Kind::State, "ConsumerKind")),
            (judge.subscribe(up_to(0), &outstanding(1)), (Kind::Input, "Argument")),
            (judge.subscribe(up_to(1), &outstanding(0)), (Kind::Input, "Argument")),
        ];
        refused.map(|(refused, cause)| {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.cause()), cause, "{way:?}: {error}");
            error.to_string()
        })
    });
    assert!(told.iter().all(|here| *here == told[0]), "{told:?}");
}

#[test]
fn closing_ends_a_subscription_for_all_who_wait_and_gives_back_what_it_held() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(1), &outstanding(1)).unwrap();
        row(&table, 0, "q_0_0", None);
        let held = next(&claims);
        let waiting = claims.next_async();
        std::thread::scope(|scope| {
            let blocked = scope.spawn(|| claims.next(Wait::Forever));
            client.close().unwrap();
            assert_eq!(blocked.join().unwrap().unwrap_err().kind(), Kind::Closed);
        });
        assert_eq!(awaited(waiting).unwrap_err().kind(), Kind::Closed);
        for wait in [Wait::No, Wait::Forever] {
            assert_eq!(claims.next(wait).unwrap_err().kind(), Kind::Closed, "each time");
        }
        drop((held, claims));
        if world.way != Way::Embedded {
            let other = world.client().consumer("judge").unwrap();
            assert!(other.claim(up_to(1), LONG).unwrap().is_some(), "at once, and not with a grace");
        }
    });
}

#[test]
fn a_subscription_shows_the_holder_that_was_named() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let claims = judge.subscribe(up_to(1), &outstanding(1).owner("worker 7")).unwrap();
        row(&table, 0, "q_0_0", None);
        let _claim = next(&claims);
        assert_eq!(world.store.claims()[0].owner, "worker 7");
    });
}
