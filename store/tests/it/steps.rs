//! Steps: what is planned is taken, and one record commits it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_store::*;

use crate::support::*;

fn take(step: &Step, train: &ConsumerHandle, rule: MicroBatch) -> Option<Claim> {
    step.next(train, rule, Wait::No).unwrap()
}

// FX-38
#[test]
fn the_last_micro_batch_is_as_large_as_what_is_left() {
    let cases: [(Option<u32>, u64, usize, &[usize]); 5] = [
        (None, 10, 4, &[4, 4, 2]),
        (None, 4, 16, &[4]),
        (Some(2), 10, 4, &[4, 4, 2]),
        (Some(2), 6, 3, &[2, 2, 2]),
        (Some(5), 10, 4, &[5, 5]),
    ];
    for (group, rows, rule, expected) in cases {
        let (store, table, train) = trained(&World::new(), group);
        let members = group.unwrap_or(1);
        let groups: Vec<String> = (0..rows / u64::from(members)).map(|g| format!("q{g}")).collect();
        let plan = match group {
            Some(_) => StepPlan::new().groups(&train, groups.clone()),
            None => StepPlan::new().rows(&train, rows),
        };
        let step = store.begin_step(plan).unwrap();
        let mut sizes = Vec::new();
        for group in &groups {
            for t in 0..members {
                finished(&table, 0, &format!("{group}_0_{t}"));
                while let Some(claim) = take(&step, &train, MicroBatch::of(rule)) {
                    sizes.push(claim.len());
                    claim.accumulated().unwrap();
                }
            }
        }
        assert_eq!(sizes, expected, "{group:?} {rows} {rule}");
        assert!(step.is_complete(&train));
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, rows);
        check_counts(&store);
    }
}

// FX-38
#[test]
fn a_member_that_leaves_makes_the_last_micro_batch_smaller() {
    let (store, table, train) = trained(&World::new(), Some(4));
    let rows: Vec<Row> = (0..4).map(|t| table.insert(0, &format!("q_0_{t}"), []).unwrap()).collect();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q"])).unwrap();
    rows[..2].iter().for_each(|&row| table.write(row, [("reward", 1.0.into())]).unwrap());
    table.exclude(rows[2], "lost").unwrap();
    assert!(take(&step, &train, MicroBatch::of(16)).is_none());
    table.exclude(rows[3], "lost").unwrap();
    let claim = take(&step, &train, MicroBatch::of(16)).unwrap();
    assert_eq!(claim.len(), 2);
    claim.accumulated().unwrap();
    assert!(take(&step, &train, MicroBatch::of(16)).is_none() && step.is_complete(&train));
}

// FX-38, FX-94
#[test]
fn without_samples_there_is_no_version() {
    let (store, table, train) = trained(&World::new(), None);
    let step = store.begin_step(StepPlan::new().rows(&train, 0)).unwrap();
    assert!(step.next(&train, MicroBatch::of(1), Wait::Forever).unwrap().is_none(), "nothing is waited for");
    let error = step.commit([("solver", vec![])]).unwrap_err();
    assert!(matches!(error.cause(), Cause::PolicyIdle { version: 0, .. }), "{error}");
    assert_eq!(step.commit([]).unwrap(), CommittedStep { step: 1, rows: 0 });
    assert_eq!((store.policy("solver").unwrap().version, table.counts()), (0, TableCounts::default()));
}

#[test]
fn a_commit_that_fails_changes_nothing_and_leaves_the_step_open() {
    type Act = fn(&Step) -> Result<CommittedStep>;
    let cases: [(&str, bool, Act); 5] = [
        ("a claim is leased", false, |step| step.commit([("solver", vec![])])),
        ("the policy is not named", true, |step| step.commit([])),
        ("another has no rows", true, |step| step.commit([("solver", vec![]), ("other", vec![])])),
        ("a policy is unknown", true, |step| step.commit([("slover", vec![])])),
        ("a policy is named twice", true, |step| step.commit([("solver", vec![]), ("solver", vec![])])),
    ];
    for (what, accumulate, act) in cases {
        let world = World::new();
        let (store, table, train) = trained(&world, None);
        store.create_policy("other", 4, &[]).unwrap();
        finished(&table, 0, "q_0_0");
        finished(&table, 0, "q_0_1");
        let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
        let (first, second) = (
            take(&step, &train, MicroBatch::of(1)).unwrap(),
            take(&step, &train, MicroBatch::of(1)).unwrap(),
        );
        first.accumulated().unwrap();
        let before = (scan_content(&store), store.policies());
        let mut held = Some(second);
        if accumulate {
            held.take().unwrap().accumulated().unwrap();
        }
        let result = act(&step);
        assert!(result.is_err(), "{what}");
        assert_eq!((scan_content(&store), store.policies()), before, "{what}");
        assert_eq!(store.steps()[0].progress, StepProgress::Open, "{what}");
        if let Some(late) = held {
            late.accumulated().unwrap();
        }
        assert_eq!(step.commit([("solver", vec![])]).unwrap(), CommittedStep { step: 1, rows: 2 }, "{what}");
        let error = step.next(&train, MicroBatch::of(1), Wait::No).unwrap_err();
        assert!(matches!(error.cause(), Cause::StepClosed { step: 1 }), "{error}");
        drop(step);
        check_counts(&store);
        let before = scan(&store);
        assert_eq!(scan(&world.reopen(store)), before, "{what}");
    }
}

#[test]
fn a_step_over_two_policies_moves_both_or_none() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let judge = store.create_table("judge", solver_schema()).unwrap();
    let train_judge =
        store.create_consumer("train-judge", Consumer::trainer(["judge"]).ready(["reward"])).unwrap();
    finished(&table, 0, "q_0_0");
    finished(&judge, 0, "q_1_0");
    finished(&judge, 0, "late_1_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1).rows(&train_judge, 1)).unwrap();
    let weights = store.put_object("judge", 1, b"weights of version one").unwrap();
    for consumer in [&train, &train_judge] {
        take(&step, consumer, MicroBatch::of(1)).unwrap().accumulated().unwrap();
    }
    let commits = store.stats().commits;
    step.commit([("judge", vec![weights.clone()]), ("solver", vec![])]).unwrap();
    assert_eq!(store.stats().commits, commits + 1, "one record");
    let store = world.reopen(store);
    let shown = &store.steps()[0];
    assert_eq!(
        (shown.rows, &shown.updates[..]),
        (2, &[("judge".to_owned(), 1), ("solver".to_owned(), 1)][..])
    );
    assert_eq!(store.policy("judge").unwrap().objects, std::slice::from_ref(&weights));
    assert_eq!(store.object(&weights).unwrap(), b"weights of version one");
    assert_eq!(store.table("judge").unwrap().counts().excluded["stale"], 1);
    check_counts(&store);
}

// PL-21
#[test]
fn only_rows_of_the_current_version_are_trained_on() {
    let store = World::new().open();
    store.create_policy("p", 2, &[]).unwrap();
    let table = store.create_table("t", solver_schema().policy("p")).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["t"]).ready(["reward"])).unwrap();
    finished(&table, 2, "first_0_0");
    finished(&table, 2, "stays_0_0");
    train_once(&store, &train, StepPlan::new().rows(&train, 1), "p");
    for (version, id) in [(3, "a_0_0"), (3, "b_0_0"), (4, "c_0_0")] {
        finished(&table, version, id);
    }
    let step = store.begin_step(StepPlan::new().rows(&train, 4)).unwrap();
    let claim = take(&step, &train, MicroBatch::up_to(4)).unwrap();
    assert_eq!(ids(&claim), ["a_0_0", "b_0_0"], "of versions 2, 3, 3, 4 exactly two");
    assert!(take(&step, &train, MicroBatch::up_to(4)).is_none());
    assert_eq!((table.counts().excluded["stale"], table.counts().open()), (1, 3));
    claim.accumulated().unwrap();
    step.commit([("p", vec![])]).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    assert_eq!(ids(&take(&step, &train, MicroBatch::of(1)).unwrap()), ["c_0_0"], "its version has come");
    check_counts(&store);
}

#[test]
fn a_step_that_is_dropped_gives_back_what_it_took_and_its_number() {
    let (store, table, train) = trained(&World::new(), Some(2));
    (0..4).for_each(|i| _ = finished(&table, 0, &format!("q{}_0_{}", i / 2, i % 2)));
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1"])).unwrap();
    take(&step, &train, MicroBatch::of(2)).unwrap().accumulated().unwrap();
    let held = take(&step, &train, MicroBatch::of(2)).unwrap();
    let number = step.number();
    drop(step);
    assert!(matches!(held.accumulated().unwrap_err().cause(), Cause::StepClosed { .. }));
    assert_eq!(store.consumers()[0].ready_rows, 4);
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1"])).unwrap();
    assert_eq!(step.number(), number);
    let claim = take(&step, &train, MicroBatch::of(4)).unwrap();
    assert_eq!((claim.len(), claim.sequence_in_step()), (4, 0));
    claim.accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap(), CommittedStep { step: 1, rows: 4 });
    check_counts(&store);
}

#[test]
fn a_claim_of_a_given_up_step_cannot_enter_the_next_one_of_the_same_number() {
    let (store, table, train) = trained(&World::new(), None);
    finished(&table, 0, "q_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let old = take(&step, &train, MicroBatch::of(1)).unwrap();
    drop(step);
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let new = take(&step, &train, MicroBatch::of(1)).unwrap();
    assert!(matches!(old.accumulated().unwrap_err().cause(), Cause::ClaimFenced { .. }));
    new.accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
}

#[test]
fn a_dropped_cache_gives_its_rows_back_to_the_step() {
    let (store, table, train) = trained(&World::new(), None);
    (0..3).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    take(&step, &train, MicroBatch::of(2)).unwrap().accumulated().unwrap();
    let held = take(&step, &train, MicroBatch::of(1)).unwrap();
    assert!(step.is_complete(&train));
    assert_eq!(step.drop_cache("slover").unwrap_err().kind(), Kind::Input);
    step.drop_cache("solver").unwrap();
    assert!(!step.is_complete(&train));
    let again = take(&step, &train, MicroBatch::of(2)).unwrap();
    assert_eq!((ids(&again).len(), again.sequence_in_step()), (2, 2), "what is leased stays with its holder");
    held.accumulated().unwrap();
    again.accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 3);
    check_counts(&store);
}

#[test]
fn a_cache_that_is_dropped_by_another_handle_is_told_to_whoever_has_accumulated_in_it() {
    let (store, table, train) = trained(&World::new(), None);
    finished(&table, 0, "q_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let other = store.step(step.number()).unwrap();
    assert!(step.shares_step(&other));
    let mut claimed = step.next_async(&train, MicroBatch::of(1)).unwrap();
    let claimed = Pin::new(&mut claimed).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(Some(claim))) = claimed else { panic!("there is one") };
    claim.accumulated().unwrap();
    other.drop_cache("solver").unwrap();
    let again = take(&step, &train, MicroBatch::of(1)).unwrap();
    assert!(matches!(again.accumulated().unwrap_err().cause(), Cause::CacheDropped { .. }));
    let again = take(&step, &train, MicroBatch::of(1)).expect("who was refused gave it back");
    step.drop_cache("solver").unwrap();
    again.accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
    check_counts(&store);
}

// FX-39
#[test]
fn a_lease_that_ends_in_a_step_is_handed_out_again_and_counts_once() {
    for group in [None, Some(2)] {
        let world = World::new();
        let (store, table, train) = trained(&world, group);
        (0..4).for_each(|i| _ = finished(&table, 0, &format!("q{}_0_{}", i / 2, i % 2)));
        let plan = match group {
            None => StepPlan::new().rows(&train, 4),
            Some(_) => StepPlan::new().groups(&train, ["q0", "q1"]),
        };
        let step = store.begin_step(plan).unwrap();
        take(&step, &train, MicroBatch::of(2)).unwrap().accumulated().unwrap();
        let late = take(&step, &train, MicroBatch::of(2)).unwrap();
        assert!(step.is_complete(&train));
        world.clock.advance(LEASE);
        let again = take(&step, &train, MicroBatch::of(2)).unwrap();
        assert_eq!(ids(&again), ids(&late));
        assert!(matches!(
            late.accumulated().unwrap_err().cause(),
            Cause::ClaimFenced { found: "expired", .. }
        ));
        world.clock.advance(LEASE);
        assert!(store.run_once().unwrap().is_none());
        let last = take(&step, &train, MicroBatch::of(2)).unwrap();
        drop(again);
        last.accumulated().unwrap();
        world.clock.advance(LEASE * 10);
        assert_eq!(store.run_once().unwrap(), None, "what is accumulated has no deadline");
        assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4, "{group:?}");
        check_counts(&store);
    }
}

#[test]
fn one_step_is_open_at_a_time_and_plans_a_trainer_once() {
    let (store, _, train) = trained(&World::new(), None);
    let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let plans = [
        (StepPlan::new().rows(&train, 1).rows(&train, 2), Kind::Input),
        (StepPlan::new().rows(&task, 1), Kind::State),
        (StepPlan::new().groups(&train, ["q"]), Kind::State),
    ];
    for (plan, kind) in plans {
        assert_eq!(store.begin_step(plan.clone()).unwrap_err().kind(), kind, "{plan:?}");
    }
    let step = store.begin_step(StepPlan::new()).unwrap();
    assert!(
        step.next(&train, MicroBatch::of(1), Wait::Forever).unwrap().is_none(),
        "not planned, not waited for"
    );
    let error = store.begin_step(StepPlan::new()).unwrap_err();
    assert!(matches!(error.cause(), Cause::StepOpen { step: 1, .. }), "{error}");
}

#[test]
fn a_committed_object_version_is_never_written_again() {
    let (store, table, train) = trained(&World::new(), None);
    let mut objects = Vec::new();
    for version in 1..=4 {
        finished(&table, version - 1, "q_0_0");
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        take(&step, &train, MicroBatch::of(1)).unwrap().accumulated().unwrap();
        store.put_object("solver", version, b"left by a trainer that died").unwrap();
        let object = store.put_object("solver", version, format!("weights {version}").as_bytes()).unwrap();
        step.commit([("solver", vec![object.clone()])]).unwrap();
        objects.push(object);
    }
    let error = store.put_object("solver", 4, b"other weights").unwrap_err();
    assert!(matches!(error.cause(), Cause::Exists { .. }), "{error}");
    assert_eq!(store.put_object("solver", 4, b"weights 4").unwrap(), objects[3]);
    let kept = || objects.iter().map(|object| store.object(object).is_ok()).collect::<Vec<bool>>();
    assert_eq!(kept(), [true; 4], "a process that dies now may lead back to any of them");
    store.sync().unwrap();
    assert_eq!(
        kept(),
        [true; 4],
        "whoever comes after a power failure does not know yet that this is stable"
    );
    store.run_once().unwrap();
    assert_eq!(kept(), [false, false, true, true], "the two newest are kept");
    assert_eq!(store.object(&objects[3]).unwrap(), b"weights 4");
    assert_eq!(store.put_object("../x", 1, b"").unwrap_err().kind(), Kind::Input);
}

#[test]
fn a_damaged_object_is_corrupt_and_named() {
    let world = World::new();
    let store = world.open();
    let object = store.put_object("solver", 1, b"weights").unwrap();
    let path = files_with(&image_of(&world.disk), "safetensors").remove(0);
    world.disk.flip_byte(&path, 3);
    let error = store.object(&object).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("safetensors"), "{error}");
}

// FX-57: exactly the rows whose gradient was lost, once
#[test]
fn rows_of_lost_gradients_come_back_and_no_others() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    (0..6).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    let step = store.begin_step(StepPlan::new().rows(&train, 6)).unwrap();
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let claim = take(&step, &train, MicroBatch::of(2)).unwrap();
        epochs.push(claim.epoch());
        claim.accumulated().unwrap();
    }
    assert!(take(&step, &train, MicroBatch::up_to(9)).is_none());
    let (incarnation, number) = epochs[1];
    assert_eq!(step.return_lost(&[(incarnation + 1, number), (incarnation, 999)]).unwrap(), 0, "of others");
    assert_eq!(step.return_lost(&[epochs[1], epochs[1]]).unwrap(), 2);
    assert_eq!(step.return_lost(&[epochs[1]]).unwrap(), 0, "once");
    let again = take(&step, &train, MicroBatch::up_to(9)).unwrap();
    assert_eq!(ids(&again), ["q_0_2", "q_0_3"]);
    let held = again.epoch();
    assert_eq!(step.return_lost(&[held]).unwrap(), 2, "a lease ends so, too");
    assert!(again.accumulated().is_err());
    take(&step, &train, MicroBatch::up_to(9)).unwrap().accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 6);
    assert_eq!(step.return_lost(&epochs).unwrap(), 0, "what is consumed stays so");
}

#[test]
fn a_handle_of_a_step_that_was_given_up_takes_nothing_of_the_next_one_of_its_number() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let plan = || StepPlan::new().rows(&train, 1);
    let old = store.begin_step(plan()).unwrap();
    let (rank, wait) = (Gang::new("ranks", 0, 1), Wait::For(LEASE));
    let member = Arc::new(old.join(&train, rank.clone()).unwrap());
    store.step(old.number()).unwrap().abandon().unwrap(); // by another handle
    let step = store.begin_step(plan()).unwrap();
    let joined = Arc::new(old.join(&train, rank).unwrap());
    let rule = MicroBatch::of(1);
    for rows in 0..2 {
        let refused = [
            ("a look", old.next(&train, rule, Wait::No).map(drop)),
            ("a wait", old.next(&train, rule, wait).map(drop)),
            ("an await", polled(old.next_async(&train, rule).unwrap())),
            ("a rank", member.next(rule, Wait::No).map(drop)),
            ("a rank that joined later", joined.next(rule, wait).map(drop)),
            ("a rank that awaits", polled(joined.next_async(rule))),
            ("a rank that fetches", joined.fetch(0, rule, Wait::No).map(drop)),
        ];
        for (what, refused) in refused {
            let Err(error) = refused else { panic!("{what} with {rows} rows was let in") };
            let names = matches!(
                error.cause(),
                Cause::StepBegunAgain { step: 1, caches_from: 0, open_caches_from: 1 }
            );
            assert!(names && error.kind() == Kind::State, "{what} with {rows} rows: {error}");
        }
        assert!(!old.is_complete(&train), "it will never be");
        finished(&table, 0, &format!("q_0_{rows}"));
    }
    take(&step, &train, rule).unwrap().accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
    assert!(matches!(old.next(&train, rule, Wait::No).unwrap_err().cause(), Cause::StepClosed { step: 1 }));
    check_counts(&store);
}

/// What a future says at once, who would have to wait is let in.
fn polled(mut claim: ClaimFuture) -> Result<()> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut claim).poll(&mut context) {
        Poll::Ready(claimed) => claimed.map(drop),
        Poll::Pending => Ok(()),
    }
}

#[test]
fn a_handle_of_a_step_that_was_given_up_leaves_the_next_one_of_its_number_alone() {
    let (store, table, train) = trained(&World::new(), None);
    finished(&table, 0, "q_0_0");
    let plan = || StepPlan::new().rows(&train, 1);
    let old = store.begin_step(plan()).unwrap();
    store.step(old.number()).unwrap().abandon().unwrap(); // by another handle
    let step = store.begin_step(plan()).unwrap();
    assert_eq!(step.number(), old.number());
    take(&step, &train, MicroBatch::of(1)).unwrap().accumulated().unwrap();
    for refused in [old.commit([("solver", vec![])]).map(drop), old.check_commit([("solver", vec![])])] {
        assert!(matches!(refused.unwrap_err().cause(), Cause::StepBegunAgain { .. }));
    }
    old.drop_cache("solver").unwrap();
    drop(old);
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 1);
    check_counts(&store);
}

#[test]
fn a_dropped_cache_is_that_of_every_table_of_its_policy() {
    let world = World::new();
    let store = world.open();
    let tables =
        ["solver", "checker"].map(|name| store.create_table(name, solver_schema().policy("team")).unwrap());
    let trainer = Consumer::trainer(["solver", "checker"]).ready(["reward"]);
    let train = store.create_consumer("train", trainer).unwrap();
    tables.iter().for_each(|table| _ = finished(table, 0, "q_0_0"));
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let names: Vec<GradientId> = (0..2)
        .map(|_| {
            let claim = take(&step, &train, MicroBatch::of(1)).unwrap();
            let name = claim.gradient_id().unwrap();
            claim.accumulated().unwrap();
            name
        })
        .collect();
    step.drop_cache("solver").unwrap();
    for name in names {
        assert!(matches!(store.accumulate(&name).unwrap_err().cause(), Cause::CacheDropped { .. }));
    }
    for _ in 0..2 {
        take(&step, &train, MicroBatch::of(1)).expect("it comes again").accumulated().unwrap();
    }
    assert_eq!(step.commit([("team", vec![])]).unwrap().rows, 2);
    check_counts(&store);
}
