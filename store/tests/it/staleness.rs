//! Which rows a trainer gets as its policy moves on: strictly those of the current version, or those within a window.

use forebay_store::*;

use crate::support::*;

fn id(text: &str) -> SampleId {
    text.parse().unwrap()
}

/// `solver` with a trainer that takes rows up to `window` versions behind, singly or by pairs of an input.
fn windowed(world: &World, window: Option<u64>, pairs: bool) -> (Store, Table, ConsumerHandle) {
    let (store, table) = solver(world);
    let declared = Consumer::trainer(["solver"]).ready(["reward"]);
    let declared = if pairs { declared.group(GroupBy::Input, 2) } else { declared };
    let declared = window.map_or(declared.clone(), |versions| declared.staleness(versions));
    let train = store.create_consumer("train", declared).unwrap();
    (store, table, train)
}

/// Moves the policy on by a step over one row of the current version.
fn move_on(store: &Store, table: &Table, train: &ConsumerHandle) {
    let version = store.policy("solver").unwrap().version;
    let mine = finished(table, version, &format!("step{version}_0_0"));
    let step = store.begin_step(StepPlan::new().rows(train, 10_000)).unwrap();
    let mut others = Vec::new();
    while let Some(claim) = step.next(train, MicroBatch::up_to(1), Wait::No).unwrap() {
        if claim.rows() == [mine] {
            claim.accumulated().unwrap();
            break;
        }
        others.push(claim);
    }
    others.into_iter().for_each(|claim| claim.release().unwrap());
    step.commit([("solver", vec![])]).unwrap();
}

/// What a step over everything that is ready gets, in its order; nothing of it is kept.
fn obtainable(store: &Store, train: &ConsumerHandle) -> Vec<String> {
    let step = store.begin_step(StepPlan::new().rows(train, 10_000)).unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(train, MicroBatch::up_to(1), Wait::No).unwrap() {
        claims.push(claim);
    }
    claims.iter().flat_map(ids).collect()
}

fn excluded(table: &Table, reason: &str) -> u64 {
    table.counts().excluded.get(reason).copied().unwrap_or(0)
}

/// The store says the same after a restart, from the log alone and from a checkpoint, and verifies.
fn restarted(world: &World, store: Store) -> (Store, Table, ConsumerHandle) {
    let (shown, consumers) = (scan_content(&store), store.consumers());
    let store = world.reopen(store);
    assert_eq!((&scan_content(&store), &store.consumers()), (&shown, &consumers), "replayed");
    store.checkpoint().unwrap();
    let store = world.reopen(store);
    assert_eq!((scan_content(&store), store.consumers()), (shown, consumers), "from a checkpoint");
    check_counts(&store);
    let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
    (store, table, train)
}

// PL-21, DESIGN 3.6: rows of versions 2, 3, 3 and 4 where the policy stands at 3: exactly two are to be had.
#[test]
fn without_a_window_only_the_current_version_is_trained_on() {
    let world = World::new();
    let (store, table, train) = windowed(&world, None, false);
    (0..2).for_each(|_| move_on(&store, &table, &train));
    finished(&table, 2, "past_0_0");
    let before = excluded(&table, "stale");
    move_on(&store, &table, &train);
    assert_eq!(excluded(&table, "stale") - before, 1, "of version 2");
    _ = ["now_0_0", "now_0_1"].map(|id| finished(&table, 3, id));
    finished(&table, 4, "future_0_0");
    let (store, table, train) = restarted(&world, store);
    assert_eq!(obtainable(&store, &train), ["now_0_0", "now_0_1"]);
    let info = &store.consumers()[0];
    assert_eq!((info.ready_rows, info.future_rows), (2, 1), "the one from the future is counted, too");
    assert!(matches!(
        table.insert(2, "late_0_0", []).unwrap_err().cause(),
        Cause::Stale { version: 2, current: 3, .. }
    ));
}

// DESIGN 3.6
#[test]
fn rows_within_the_window_stay_and_those_that_leave_it_carry_the_reason() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(2), false);
    for version in 0..5_u64 {
        let seen: Vec<String> = obtainable(&store, &train);
        let expected: Vec<String> =
            (version.saturating_sub(2)..version).map(|version| format!("row{version}_0_0")).collect();
        assert_eq!(seen, expected, "at version {version}");
        assert_eq!(excluded(&table, "stale"), version.saturating_sub(2));
        finished(&table, version, &format!("row{version}_0_0"));
        move_on(&store, &table, &train);
    }
    let (store, table, train) = restarted(&world, store);
    assert_eq!(obtainable(&store, &train), ["row3_0_0", "row4_0_0"]);
    // What is within may still come, whole or in parts; what is older may not.
    let late = table.insert(4, "late_0_0", []).unwrap();
    assert!(matches!(table.insert(2, "late_0_1", []).unwrap_err().cause(), Cause::Stale { .. }));
    let kept = NewRow::new(2, "late_0_1").unwrap().late();
    table.insert_row(kept, []).unwrap();
    assert_eq!(table.get(2, &id("late_0_1")).unwrap().excluded.as_deref(), Some("stale"));
    table.write(late, [("reward", 1.0.into())]).unwrap();
    table.insert_row(NewRow::new(3, "row3_0_0").unwrap().next_attempt(), []).unwrap();
    assert_eq!(obtainable(&store, &train), ["row4_0_0", "late_0_0"]);
    restarted(&world, store);
}

// DESIGN 3.6: the window is on the oldest *trainable* span.
#[test]
fn a_row_is_as_old_as_its_oldest_trainable_span() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(1), false);
    let rows = ["plain_0_0", "cut_0_0", "masked_0_0", "half_0_0"].map(|id| finished(&table, 0, id));
    move_on(&store, &table, &train);
    for row in &rows[1..] {
        table.span(*row, 10, 1).unwrap(); // a part is of version 1, the part before it still counts
    }
    table.trainable_from(rows[2], 10).unwrap();
    table.trainable_from(rows[3], 9).unwrap(); // one token of version 0 is trained on
    table.trainable_from(rows[3], 9).unwrap();
    assert_eq!(table.trainable_from(rows[3], 8).unwrap_err().kind(), Kind::Input, "masked stays masked");
    assert_eq!(obtainable(&store, &train).len(), 4);
    let (store, table, train) = restarted(&world, store);
    assert_eq!(table.get(0, &id("half_0_0")).unwrap().trainable_from, 9);
    move_on(&store, &table, &train);
    assert_eq!(obtainable(&store, &train), ["masked_0_0"]);
    assert_eq!(excluded(&table, "stale"), 3);
    let (store, table, train) = restarted(&world, store);
    assert!(matches!(table.trainable_from(rows[0], 30).unwrap_err().cause(), Cause::RowExcluded { .. }));
    move_on(&store, &table, &train);
    assert_eq!((obtainable(&store, &train).len(), excluded(&table, "stale")), (0, 4));
}

#[test]
fn strictly_a_row_that_was_cut_is_of_the_version_that_it_started_under() {
    for (window, expected) in [(None, vec![]), (Some(0), vec!["cut_0_0".to_owned()])] {
        let world = World::new();
        let (store, table, train) = windowed(&world, window, false);
        let row = finished(&table, 0, "cut_0_0");
        table.span(row, 10, 1).unwrap();
        table.trainable_from(row, 10).unwrap();
        move_on(&store, &table, &train);
        assert_eq!(obtainable(&store, &train), expected, "{window:?}");
        restarted(&world, store);
    }
}

// PL-21: nothing that a version from the future made is trained on, not even a part of a row.
#[test]
fn a_row_with_a_part_from_the_future_waits_for_it() {
    for pairs in [false, true] {
        let world = World::new();
        let (store, table, train) = windowed(&world, Some(1), pairs);
        let keys = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        let plan = |store: &Store, train: &ConsumerHandle| {
            let step = store.begin_step(match pairs {
                true => StepPlan::new().groups(train, keys(&["q"])),
                false => StepPlan::new().rows(train, 8),
            });
            let step = step.unwrap();
            let claim = step.next(train, MicroBatch::up_to(8), Wait::No).unwrap();
            claim.map_or(Vec::new(), |claim| ids(&claim))
        };
        let rows = ["q_0_0", "q_0_1"].map(|id| finished(&table, 0, id));
        assert_eq!(plan(&store, &train), ["q_0_0", "q_0_1"]);
        table.span(rows[1], 4, 1).unwrap();
        let now: &[&str] = if pairs { &[] } else { &["q_0_0"] };
        assert_eq!(plan(&store, &train), now, "it was ready and is no more");
        let (store, table, train) = restarted(&world, store);
        assert_eq!(plan(&store, &train), now);
        _ = ["a_0_0", "a_0_1"].map(|id| finished(&table, 0, id));
        let step = match pairs {
            true => StepPlan::new().groups(&train, keys(&["a"])),
            false => StepPlan::new().rows(&train, 3),
        };
        train_once(&store, &train, step, "solver");
        let (store, _, train) = restarted(&world, store);
        let then: &[&str] = if pairs { &["q_0_0", "q_0_1"] } else { &["q_0_1"] };
        assert_eq!(plan(&store, &train), then, "version 1 is here");
        store.rewind(0, Rewind::TrainAgain).unwrap();
        assert!(!plan(&store, &train).contains(&"q_0_1".to_owned()), "version 1 is to come again");
        restarted(&world, store);
    }
}

// PL-21: nor of one that comes with everything at once.
#[test]
fn a_new_row_with_a_part_from_the_future_waits_for_it_and_what_is_masked_makes_it_no_older() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(1), false);
    let new = |id: &str| NewRow::new(0, id).unwrap().span(4, 1);
    let cells = || [("response", vec![1, 2, 3].into()), ("reward", 1.0.into())];
    for row in [NewRow::new(0, "plain_0_0").unwrap(), new("cut_0_0"), new("masked_0_0").trainable_from(4)] {
        table.insert_row(row, cells()).unwrap();
    }
    assert_eq!(obtainable(&store, &train), ["plain_0_0"], "version 1 is not here");
    move_on(&store, &table, &train);
    let (store, table, train) = restarted(&world, store);
    assert_eq!(obtainable(&store, &train), ["plain_0_0", "cut_0_0", "masked_0_0"]);
    move_on(&store, &table, &train);
    assert_eq!(obtainable(&store, &train), ["masked_0_0"]);
    restarted(&world, store);
}

#[test]
fn groups_within_the_window_keep_to_one_version() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(1), true);
    let slow = table.insert(0, "q_0_0", []).unwrap();
    finished(&table, 0, "q_0_1");
    _ = ["a_0_0", "a_0_1"].map(|id| finished(&table, 0, id));
    train_once(&store, &train, StepPlan::new().groups(&train, ["a"]), "solver");
    _ = ["q_0_0", "q_0_1"].map(|id| finished(&table, 1, id));
    let (store, table, train) = restarted(&world, store);
    let step = store.begin_step(StepPlan::new().groups(&train, ["q"])).unwrap();
    let next = || step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap();
    let new = next().unwrap();
    let of_new = ["q_0_0", "q_0_1"].map(|of| table.get(1, &id(of)).unwrap().row);
    assert_eq!(new.rows(), of_new, "the group of version 1, and nobody of the other");
    assert!(next().is_none() && !step.is_complete(&train), "the one of version 0 is planned as well");
    table.write(slow, [("reward", 1.0.into())]).unwrap();
    let old = next().unwrap();
    assert!(old.rows().contains(&slow) && old.len() == 2);
    new.accumulated().unwrap();
    old.accumulated().unwrap();
    assert!(step.is_complete(&train));
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
    restarted(&world, store);
}

#[test]
fn a_group_that_an_earlier_step_was_done_with_does_not_stand_for_the_planned_one() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(3), true);
    for version in 0..3 {
        let step = store.begin_step(StepPlan::new().groups(&train, ["q"])).unwrap();
        assert!(!step.is_complete(&train), "version {version}");
        assert!(step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().is_none());
        _ = ["q_0_0", "q_0_1"].map(|id| finished(&table, version, id));
        step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().unwrap().accumulated().unwrap();
        assert!(step.is_complete(&train));
        store.checkpoint().unwrap();
        assert!(step.is_complete(&train));
        step.commit([("solver", vec![])]).unwrap();
    }
    // One that came late is planned by its name alone, and nothing of the current version is waited for.
    _ = ["late_0_0", "late_0_1"].map(|id| finished(&table, 1, id));
    let step = store.begin_step(StepPlan::new().groups(&train, ["late"])).unwrap();
    assert_eq!(step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().unwrap().len(), 2);
    drop(step);
    restarted(&world, store);
}

#[test]
fn a_member_that_leaves_the_window_is_left_out_of_its_group_by_the_rule() {
    for (rule, then) in [(GroupRule::Shrink { least: 1 }, 1), (GroupRule::Exclude, 0)] {
        let world = World::new();
        let (store, table) = solver(&world);
        let declared = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2);
        let declared = declared.when_a_member_fails(rule).staleness(0);
        let train = store.create_consumer("train", declared).unwrap();
        let rows = ["q_0_0", "q_0_1"].map(|id| finished(&table, 0, id));
        _ = ["a_0_0", "a_0_1"].map(|id| finished(&table, 0, id));
        table.span(rows[0], 5, 1).unwrap();
        table.trainable_from(rows[0], 5).unwrap();
        train_once(&store, &train, StepPlan::new().groups(&train, ["a"]), "solver");
        let (store, table, train) = restarted(&world, store);
        let step = store.begin_step(StepPlan::new().groups(&train, ["q"])).unwrap();
        let claim = step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap();
        assert_eq!(claim.map_or(0, |claim| claim.len()), then, "{rule:?}");
        assert_eq!(excluded(&table, "stale"), 2 - then as u64);
    }
}

// What a step needs of tasks, they do, however old it is; what nobody will train on, they do not.
#[test]
fn tasks_serve_what_the_trainer_may_take() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(1), false);
    let reward = store.create_consumer("reward", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    let rows = ["a_0_0", "b_0_0"].map(|id| table.insert(0, id, [("prompt", "p".into())]).unwrap());
    let held = reward.claim(MicroBatch::up_to(1), "slow", Wait::No).unwrap().unwrap();
    move_on(&store, &table, &train);
    assert_eq!(held.rows(), [rows[0]]);
    held.finish(|batch| batch.write(&table, rows[0], [("reward", 1.0.into())])).unwrap();
    assert_eq!(obtainable(&store, &train), ["a_0_0"], "its claim was in flight at the commit");
    let claim = reward.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
    assert_eq!(claim.rows(), [rows[1]]);
    move_on(&store, &table, &train); // both leave the window
    assert_eq!(excluded(&table, "stale"), 2);
    assert!(claim.finish(|batch| batch.write(&table, rows[1], [("reward", 1.0.into())])).is_err());
    let left = reward.claim(MicroBatch::up_to(8), "me", Wait::No).unwrap().map_or(Vec::new(), |c| ids(&c));
    assert!(!left.iter().any(|id| id == "b_0_0"), "{left:?}");
    let refused = store.create_consumer("t", Consumer::task(["solver"]).staleness(1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Input);
}

#[test]
fn a_window_that_is_declared_late_opens_for_tasks_as_well() {
    let world = World::new();
    let store = world.open();
    store.create_policy("shared", 0, &[]).unwrap();
    let other = Schema::new().policy("shared").data("reward", DataType::Float32);
    let (driver, table) =
        (store.create_table("driver", other.clone()).unwrap(), store.create_table("solver", other).unwrap());
    let drive = store.create_consumer("drive", Consumer::trainer(["driver"]).ready(["reward"])).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    table.insert(0, "old_0_0", [("reward", 1.0.into())]).unwrap();
    driver.insert(0, "d_0_0", [("reward", 1.0.into())]).unwrap();
    train_once(&store, &drive, StepPlan::new().rows(&drive, 1), "shared");
    assert!(task.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().is_none(), "of a version that is over");
    let train = Consumer::trainer(["solver"]).ready(["reward"]).staleness(1);
    let train = store.create_consumer("train", train).unwrap();
    assert_eq!(obtainable(&store, &train), ["old_0_0"]);
    assert_eq!(ids(&task.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap()), ["old_0_0"]);
    restarted(&world, store);
}

#[test]
fn a_rewind_brings_back_what_was_within_the_window_then() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(1), false);
    for version in 0..4 {
        finished(&table, version, &format!("row{version}_0_0"));
        move_on(&store, &table, &train);
    }
    assert_eq!(obtainable(&store, &train), ["row3_0_0"]);
    let stale = excluded(&table, "stale");
    store.rewind(3, Rewind::TrainAgain).unwrap();
    assert_eq!(store.policy("solver").unwrap().version, 3);
    let (store, table, train) = restarted(&world, store);
    let seen = obtainable(&store, &train);
    assert_eq!(
        seen,
        ["step3_0_0", "row3_0_0", "row2_0_0"],
        "first what was trained on, then what was left behind"
    );
    assert_eq!(stale - excluded(&table, "stale"), 1);
    check_counts(&store);
}

#[test]
fn what_is_within_the_window_is_not_deleted_as_over() {
    let world = World::new();
    let (store, table, train) = windowed(&world, Some(2), false);
    for version in 0..4 {
        finished(&table, version, &format!("row{version}_0_0"));
        move_on(&store, &table, &train);
    }
    let refused = table.delete(&Delete::version(2)).unwrap_err();
    assert!(matches!(refused.cause(), Cause::VersionCurrent { version: 2, current: 4, .. }), "{refused}");
    assert_eq!(obtainable(&store, &train), ["row2_0_0", "row3_0_0"]);
}
