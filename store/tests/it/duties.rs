//! Background duties when one of them cannot be done.

use std::path::Path;
use std::time::Duration;

use forebay_store::*;

use crate::support::*;

fn pages(world: &World) -> usize {
    let disk: &dyn Disk = &world.disk;
    disk.list(&Path::new(ROOT).join("pages")).unwrap_or_default().len()
}

#[test]
fn a_duty_that_fails_keeps_no_other_from_being_done_and_is_tried_again() {
    let world = World::new();
    let options = world.options().checkpoint_records(1).sync_interval(Duration::from_secs(1));
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    store.run_once().unwrap();
    let there = pages(&world);
    for i in 0..5 {
        finished(&table, 0, &format!("q{i}_0_0"));
        world.clock.advance(Duration::from_secs(2));
        world.disk.set_capacity(world.disk.occupied());
        let failed = store.run_once().unwrap_err();
        assert_eq!(failed.kind(), Kind::Capacity, "{failed}");
        assert_eq!(pages(&world), there, "what a checkpoint that failed has written goes");
        world.disk.set_capacity(u64::MAX);
        let stats = store.stats();
        assert_eq!((stats.duties_failed, store.closed()), (i + 1, None));
        assert_eq!(stats.durable_commits, stats.commits, "the sync was due");
    }
    finished(&table, 0, "q9_0_0");
    store.run_once().unwrap();
    let world_again = world.reopen(store);
    assert_eq!(world_again.table("solver").unwrap().counts().written, 6);
}
