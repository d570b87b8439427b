//! Trainers that put weights and commit, beside syncs, and beside another who believes that the step is his.

use forebay_store::*;
use shuttle::thread;

use crate::explore::{Seen, explore};
use crate::support::*;

const MINE: &[u8] = b"of the one who has the step";
const STALE: &[u8] = b"of the one who has lost it.";

/// A step with a row that is accumulated.
fn begun(world: &World) -> (Store, Step) {
    let (store, table, train) = trained(world, None);
    finished(&table, 0, "q_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    store.sync().unwrap();
    (store, step)
}

fn weights_of(store: &Store) -> Vec<u8> {
    let policies = store.policies();
    store.object(&policies[0].objects[0]).unwrap()
}

// FX-B03
#[test]
fn a_step_that_was_acknowledged_at_synced_has_its_weights_after_the_power_has_failed() {
    explore(300, || {
        let world = World::new();
        let (store, step) = begun(&world);
        let syncs = thread::spawn({
            let store = store.clone();
            move || {
                let table = store.table("solver").unwrap();
                for i in 0..2 {
                    let text = "x".repeat(5000); // something for the other's sync to wait on
                    // Without power its calls fail.
                    let inserted =
                        table.insert(0, &format!("beside_0_{i}"), [("prompt", text.as_str().into())]);
                    if inserted.and_then(|_| store.sync()).is_err() {
                        return;
                    }
                }
            }
        });
        let weights = store.put_object("solver", 1, MINE).unwrap();
        step.commit_at(Durability::Synced, [("solver", vec![weights])]).unwrap();
        world.disk.cut_power();
        syncs.join().unwrap();
        std::mem::forget((step, store));
        world.disk.restart();
        let store = world.open();
        assert_eq!(store.policies()[0].version, 1);
        assert_eq!(weights_of(&store), MINE);
    });
}

// FX-29
#[test]
fn whoever_puts_beside_the_one_who_commits_a_policy_stands_on_the_bytes_that_its_step_named() {
    let refused = Seen::default();
    let seen = refused.clone();
    explore(300, move || {
        let world = World::new();
        let (store, step) = begun(&world);
        let stale = thread::spawn({
            let store = store.clone();
            move || drop(store.put_object("solver", 1, STALE))
        });
        let commit = || {
            let weights = store.put_object("solver", 1, MINE).unwrap();
            step.commit([("solver", vec![weights])])
        };
        if let Err(error) = commit() {
            assert!(matches!(error.cause(), Cause::PutByOther { .. }), "{error}");
            refused.note();
            stale.join().unwrap();
            commit().unwrap();
        } else {
            stale.join().unwrap();
        }
        assert_eq!(weights_of(&store), MINE);
    });
    assert!(seen.count() > 0, "no schedule had the other put in between");
}
