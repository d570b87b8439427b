//! What was said of the groups of versions that are over, for as long as a rewind may bring these back.

use forebay_store::*;

use crate::support::*;

const VERSIONS: u64 = 24;

/// Steps over versions whose every group has two members, where eight are declared.
fn trained(kept: usize) -> (World, Store) {
    let world = World::new();
    let store = Store::open(ROOT, world.options().object_versions_kept(kept)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 8);
    let train = store.create_consumer("train", declared).unwrap();
    for version in 0..VERSIONS {
        let key = format!("g{version}");
        let mut batch = store.batch();
        batch.expect_group(&train, &table, version, &key, 2).unwrap();
        batch.commit().unwrap();
        (0..2).for_each(|member| _ = finished(&table, version, &format!("{key}_0_{member}")));
        let rows = train_once(&store, &train, StepPlan::new().groups(&train, [key]), "solver");
        assert_eq!(rows, 2, "version {version}");
    }
    (world, store)
}

fn train_first_again(store: &Store) {
    assert_eq!(store.rewind(0, Rewind::TrainAgain).unwrap().steps_undone, VERSIONS);
    let train = store.consumer("train").unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, ["g0"])).unwrap();
    let claim = step.next(&train, MicroBatch::up_to(8), Wait::No).unwrap().expect("the group is complete");
    assert_eq!(ids(&claim), ["g0_0_0", "g0_0_1"]);
}

#[test]
fn a_group_has_the_size_that_was_said_however_far_a_rewind_goes_back() {
    train_first_again(&trained(64).1);
}

#[test]
fn so_it_has_when_the_store_was_opened_from_a_checkpoint_meanwhile() {
    let (world, store) = trained(64);
    store.checkpoint().unwrap();
    std::mem::forget(store);
    world.disk.restart();
    train_first_again(&Store::open(ROOT, world.options().object_versions_kept(64)).unwrap());
}
