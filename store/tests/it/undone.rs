//! A version of an object that a step named which was undone, and that a later step names with other bytes.

use forebay_store::*;

use crate::support::*;

fn step(store: &Store, train: &ConsumerHandle, bytes: &[u8]) {
    let open = store.begin_step(StepPlan::new().rows(train, 1)).unwrap();
    open.next(train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let version = store.policy("solver").unwrap().version + 1;
    let weights = store.put_object("solver", version, bytes).unwrap();
    open.commit([("solver", vec![weights])]).unwrap();
}

/// Recovery looks for the objects of every commit above the proof: the undone one has to lie below it by then.
#[test]
fn what_was_synced_after_an_undone_step_outlives_a_power_failure() {
    for seed in 0..20 {
        let world = World::on(SimulatedDisk::seeded(seed));
        let (store, table, train) = trained(&world, None);
        finished(&table, 0, "q_0_0");
        step(&store, &train, b"the weights of the step that is undone");
        store.rewind(0, Rewind::TrainAgain).unwrap();
        step(&store, &train, b"other weights");
        finished(&table, 1, "q_0_1");
        store.sync().unwrap();
        let content = scan_content(&store);
        world.disk.cut_power();
        let store = world.reopen(store);
        assert_eq!(store.recovery().records_lost, 0, "seed {seed}: {:?}", store.recovery());
        assert_eq!(scan_content(&store), content, "seed {seed}");
        let policy = store.policy("solver").unwrap();
        assert_eq!(store.object(&policy.objects[0]).unwrap(), b"other weights", "seed {seed}");
    }
}
