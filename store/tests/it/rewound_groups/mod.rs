//! What groups are after a rewind: as large as was said, without the members that were deleted and without those that came
//! when it was too late. Cases here, whatever else comes to pass in `random`.

mod random;

use std::collections::BTreeMap;

use forebay_store::*;

use crate::support::*;

/// How the process that looks came by the state.
const WAYS: [&str; 3] = ["live", "from the log", "from a checkpoint"];

type Act = fn(&Store, &Table, &ConsumerHandle);

/// A group `q` of a trainer: what happened before the rewind, and what is handed out of it after.
struct Case {
    what: &'static str,
    consumer: Consumer,
    act: Act,
    handed_out: &'static [&'static str],
    complete: bool,
    reasons: &'static [(&'static str, u64)],
}

fn open(world: &World) -> Store {
    Store::open(ROOT, world.options().object_versions_kept(8)).unwrap()
}

fn next_process(world: &World, store: Store) -> Store {
    std::mem::forget(store);
    world.disk.restart();
    open(world)
}

fn of_rows(size: u32) -> Consumer {
    Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, size)
}

fn of_trajectories(size: u32, end: TrajectoryEnd) -> Consumer {
    Consumer::trainer(["solver"]).ready(["reward"]).trajectories(GroupBy::Input, size, end)
}

fn all_finished(table: &Table, ids: &[&str]) {
    ids.iter().for_each(|id| _ = finished(table, 0, id));
}

fn lost(table: &Table, id: &str) {
    table.insert_row(NewRow::new(0, id).unwrap().excluded("lost"), []).unwrap();
}

fn late(table: &Table, id: &str) {
    let new = NewRow::new(0, id).unwrap().late();
    table.insert_row(new, [("reward", 1.0.into())]).unwrap();
}

fn delete(table: &Table, ids: &[&str]) {
    let row = |id: &&str| table.find(0, &id.parse().unwrap()).unwrap();
    table.delete(&Delete::rows(ids.iter().map(row)).force()).unwrap();
}

/// Trains on a group of version 0, so that the version is over.
fn trained_on(store: &Store, train: &ConsumerHandle, group: &str) {
    assert!(train_once(store, train, StepPlan::new().groups(train, [group]), "solver") > 0, "{group}");
}

/// What a step over group `q` hands out now, and whether that is all.
fn handed_out(store: &Store, train: &ConsumerHandle) -> (Vec<String>, bool) {
    let step = store.begin_step(StepPlan::new().groups(train, ["q"])).unwrap();
    let mut found = Vec::new();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap() {
        found.extend(ids(&claim));
        claims.push(claim);
    }
    (found, step.is_complete(train))
}

fn reasons(store: &Store) -> BTreeMap<String, u64> {
    store.table("solver").unwrap().counts().excluded
}

fn check(case: &Case, way: &str) {
    let what = format!("{}, {way}", case.what);
    let world = World::new();
    let mut store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", case.consumer.clone()).unwrap();
    (case.act)(&store, &table, &train);
    drop((table, train));
    if way == "from a checkpoint" {
        store.checkpoint().unwrap();
        store = next_process(&world, store);
    }
    store.rewind(0, Rewind::TrainAgain).unwrap();
    let looks = |store: &Store| {
        let expected = case.handed_out.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let told = case.reasons.iter().map(|(reason, rows)| ((*reason).to_owned(), *rows));
        let train = store.consumer("train").unwrap();
        assert_eq!(handed_out(store, &train), (expected, case.complete), "{what}");
        assert_eq!(reasons(store), told.collect(), "{what}");
        let there = pick(store, "solver", &["sample_id"]).len() as u64;
        if store.table("solver").unwrap().counts().written == there {
            check_counts(store); // what is deleted counts, and is not shown
        }
    };
    if way != "live" {
        store = next_process(&world, store);
    }
    looks(&store);
    store.checkpoint().unwrap();
    looks(&next_process(&world, store));
}

fn check_all(cases: &[Case]) {
    cases.iter().for_each(|case| WAYS.iter().for_each(|way| check(case, way)));
}

#[test]
fn a_group_whose_member_was_deleted_is_after_a_rewind_what_its_rule_says() {
    let of_two = of_rows(2);
    check_all(&[
        Case {
            what: "a member that was out and was deleted when its version was over",
            consumer: of_two.clone(),
            act: |store, table, train| {
                finished(table, 0, "q_0_0");
                lost(table, "q_0_1");
                trained_on(store, train, "q");
                table.delete(&Delete::rows([table.find(0, &"q_0_1".parse().unwrap()).unwrap()])).unwrap();
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("lost", 1)],
        },
        Case {
            what: "the same, deleted before",
            consumer: of_two.clone(),
            act: |store, table, train| {
                finished(table, 0, "q_0_0");
                lost(table, "q_0_1");
                delete(table, &["q_0_1"]);
                trained_on(store, train, "q");
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("lost", 1)],
        },
        Case {
            what: "one that was trained on",
            consumer: of_two.clone(),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                delete(table, &["q_0_0"]);
            },
            handed_out: &["q_0_1"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "fewer than the rule wants are left",
            consumer: of_rows(3).when_a_member_fails(GroupRule::Shrink { least: 2 }),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                lost(table, "q_0_2");
                trained_on(store, train, "q");
                delete(table, &["q_0_1"]);
            },
            handed_out: &[],
            complete: true,
            reasons: &[("lost", 1), ("deleted", 1)],
        },
        Case {
            what: "a group that is to be whole",
            consumer: of_two.clone().when_a_member_fails(GroupRule::Exclude),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                delete(table, &["q_0_1"]);
            },
            handed_out: &[],
            complete: true,
            reasons: &[("deleted", 1)],
        },
        Case {
            what: "no next attempt can come of what is gone for good",
            consumer: of_two.clone().when_a_member_fails(GroupRule::NextAttempt),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                delete(table, &["q_0_1"]);
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "one is deleted and another may have a next attempt",
            consumer: of_rows(3).when_a_member_fails(GroupRule::NextAttempt),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1", "q_0_2", "p_0_0", "p_0_1", "p_0_2"]);
                table.exclude(table.find(0, &"q_0_2".parse().unwrap()).unwrap(), "lost").unwrap();
                trained_on(store, train, "p");
                delete(table, &["q_0_1"]);
            },
            handed_out: &[],
            complete: false,
            reasons: &[("lost", 1), ("stale", 1)],
        },
        Case {
            what: "a group that was closed",
            consumer: of_rows(4),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1", "q_0_2"]);
                train.close_group(table, 0, "q").unwrap();
                trained_on(store, train, "q");
                delete(table, &["q_0_0"]);
            },
            handed_out: &["q_0_1", "q_0_2"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "an attempt whose next one has its place",
            consumer: of_two,
            act: |store, table, train| {
                lost(table, "q_0_0");
                let first = table.find(0, &"q_0_0".parse().unwrap()).unwrap();
                let again = NewRow::new(0, "q_0_0").unwrap().next_attempt();
                table.insert_row(again, [("reward", 1.0.into())]).unwrap();
                finished(table, 0, "q_0_1");
                trained_on(store, train, "q");
                table.delete(&Delete::rows([first])).unwrap();
            },
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("lost", 1)],
        },
    ]);
}

#[test]
fn a_trajectory_that_was_deleted_is_out() {
    let ends = [TrajectoryEnd::Rows(2), TrajectoryEnd::Closed];
    let act: Act = |store, table, train| {
        all_finished(table, &["q_0_0", "q_1_0", "q_0_1", "q_1_1"]);
        (0..2).for_each(|number| train.close_trajectory(table, 0, "q", number).unwrap());
        trained_on(store, train, "q");
        delete(table, &["q_0_1", "q_1_1"]);
    };
    for end in ends {
        let of = |rule| of_trajectories(2, end).when_a_member_fails(rule);
        let case = |what, consumer, handed_out, reasons| Case {
            what,
            consumer,
            act,
            handed_out,
            complete: true,
            reasons,
        };
        check_all(&[
            case("it shrinks", of(GroupRule::Shrink { least: 1 }), &["q_0_0", "q_1_0"], &[]),
            case("it is waited for by nobody", of(GroupRule::NextAttempt), &["q_0_0", "q_1_0"], &[]),
            case("the group goes with it", of(GroupRule::Exclude), &[], &[("deleted", 2)]),
        ]);
    }
}

#[test]
fn a_trajectory_that_was_closed_without_rows_is_a_member_after_a_rewind_too() {
    let two: Act = |store, table, train| {
        all_finished(table, &["q_0_0"]);
        (0..2).for_each(|number| train.close_trajectory(table, 0, "q", number).unwrap());
        trained_on(store, train, "q");
    };
    let closed: Act = |store, table, train| {
        all_finished(table, &["q_0_0", "p_0_0"]);
        (0..2).for_each(|number| train.close_trajectory(table, 0, "q", number).unwrap());
        train.close_group(table, 0, "q").unwrap();
        (0..2).for_each(|number| train.close_trajectory(table, 0, "p", number).unwrap());
        trained_on(store, train, "p");
    };
    let of = |rule| of_trajectories(2, TrajectoryEnd::Closed).when_a_member_fails(rule);
    for rule in [GroupRule::NextAttempt, GroupRule::Exclude, GroupRule::Shrink { least: 2 }] {
        let case = |what, act| Case {
            what,
            consumer: of(rule),
            act,
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[],
        };
        check_all(&[case("its group was trained on", two), case("its group was closed", closed)]);
    }
}

#[test]
fn a_row_that_came_late_has_a_place_after_a_rewind_where_there_is_one() {
    let both: Act = |store, table, train| {
        all_finished(table, &["q_0_0", "q_0_1"]);
        trained_on(store, train, "q");
        late(table, "q_0_2");
    };
    check_all(&[
        Case {
            what: "the group has all its members",
            consumer: of_rows(2),
            act: both,
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("surplus", 1)],
        },
        Case {
            what: "one of them was deleted",
            consumer: of_rows(2),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                late(table, "q_0_2");
                delete(table, &["q_0_1"]);
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("surplus", 1)],
        },
        Case {
            what: "the late one was deleted",
            consumer: of_rows(2).when_a_member_fails(GroupRule::Exclude),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                late(table, "q_0_2");
                delete(table, &["q_0_2"]);
            },
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("stale", 1)],
        },
        Case {
            what: "the late one was left out for a reason of its own",
            consumer: of_rows(2).when_a_member_fails(GroupRule::Exclude),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_0_1"]);
                trained_on(store, train, "q");
                table.insert_row(NewRow::new(0, "q_0_2").unwrap().late().excluded("lost"), []).unwrap();
            },
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("lost", 1)],
        },
        Case {
            what: "somebody is missing",
            consumer: of_rows(2),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "p_0_0", "p_0_1"]);
                trained_on(store, train, "p");
                late(table, "q_0_2");
            },
            handed_out: &["q_0_0", "q_0_2"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "a trajectory that the group has not",
            consumer: of_trajectories(2, TrajectoryEnd::Rows(1)),
            act: both,
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("surplus", 1)],
        },
        Case {
            what: "a row beyond the end of its trajectory",
            consumer: of_trajectories(1, TrajectoryEnd::Rows(2)),
            act: |store, table, train| {
                all_finished(table, &["q_0_0", "q_1_0"]);
                trained_on(store, train, "q");
                late(table, "q_2_0");
            },
            handed_out: &["q_0_0", "q_1_0"],
            complete: true,
            reasons: &[("surplus", 1)],
        },
    ]);
}

#[test]
fn a_late_row_that_had_no_place_has_none_after_the_next_rewind_either() {
    let world = World::new();
    let store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", of_rows(2)).unwrap();
    all_finished(&table, &["q_0_0", "q_0_1"]);
    for _ in 0..2 {
        trained_on(&store, &train, "q");
        _ = table.insert_row(NewRow::new(0, "q_0_2").unwrap().late(), [("reward", 1.0.into())]);
        store.rewind(0, Rewind::TrainAgain).unwrap();
        assert_eq!(reasons(&store), BTreeMap::from([("surplus".to_owned(), 1)]));
    }
    assert_eq!(handed_out(&store, &train).0, ["q_0_0", "q_0_1"]);
}

/// A task leaves nobody out of the table: that it had closed a group without a row is known of the row alone.
#[test]
fn a_task_that_closed_a_group_without_a_row_does_not_get_it_after_a_rewind() {
    for (way, finished_late) in WAYS.iter().flat_map(|way| [(*way, false), (*way, true)]) {
        let world = World::new();
        let store = open(&world);
        let table = store.create_table("solver", solver_schema()).unwrap();
        let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["prompt"])).unwrap();
        let judge = Consumer::task(["solver"]).ready(["reward"]).group(GroupBy::Input, 3);
        let judge = judge.when_a_member_fails(GroupRule::Shrink { least: 1 });
        let judge = store.create_consumer("judge", judge).unwrap();
        all_finished(&table, &["q_0_0", "q_0_1"]);
        let row = table.insert(0, "q_0_2", []).unwrap();
        judge.close_group(&table, 0, "q").unwrap();
        if finished_late {
            table.write(row, [("reward", 1.0.into())]).unwrap();
        }
        assert!(train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver") > 0);
        if way == "from a checkpoint" {
            store.checkpoint().unwrap();
        }
        store.rewind(0, Rewind::TrainAgain).unwrap();
        let store = if way == "live" { store } else { next_process(&world, store) };
        let claim = store.consumer("judge").unwrap().claim(MicroBatch::up_to(9), "me", Wait::No).unwrap();
        let given = claim.as_ref().map(ids);
        assert_eq!(
            given.as_deref(),
            Some(["q_0_0", "q_0_1"].map(str::to_owned).as_slice()),
            "{way} {finished_late}"
        );
        check_counts(&store);
    }
}

/// The same without a rewind: what is gone for good is not waited for.
#[test]
fn a_group_waits_for_no_next_attempt_of_a_row_that_is_deleted() {
    for way in ["live", "from the log", "from a checkpoint"] {
        let world = World::new();
        let mut store = open(&world);
        let table = store.create_table("solver", solver_schema()).unwrap();
        let declared = of_rows(2).when_a_member_fails(GroupRule::NextAttempt);
        let train = store.create_consumer("train", declared).unwrap();
        finished(&table, 0, "q_0_0");
        lost(&table, "q_0_1");
        assert_eq!(handed_out(&store, &train), (vec![], false), "{way}");
        delete(&table, &["q_0_1"]);
        let again = NewRow::new(0, "q_0_1").unwrap().next_attempt();
        assert!(matches!(table.insert_row(again, []).unwrap_err().cause(), Cause::RowDeleted { .. }));
        drop((table, train));
        if way == "from a checkpoint" {
            store.checkpoint().unwrap();
        }
        if way != "live" {
            store = next_process(&world, store);
        }
        let train = store.consumer("train").unwrap();
        assert_eq!(handed_out(&store, &train), (vec!["q_0_0".to_owned()], true), "{way}");
    }
}
