//! Members of groups that are not complete, for trainers that do not wait for a group's mean.

use std::collections::{BTreeMap, BTreeSet};

use forebay_store::*;

use crate::support::{LEASE, World, finished, ids, trained};
use crate::waits::Polled;

fn next(step: &Step, train: &ConsumerHandle, rule: MicroBatch) -> Option<Claim> {
    step.next(train, rule, Wait::No).unwrap()
}

fn taken(step: &Step, train: &ConsumerHandle, rule: MicroBatch) -> Vec<String> {
    let claim = next(step, train, rule);
    let taken = claim.as_ref().map(ids).unwrap_or_default();
    claim.into_iter().for_each(|claim| claim.accumulated().unwrap());
    taken
}

// FX-37: without the wait for whole groups
#[test]
fn members_come_as_they_turn_ready_of_so_many_groups_as_there_is_room_for() {
    let (store, table, train) = trained(&World::new(), Some(3));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "b", "c"])).unwrap();
    ["b_0_1", "a_0_2", "c_0_0", "x_0_0"].iter().for_each(|id| _ = finished(&table, 0, id));
    assert!(next(&step, &train, MicroBatch::up_to(9)).is_none(), "no group is complete");
    assert!(next(&step, &train, MicroBatch::early(9, 0)).is_none(), "and there is room for none in part");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 1)), ["b_0_1"], "the group that was there first");
    assert!(next(&step, &train, MicroBatch::early(9, 1)).is_none(), "one is open");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["a_0_2"]);
    ["a_0_0", "c_0_1", "b_0_0"].iter().for_each(|id| _ = finished(&table, 0, id));
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["a_0_0", "b_0_0"]);
    finished(&table, 0, "b_0_2");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["b_0_2"], "the last of a group");
    assert_eq!(train.open_groups(), ["a", "c", "x"], "b is done");
    assert_eq!(taken(&step, &train, MicroBatch::early(1, 2)), ["c_0_0"], "no more than were asked for");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["c_0_1"]);
    ["c_0_2", "a_0_1"].iter().for_each(|id| _ = finished(&table, 0, id));
    assert!(!step.is_complete(&train));
    let last =
        [taken(&step, &train, MicroBatch::up_to(9)), taken(&step, &train, MicroBatch::up_to(9))].concat();
    assert_eq!(
        last.iter().collect::<BTreeSet<_>>().len(),
        2,
        "what is left of complete groups comes by any rule"
    );
    assert!(step.is_complete(&train));
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 9);
}

#[test]
fn a_group_that_is_complete_comes_whole_beside_members_of_others() {
    let (store, table, train) = trained(&World::new(), Some(2));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "b", "c"])).unwrap();
    ["a_0_0", "b_0_0", "b_0_1", "c_0_0"].iter().for_each(|id| _ = finished(&table, 0, id));
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 1)), ["a_0_0", "b_0_0", "b_0_1"]);
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["c_0_0"]);
}

#[test]
fn a_member_that_is_left_out_is_waited_for_no_more_and_one_that_is_held_stays() {
    let (store, table, train) = trained(&World::new(), Some(3));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "b"])).unwrap();
    let held = finished(&table, 0, "a_0_0");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["a_0_0"]);
    let refused = table.exclude(held, "bad").unwrap_err();
    assert!(matches!(refused.cause(), Cause::ClaimFenced { .. }), "its gradient is in a cache: {refused}");
    let failed = table.insert(0, "a_0_1", []).unwrap();
    table.exclude(failed, "failed").unwrap();
    assert_eq!(train.open_groups(), ["a"]);
    finished(&table, 0, "a_0_2");
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["a_0_2"]);
    assert!(train.open_groups().is_empty(), "nobody more will come");
    for id in ["b_0_0", "b_0_1", "b_0_2"] {
        let row = table.insert(0, id, []).unwrap();
        assert!(!step.is_complete(&train));
        table.exclude(row, "failed").unwrap();
    }
    assert!(step.is_complete(&train), "b has nobody at all");
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 2);
}

#[test]
fn rows_of_parts_come_back_like_all_others() {
    let world = World::new();
    let (store, table, train) = trained(&world, Some(2));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "b"])).unwrap();
    ["a_0_0", "b_0_0"].iter().for_each(|id| _ = finished(&table, 0, id));
    drop(next(&step, &train, MicroBatch::early(1, 1)).unwrap());
    let late = next(&step, &train, MicroBatch::early(1, 1)).unwrap();
    world.clock.advance(LEASE * 2);
    assert_eq!(
        taken(&step, &train, MicroBatch::early(1, 1)),
        ["a_0_0"],
        "a lease that has ended leaves room"
    );
    assert!(late.accumulated().is_err());
    step.drop_cache("solver").unwrap();
    assert_eq!(taken(&step, &train, MicroBatch::early(1, 1)), ["a_0_0"], "its gradient was lost");
    // A checkpoint and the next process know what was begun; what was accumulated comes back with it.
    store.checkpoint().unwrap();
    std::mem::forget(step);
    let store = world.reopen(store);
    let (train, table) = (store.consumer("train").unwrap(), store.table("solver").unwrap());
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "b"])).unwrap();
    assert_eq!(taken(&step, &train, MicroBatch::early(9, 2)), ["a_0_0", "b_0_0"]);
    ["a_0_1", "b_0_1"].iter().for_each(|id| _ = finished(&table, 0, id));
    assert_eq!(taken(&step, &train, MicroBatch::up_to(9)), ["a_0_1", "b_0_1"]);
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 4);
}

#[test]
fn who_waits_for_members_is_woken_by_one_and_who_waits_for_groups_is_not() {
    let (store, table, train) = trained(&World::new(), Some(2));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a"])).unwrap();
    let waiting = |rule| Polled::new(step.next_async(&train, rule).unwrap());
    let (mut whole, mut early) = (waiting(MicroBatch::up_to(9)), waiting(MicroBatch::early(9, 1)));
    assert!(whole.poll().is_none() && early.poll().is_none());
    finished(&table, 0, "a_0_1");
    assert_eq!((whole.rung(), early.rung()), (0, 1));
    let claim = early.poll().unwrap().unwrap().unwrap();
    assert_eq!(ids(&claim), ["a_0_1"]);
    let row = table.insert(0, "a_0_0", []).unwrap();
    table.exclude(row, "failed").unwrap();
    assert!(whole.poll().unwrap().unwrap().is_none(), "all that is left has been handed out");
}

#[test]
fn consumers_whose_rule_could_take_members_back_hand_out_whole_groups_only() {
    let store = World::new().open();
    let by = |table: &str| Consumer::trainer([table]).ready(["reward"]);
    let groups = |table: &str| by(table).group(GroupBy::Input, 4);
    let trajectories = by("trajectories").trajectories(GroupBy::Input, 4, TrajectoryEnd::Closed);
    let cases = [
        ("rows", by("rows"), "declared with `group`"),
        (
            "exclude",
            groups("exclude").when_a_member_fails(GroupRule::Exclude),
            "GroupRule::Shrink { least: 1 }",
        ),
        ("least", groups("least").when_a_member_fails(GroupRule::Shrink { least: 2 }), "Shrink { least: 1 }"),
        // Of one member as declared; a group may be said to have five, of which two are too few.
        (
            "single",
            by("single").group(GroupBy::Input, 1).when_a_member_fails(GroupRule::Shrink { least: 3 }),
            "Shrink { least: 1 }",
        ),
        ("trajectories", trajectories, "trajectories"),
    ];
    for (name, declared, expected) in cases {
        store.create_table(name, Schema::new().data("reward", DataType::Float32)).unwrap();
        let train = store.create_consumer(&format!("train-{name}"), declared).unwrap();
        let plan = StepPlan::new();
        let plan = if name == "rows" { plan.rows(&train, 1) } else { plan.groups(&train, ["a"]) };
        let step = store.begin_step(plan).unwrap();
        // At once, though there is no row yet: nobody waits for what never comes.
        let refused = step.next(&train, MicroBatch::early(9, 1), Wait::No).unwrap_err();
        assert_eq!(refused.kind(), Kind::Input, "{name}");
        assert!(refused.to_string().contains(expected), "{name}: {refused}");
        step.abandon().unwrap();
    }
}

/// A number below `below` from a splitmix64 state.
pub(crate) fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % below
}

/// Whatever comes in whatever order, and fails: each row that is not left out is handed out once, no more groups are open in part than
/// there is room for, and the step is complete when the last has come.
#[test]
fn random_arrivals_are_handed_out_once_with_no_more_groups_open_than_there_is_room_for() {
    for seed in 0..60 {
        let mut state = seed;
        let (store, table, train) = trained(&World::new(), Some(4));
        let inputs: Vec<String> = (0..5).map(|input| format!("q{input}")).collect();
        let step = store.begin_step(StepPlan::new().groups(&train, inputs.clone())).unwrap();
        let room = 1 + draw(&mut state, 3) as usize;
        let mut to_come: Vec<String> =
            inputs.iter().flat_map(|input| (0..4).map(move |t| format!("{input}_0_{t}"))).collect();
        let (mut handed, mut left_out) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
        let (mut held, mut is_returned): (Vec<Claim>, bool) = (Vec::new(), false);
        while !to_come.is_empty() || !step.is_complete(&train) {
            match draw(&mut state, 5) {
                0 | 1 if !to_come.is_empty() => {
                    let id = to_come.swap_remove(draw(&mut state, to_come.len() as u64) as usize);
                    if draw(&mut state, 6) == 0 {
                        let row = table.insert(0, id.as_str(), []).unwrap();
                        table.exclude(row, "failed").unwrap();
                        left_out.insert(id);
                    } else {
                        finished(&table, 0, &id);
                    }
                }
                2 if !held.is_empty() => {
                    // What comes back may open a group again whose room has gone to another.
                    is_returned = true;
                    drop(held.swap_remove(draw(&mut state, held.len() as u64) as usize));
                }
                3 => held.drain(..).for_each(|claim| {
                    ids(&claim).into_iter().for_each(|id| *handed.entry(id).or_default() += 1);
                    claim.accumulated().unwrap();
                }),
                _ => held.extend(next(
                    &step,
                    &train,
                    MicroBatch::early(1 + draw(&mut state, 4) as usize, room),
                )),
            }
            let begun: BTreeSet<String> = handed
                .keys()
                .cloned()
                .chain(held.iter().flat_map(ids))
                .map(|id| id[..2].to_owned())
                .collect();
            let open: BTreeSet<String> = train.open_groups().into_iter().collect();
            assert!(
                is_returned || begun.intersection(&open).count() <= room,
                "seed {seed}: {begun:?} of {open:?}"
            );
            if to_come.is_empty() && step.is_complete(&train) {
                held.drain(..).for_each(|claim| {
                    ids(&claim).into_iter().for_each(|id| *handed.entry(id).or_default() += 1);
                    claim.accumulated().unwrap();
                });
            }
        }
        assert!(handed.values().all(|times| *times == 1), "seed {seed}: {handed:?}");
        assert_eq!(handed.len() + left_out.len(), 20, "seed {seed}");
        if !handed.is_empty() {
            assert_eq!(step.commit([("solver", vec![])]).unwrap().rows as usize, handed.len());
        }
    }
}
