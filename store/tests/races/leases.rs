//! Claims and leases: a deadline that comes while a holder finishes, gives back or is asleep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_store::*;
use shuttle::thread;

use crate::explore::{Seen, explore};
use crate::support::*;

/// What the holders of two rows did: who finished each, and under which epochs they had them.
#[derive(Default)]
struct Held {
    finished: BTreeMap<String, Vec<i64>>,
    epochs: BTreeSet<(u64, u64)>,
    claims: usize,
}

/// How a holder ends its claim.
#[derive(Clone, Copy)]
enum End {
    Finish,
    Release,
    Drop,
}

/// Takes what there is, twice, and ends it. A finish that comes too late is refused with `state`, and leaves nothing.
fn hold(table: &Table, task: &ConsumerHandle, held: &Mutex<Held>, me: i64, ends: [End; 2], late: &Seen) {
    for end in ends {
        let Some(claim) = task.claim(MicroBatch::up_to(2), "me", Wait::No).unwrap() else { continue };
        let (taken, rows, epoch) = (ids(&claim), claim.rows().to_vec(), claim.epoch());
        {
            let mut held = held.lock().unwrap();
            held.claims += 1;
            held.epochs.insert(epoch);
        }
        let ended = match end {
            End::Finish => claim
                .finish(|batch| {
                    rows.iter().try_for_each(|&row| batch.write(table, row, [("score", me.into())]))
                })
                .map(drop),
            End::Release => claim.release(),
            End::Drop => continue,
        };
        match (end, ended) {
            (End::Finish, Ok(())) => {
                let mut held = held.lock().unwrap();
                taken.into_iter().for_each(|id| held.finished.entry(id).or_default().push(me));
            }
            (_, Ok(())) => {}
            (End::Finish, Err(error)) => {
                assert_eq!(error.kind(), Kind::State, "{error}");
                late.note();
            }
            (_, Err(error)) => panic!("giving back what is gone is no error: {error}"),
        }
    }
}

// FX-B14, FX-91
#[test]
fn no_two_holders_of_a_row_both_finish() {
    let late = Seen::default();
    let seen = late.clone();
    explore(300, move || {
        let world = World::new();
        let store = world.open();
        let schema = Schema::new().data("reward", DataType::Float32).data("score", DataType::Int64);
        let table = store.create_table("solver", schema).unwrap();
        let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["reward"])).unwrap();
        (0..2).for_each(|i| _ = finished_row(&table, i));
        let held = Arc::new(Mutex::new(Held::default()));
        let ends = [[End::Finish, End::Finish], [End::Release, End::Finish], [End::Drop, End::Finish]];
        let mut threads: Vec<_> = (0..)
            .zip(ends)
            .map(|(me, ends)| {
                let (table, task, held, late) = (table.clone(), task.clone(), held.clone(), late.clone());
                thread::spawn(move || hold(&table, &task, &held, me, ends, &late))
            })
            .collect();
        threads.push(thread::spawn({
            let (store, clock) = (store.clone(), world.clock.clone());
            move || {
                for _ in 0..2 {
                    clock.advance(LEASE + Duration::from_secs(1));
                    store.run_once().unwrap();
                }
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let held = Arc::into_inner(held).unwrap().into_inner().unwrap();
        assert_eq!(held.epochs.len(), held.claims, "an epoch is one claim's");
        check(&world, store, &held.finished);
    });
    assert!(seen.count() > 0, "no schedule brought a holder that came too late");
}

fn finished_row(table: &Table, i: usize) -> Row {
    table.insert(0, &format!("q_0_{i}"), [("reward", 1.0.into())]).unwrap()
}

/// Each row was finished once at most, by who its score says, in this process and the next; the others are still there.
fn check(world: &World, store: Store, finished: &BTreeMap<String, Vec<i64>>) {
    let expected: Vec<Vec<String>> = (0..2)
        .map(|i| {
            let id = format!("q_0_{i}");
            let by = finished.get(&id).map_or(&[][..], Vec::as_slice);
            assert!(by.len() <= 1, "{id} was finished by {by:?}");
            let score = by.first().map_or("null".to_owned(), |by| format!("{by}"));
            vec![id, score]
        })
        .collect();
    assert_eq!(pick(&store, "solver", &["sample_id", "score"]), expected);
    let store = world.reopen(store);
    assert_eq!(pick(&store, "solver", &["sample_id", "score"]), expected);
    let task = store.consumer("task").unwrap();
    let left = task.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().map_or(0, |claim| claim.len());
    assert_eq!(left, 2 - finished.len(), "what nobody finished is there to be claimed");
}

// FX-B14
#[test]
fn who_waits_takes_over_from_a_dead_holder_without_anybodys_help() {
    explore(100, || {
        let world = World::new();
        let (store, table) = solver(&world);
        let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["reward"])).unwrap();
        let waits = |wait: Wait| {
            let task = task.clone();
            thread::spawn(move || task.claim(MicroBatch::of(1), "me", wait).unwrap())
        };
        let dies = waits(Wait::No);
        let lives = waits(Wait::Forever);
        let inserts = thread::spawn(move || finished_row(&table, 0));
        inserts.join().unwrap();
        std::mem::forget(dies.join().unwrap()); // as of a process that is stuck: nobody gives it back
        assert_eq!(ids(&lives.join().unwrap().unwrap()), ["q_0_0"]);
    });
}

/// A step that is given up while a rank claims in it. Whatever was granted has gone back, and is the next step's of that number.
#[test]
fn a_claim_that_is_granted_while_its_step_is_given_up_goes_back() {
    let late = Seen::default();
    let seen = late.clone();
    explore(300, move || {
        let world = World::new();
        let (store, table, train) = trained(&world, None);
        (0..2).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
        let plan = |train: &ConsumerHandle| StepPlan::new().rows(train, 2);
        let step = Arc::new(store.begin_step(plan(&train)).unwrap());
        let claims = {
            let (step, train) = (step.clone(), train.clone());
            thread::spawn(move || {
                let next = || step.next(&train, MicroBatch::of(1), Wait::No);
                [next(), next()].into_iter().filter_map(|claim| claim.ok().flatten()).collect::<Vec<_>>()
            })
        };
        step.abandon().unwrap();
        let again = store.begin_step(plan(&train)).unwrap();
        let before: Vec<Claim> = claims.join().unwrap();
        // What was granted in the step that is over, or by its handle in this one, is told apart.
        for claim in before {
            match claim.accumulated() {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), Kind::State, "{error}");
                    late.note();
                }
            }
        }
        while let Some(claim) = again.next(&train, MicroBatch::of(1), Wait::No).unwrap() {
            claim.accumulated().unwrap();
        }
        assert_eq!(again.commit([("solver", vec![])]).unwrap().rows, 2, "all that was planned, once");
        check_counts(&store);
    });
    assert!(seen.count() > 0, "no claim was late");
}
