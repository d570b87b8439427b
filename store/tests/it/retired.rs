//! Objects that a commit makes needless: they go once that is proven, and not while somebody stands on them.

use forebay_store::*;

use crate::support::*;

fn open(world: &World) -> (Store, Table, ConsumerHandle) {
    let store = Store::open(ROOT, world.options().object_versions_kept(1)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    (store, table, train)
}

/// One step, whose commit names a version of the key `weights`.
fn step(store: &Store, table: &Table, train: &ConsumerHandle, version: u64) -> ObjectRef {
    let policy = store.policy("solver").unwrap().version;
    finished(table, policy, &format!("q{version}_0_0"));
    let step = store.begin_step(StepPlan::new().rows(train, 1)).unwrap();
    step.next(train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let object = store.put_object("weights", version, &version.to_le_bytes()).unwrap();
    step.commit([("solver", vec![object.clone()])]).unwrap();
    object
}

fn prove(store: &Store) {
    store.sync().unwrap();
    store.run_once().unwrap();
}

#[test]
fn what_no_rewind_can_need_goes_once_that_is_proven() {
    let world = World::new();
    let (store, table, train) = open(&world);
    let named: Vec<ObjectRef> = (1..=3).map(|version| step(&store, &table, &train, version)).collect();
    prove(&store);
    let there: Vec<bool> = named.iter().map(|object| store.object(object).is_ok()).collect();
    assert_eq!(there, [false, false, true]);
    let names = world.disk.list(std::path::Path::new("/store/objects/weights")).unwrap();
    assert_eq!(names.len(), 1, "and nothing is left of it: {names:?}");
}

#[test]
fn a_version_that_another_policy_is_declared_with_meanwhile_stays() {
    let world = World::new();
    let (store, table, train) = open(&world);
    let first = step(&store, &table, &train, 1);
    step(&store, &table, &train, 2);
    assert!(store.object(&first).is_ok(), "what makes it needless is not proven yet");
    let frozen = Policy::volatile().version(1).objects(std::slice::from_ref(&first));
    store.declare_policy("frozen", frozen).unwrap();
    prove(&store);
    assert_eq!(store.object(&first).unwrap(), 1_u64.to_le_bytes(), "the policy stands on it");
    step(&store, &table, &train, 3);
    prove(&store);
    assert!(store.object(&first).is_ok());
    let store = world.reopen(store);
    assert!(store.object(&first).is_ok());
}

/// The commit that said so was undone: what is written for the next one is not older than anything that stands.
#[test]
fn what_a_commit_made_needless_is_not_taken_from_those_who_go_on_after_its_undoing() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().object_versions_kept(2)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    step(&store, &table, &train, 1);
    step(&store, &table, &train, 9);
    store.rewind(1, Rewind::TrainAgain).unwrap();
    let other = store.put_object("weights", 5, b"another second step").unwrap();
    prove(&store);
    assert_eq!(store.object(&other).unwrap(), b"another second step");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![other.clone()])]).unwrap();
    prove(&store);
    assert!(store.object(&other).is_ok());
}

/// Threads declare policies on versions that threads of the trainer make needless.
#[test]
fn whoever_is_declared_on_a_version_has_it_whenever_that_is() {
    let world = World::new();
    let (store, table, train) = open(&world);
    let (tell, told) = std::sync::mpsc::channel();
    let declared: Vec<ObjectRef> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let tell = tell;
            for version in 1..40 {
                tell.send(step(&store, &table, &train, version)).unwrap();
                prove(&store);
            }
        });
        let mut declared = Vec::new();
        for (at, object) in told.into_iter().enumerate() {
            let policy = Policy::volatile().version(object.version).objects(std::slice::from_ref(&object));
            if store.declare_policy(&format!("frozen-{at}"), policy).is_ok() {
                declared.push(object); // otherwise it was gone before
            }
        }
        declared
    });
    assert!(!declared.is_empty());
    for object in declared {
        assert_eq!(store.object(&object).unwrap(), object.version.to_le_bytes());
    }
}
