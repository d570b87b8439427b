//! Subscriptions over networks that break: nothing is granted twice, nothing stays with nobody, and no count goes wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_client::{Claim, Client, ConnectOptions, ConsumerHandle, SubscribeOptions, Subscription};
use forebay_store::{Kind, Wait};

use super::outage::{HOUR, behind_a_proxy, connect, served_again};
use super::proxy::Proxy;
use crate::conformance::waits::{leased, until};
use crate::conformance::*;

fn subscribe(judge: &ConsumerHandle, claims: usize) -> Subscription {
    let options = SubscribeOptions::default().outstanding(claims).columns(["prompt"]);
    judge.subscribe(up_to(1), &options).unwrap()
}

fn next(claims: &Subscription) -> Claim {
    claims.next(LONG).unwrap().expect("it comes, and nobody else takes it")
}

fn finish(claim: Claim) {
    let verdict = verdicts(&claim, 1.0);
    claim.finish(&verdict).unwrap();
}

/// How a network breaks that carries so many bytes more.
type Breaking = fn(&Proxy, u64);

const BREAKING: [(&str, Breaking); 3] = [
    ("what the server says is cut", |proxy, bytes| proxy.cut_after(bytes)),
    ("what the client says is cut", |proxy, bytes| proxy.cut_after_sent(bytes)),
    ("the client's half ends", |proxy, bytes| proxy.end_after_sent(bytes)),
];

// The leases are longer than the test, so what is lost on the way and does not come again would not come at all.
#[test]
fn claims_that_are_cut_off_anywhere_on_their_way_come_once() {
    for (how, breaks) in BREAKING {
        eprintln!("{how}"); // shown when the case fails
        let (world, proxy) = behind_a_proxy(HOUR);
        let local = Client::embedded(world.store.clone());
        let (table, _) = (solver(&local), judge(&local));
        let judge = connect(&proxy, HOUR).consumer("judge").unwrap();
        let claims = subscribe(&judge, 2);
        let mut seen = BTreeSet::new();
        for bytes in (0..400).step_by(13) {
            breaks(&proxy, bytes);
            let rows = [0, 1].map(|at| format!("q{bytes}_0_{at}"));
            rows.iter().for_each(|id| _ = row(&table, 0, id, None));
            for _ in rows {
                let claim = next(&claims);
                assert_eq!(claim.columns(["prompt"]).unwrap().num_rows(), 1);
                assert!(
                    ids(&claim).into_iter().all(|id| seen.insert(id)),
                    "{how} after {bytes} bytes: twice"
                );
                assert!(leased(&world) <= 2);
                finish(claim);
            }
        }
        assert_eq!((seen.len(), leased(&world)), (2 * 400_usize.div_ceil(13), 0), "{how}");
    }
}

#[test]
fn a_claim_that_is_held_over_a_short_outage_does_not_come_again_and_counts() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let local = Client::embedded(world.store.clone());
    let (table, _) = (solver(&local), judge(&local));
    let judge = connect(&proxy, HOUR).consumer("judge").unwrap();
    let claims = subscribe(&judge, 2);
    row(&table, 0, "q0_0_0", None);
    let held = next(&claims);
    proxy.set_down(true);
    (1..3).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
    proxy.set_down(false);
    let second = next(&claims);
    assert_ne!(ids(&second), ids(&held));
    assert!(claims.next(Wait::For(Duration::from_millis(100))).unwrap().is_none(), "two are unsettled");
    finish(held);
    finish(next(&claims));
    finish(second);
    assert_eq!(leased(&world), 0);
}

#[test]
fn what_was_pushed_into_a_cable_that_is_pulled_comes_again() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let local = Client::embedded(world.store.clone());
    let (table, _) = (solver(&local), judge(&local));
    let judge = connect(&proxy, HOUR).consumer("judge").unwrap();
    let claims = subscribe(&judge, 2);
    row(&table, 0, "q0_0_0", None);
    finish(next(&claims));
    proxy.set_deaf(true);
    (1..4).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
    until(|| leased(&world) == 2); // for this client, which does not hear of it
    assert!(claims.next(Wait::No).unwrap().is_none());
    proxy.set_deaf(false);
    proxy.cut();
    let seen: BTreeSet<String> = (0..3)
        .flat_map(|_| {
            let claim = next(&claims);
            let ids = ids(&claim);
            finish(claim);
            ids
        })
        .collect();
    assert_eq!((seen.len(), leased(&world)), (3, 0));
}

#[test]
fn a_holder_is_refused_after_a_long_outage_and_the_rows_come_again() {
    let (world, proxy) = behind_a_proxy(Duration::ZERO);
    let local = Client::embedded(world.store.clone());
    let (table, at_home) = (solver(&local), judge(&local));
    let judge = connect(&proxy, HOUR).consumer("judge").unwrap();
    let claims = subscribe(&judge, 2);
    (0..2).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
    let held = next(&claims);
    until(|| leased(&world) == 2);
    proxy.set_down(true);
    let taken = [(); 2].map(|()| at_home.claim(up_to(1), LONG).unwrap().expect("they went back"));
    proxy.set_down(false);
    let verdict = verdicts(&held, 1.0);
    let error = held.finish(&verdict).unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{error}");
    assert!(claims.next(Wait::For(Duration::from_millis(100))).unwrap().is_none(), "others have them");
    taken.into_iter().for_each(|claim| claim.release().unwrap());
    let again = [next(&claims), next(&claims)];
    assert_eq!(leased(&world), 2);
    again.into_iter().for_each(finish);
}

#[test]
fn who_hears_nothing_for_too_long_is_told_and_holds_on_what_was_taken() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let local = Client::embedded(world.store.clone());
    let (table, at_home) = (solver(&local), judge(&local));
    let client = connect(&proxy, Duration::from_millis(300));
    let judge = client.consumer("judge").unwrap();
    let claims = subscribe(&judge, 1);
    (0..2).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
    let held = next(&claims);
    proxy.set_down(true);
    for _ in 0..2 {
        let error = claims.next(Wait::Forever).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
    }
    proxy.set_down(false);
    until(|| client.tables().is_ok());
    drop(claims);
    finish(at_home.claim(up_to(1), LONG).unwrap().expect("nobody has it"));
    finish(held);
    assert_eq!(leased(&world), 0);
}

#[test]
fn a_subscription_that_is_dropped_while_nobody_can_be_reached_gives_back_what_it_was_pushed() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let local = Client::embedded(world.store.clone());
    let (table, at_home) = (solver(&local), judge(&local));
    let client = connect(&proxy, HOUR);
    let judge = client.consumer("judge").unwrap();
    let claims = subscribe(&judge, 3);
    (0..3).for_each(|at| _ = row(&table, 0, &format!("q{at}_0_0"), None));
    let held = next(&claims);
    until(|| leased(&world) == 3);
    proxy.set_down(true);
    drop(claims);
    proxy.set_down(false);
    let others = [(); 2].map(|()| at_home.claim(up_to(1), LONG).unwrap().expect("nobody has it"));
    assert!(others.iter().all(|claim| ids(claim) != ids(&held)));
    finish(held);
}

#[test]
fn what_is_said_twice_is_granted_once() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let local = Client::embedded(world.store.clone());
    let (table, _) = (solver(&local), judge(&local));
    let client = connect(&proxy, HOUR);
    proxy.set_twice(true);
    proxy.cut();
    let judge = client.consumer("judge").unwrap();
    let claims = subscribe(&judge, 2);
    let mut seen = BTreeSet::new();
    for at in 0..20 {
        row(&table, 0, &format!("q{at}_0_0"), None);
        if at % 5 == 4 {
            proxy.cut();
        }
        let claim = next(&claims);
        assert!(ids(&claim).into_iter().all(|id| seen.insert(id)), "twice");
        finish(claim);
    }
    assert_eq!((seen.len(), leased(&world)), (20, 0));
}

#[test]
fn a_subscription_goes_on_with_a_server_that_was_restarted() {
    let (_dir, address, serve) = served_again();
    let (store, server) = serve();
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
    let (table, judge) = (solver(&client), judge(&client));
    let claims = subscribe(&judge, 2);
    row(&table, 0, "q_0_0", None);
    let held = next(&claims);
    drop((server, store));
    let (_store, _server) = serve();
    let again = next(&claims);
    assert_eq!(ids(&again), ids(&held));
    let verdict = verdicts(&held, 1.0);
    assert_eq!(held.finish(&verdict).unwrap_err().kind(), Kind::State);
    finish(again);
}
