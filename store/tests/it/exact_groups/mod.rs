//! Groups that vary: expected, closed, counted by trajectory, with a rule for members that fail.

mod cases;
mod declared;
mod follow;
mod model;
mod trajectories;

use std::collections::BTreeMap;

use forebay_store::*;

use crate::support::*;

fn trained(consumer: Consumer) -> (World, Store, Table, ConsumerHandle) {
    let world = World::new();
    let (store, table) = solver(&world);
    let train = store.create_consumer("train", consumer.ready(["reward"])).unwrap();
    (world, store, table, train)
}

fn trainer(size: u32) -> Consumer {
    Consumer::trainer(["solver"]).group(GroupBy::Input, size)
}

fn by_trajectory(size: u32, end: TrajectoryEnd) -> Consumer {
    Consumer::trainer(["solver"]).trajectories(GroupBy::Input, size, end)
}

/// What a step over group `q` hands out now, and whether that is all.
fn handed_out(store: &Store, train: &ConsumerHandle) -> (Vec<String>, bool) {
    let step = store.begin_step(StepPlan::new().groups(train, ["q"])).unwrap();
    let claim = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap();
    let found = claim.as_ref().map_or(Vec::new(), ids);
    (found, step.is_complete(train))
}

fn reasons(store: &Store) -> BTreeMap<String, u64> {
    store.table("solver").unwrap().counts().excluded
}

fn out(table: &Table, id: &str, reason: &str) {
    table.insert_row(NewRow::new(0, id).unwrap().excluded(reason), []).unwrap();
}

type Act = fn(&Store, &Table, &ConsumerHandle);

struct Case {
    what: &'static str,
    consumer: Consumer,
    act: Act,
    handed_out: &'static [&'static str],
    complete: bool,
    reasons: &'static [(&'static str, u64)],
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let (world, store, table, train) = trained(case.consumer);
        (case.act)(&store, &table, &train);
        let expected: Vec<String> = case.handed_out.iter().map(|id| (*id).to_owned()).collect();
        let reasons_expected: BTreeMap<String, u64> =
            case.reasons.iter().map(|(reason, rows)| ((*reason).to_owned(), *rows)).collect();
        assert_eq!(handed_out(&store, &train), (expected.clone(), case.complete), "{}", case.what);
        assert_eq!(reasons(&store), reasons_expected, "{}", case.what);
        check_counts(&store);
        drop((table, train));
        let store = world.reopen(store);
        let train = store.consumer("train").unwrap();
        assert_eq!(handed_out(&store, &train), (expected, case.complete), "{}, reopened", case.what);
        assert_eq!(reasons(&store), reasons_expected, "{}, reopened", case.what);
    }
}
