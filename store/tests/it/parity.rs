//! What others offer, or promise and do not keep, held against this store's interface.

use forebay_store::*;

use crate::support::*;

/// A table with a row, on a store of its own.
fn with_a_row() -> (Store, Table, Row) {
    let store = World::new().open();
    let columns = [
        ("prompt", DataType::Utf8),
        ("tokens", DataType::list(Element::Int32)),
        ("reward", DataType::Float32),
    ];
    let schema = columns.into_iter().fold(Schema::new(), |schema, (name, of)| schema.data(name, of));
    let table = store.create_table("solver", schema).unwrap();
    let row = table.insert(0, "q_0_0", [("prompt", "2 + 2".into())]).unwrap();
    (store, table, row)
}

type Operation = fn(&Store, &Table, Row);

/// The operations that others offer, and what each is here.
const OPERATIONS: [(&str, Operation); 8] = [
    ("create table (name, column names, column types)", |store, _, _| {
        let schema = Schema::new().data("score", DataType::Float32).data("why", DataType::Utf8);
        let table = store.create_table("judge", schema).unwrap();
        let columns = table.schema().data_columns().iter();
        let columns: Vec<_> = columns.map(|column| (&*column.name, column.data_type.clone())).collect();
        assert_eq!(columns, [("score", DataType::Float32), ("why", DataType::Utf8)]);
    }),
    ("insert_samples", |store, table, _| {
        let mut batch = store.batch();
        batch.insert_rollouts(table, NewRow::new(0, "r_0_0").unwrap(), 4, [("prompt", "?".into())]).unwrap();
        assert_eq!(batch.commit().unwrap().len(), 4);
    }),
    ("retrieve_sample_columns", |store, _, _| {
        assert_eq!(pick(store, "solver", &["sample_id", "prompt"]), [["q_0_0", "2 + 2"]]);
    }),
    ("write_sample_columns", |store, table, row| {
        table.write(row, [("tokens", vec![4_i32].into()), ("reward", 0.5.into())]).unwrap();
        assert_eq!(pick(store, "solver", &["reward"]), [["0.5"]]);
    }),
    ("delete_samples", |store, table, row| {
        assert_eq!(table.delete(&Delete::rows([row])).unwrap().rows, 1);
        assert!(pick(store, "solver", &["sample_id"]).is_empty());
    }),
    ("column info: names and types", |_, table, _| {
        let names: Vec<&str> = table.schema().data_columns().iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["prompt", "tokens", "reward"]);
    }),
    ("column info: which are by value", |_, table, _| {
        let columns = table.schema().data_columns().iter();
        let by_value = columns.map(|column| column.data_type.storage_class() == StorageClass::Inline);
        assert_eq!(by_value.collect::<Vec<_>>(), [false, false, true]);
    }),
    ("which columns a row has", |store, table, row| {
        let status = ["prompt_status", "tokens_status", "reward_status"];
        assert_eq!(pick(store, "solver", &status), [["true", "false", "false"]]);
        let info = table.show(row).unwrap();
        assert!(info.status("prompt").unwrap() && !info.status("reward").unwrap());
    }),
];

// FX-B01
#[test]
fn the_operations_of_others_are_there() {
    for (name, operation) in OPERATIONS {
        eprintln!("{name}"); // shown when it fails
        let (store, table, row) = with_a_row();
        operation(&store, &table, row);
    }
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
