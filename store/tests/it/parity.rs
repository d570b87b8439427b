//! What others offer, or promise and do not keep, held against this store's interface.

use forebay_store::*;

use crate::support::*;

// FX-B01: create a table by column names and types, insert, retrieve columns, write columns, delete, and which columns a row has.
#[test]
fn the_operations_of_a_table_are_there() {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new().data("prompt", DataType::Utf8).data("reward", DataType::Float32);
    let table = store.create_table("solver", schema).unwrap();
    let rows = [0, 1].map(|i| table.insert(0, &format!("q_0_{i}"), [("prompt", "2 + 2".into())]).unwrap());
    table.write(rows[0], [("reward", 0.5.into())]).unwrap();
    let columns = ["sample_id", "prompt", "reward", "prompt_status", "reward_status"];
    assert_eq!(
        pick(&store, "solver", &columns),
        [["q_0_0", "2 + 2", "0.5", "true", "true"], ["q_0_1", "2 + 2", "null", "true", "false"]]
    );
    assert_eq!(table.delete(&Delete::rows([rows[0]])).unwrap().rows, 1);
    assert_eq!(pick(&store, "solver", &["sample_id"]), [["q_0_1"]]);
}

// FX-B08: there is no table that one is connected to; a handle names its table for good, and what is not there is an error.
#[test]
fn a_handle_goes_on_naming_its_table_whatever_is_opened_after_it() {
    let world = World::new();
    let store = world.open();
    let missing = store.table("solver").unwrap_err();
    assert!(matches!(missing.cause(), Cause::Unknown { what: "table", .. }), "{missing}");
    let solver = store.create_table("solver", solver_schema()).unwrap();
    let judge = store.create_table("judge", solver_schema()).unwrap();
    finished(&solver, 0, "q_0_0");
    finished(&judge, 0, "q_0_1");
    finished(&store.table("solver").unwrap(), 0, "q_0_2");
    assert_eq!(pick(&store, "solver", &["sample_id"]), [["q_0_0"], ["q_0_2"]]);
    assert_eq!(pick(&store, "judge", &["sample_id"]), [["q_0_1"]]);
}

// FX-B09, FX-B13: each consumer gets each row once and by itself, and what it has had it is not given again, however it asks.
#[test]
fn two_consumers_each_get_every_row_once_and_never_what_they_have_had() {
    let world = World::new();
    let (store, table) = solver(&world);
    let declared = || Consumer::task(["solver"]).ready(["reward"]);
    let consumers = ["reference", "score"].map(|name| store.create_consumer(name, declared()).unwrap());
    (0..6).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    for (consumer, at_once) in consumers.iter().zip([4, 1]) {
        let mut had = Vec::new();
        while let Some(claim) = consumer.claim(MicroBatch::up_to(at_once), "me", Wait::No).unwrap() {
            had.extend(ids(&claim));
            claim.finish(|_| Ok(())).unwrap();
        }
        had.sort();
        assert_eq!(had, (0..6).map(|i| format!("q_0_{i}")).collect::<Vec<_>>());
    }
    let store = world.reopen(store);
    for consumer in ["reference", "score"].map(|name| store.consumer(name).unwrap()) {
        for rule in [MicroBatch::of(1), MicroBatch::up_to(100)] {
            assert!(consumer.claim(rule, "me", Wait::No).unwrap().is_none(), "nothing is left");
        }
    }
}

// FX-B17: a checkpoint knows nothing of how the files that it was taken from are laid out.
#[test]
fn a_copy_goes_on_in_another_layout() {
    let world = World { segment_bytes: 900, ..World::new() };
    let (store, table, train) = trained(&world, None);
    (0..30).for_each(|i| _ = finished(&table, 0, &format!("a-long-input-id-{i}_0_0")));
    train_once(&store, &train, StepPlan::new().rows(&train, 10), "solver");
    store.checkpoint().unwrap();
    finished(&table, 1, "later_0_0");
    store.sync().unwrap();
    let reader = Store::open(ROOT, world.options().read_only(true)).unwrap();
    reader.backup("/copy").unwrap();
    let content = scan_content(&store);
    let other = || world.options().extent_bytes(1 << 18, 1 << 20).segment_bytes_max(1 << 22);
    let copy = Store::open("/copy", other()).unwrap();
    assert_eq!(scan_content(&copy), content);
    finished(&copy.table("solver").unwrap(), 1, "here_0_0");
    let train = copy.consumer("train").unwrap();
    assert_eq!(train_once(&copy, &train, StepPlan::new().rows(&train, 2), "solver"), 2);
    copy.checkpoint().unwrap();
    let content = scan_content(&copy);
    drop((copy, train));
    assert_eq!(scan_content(&Store::open("/copy", world.options()).unwrap()), content);
}
