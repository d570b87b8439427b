//! The space of values: what is given back, who holds it, and what happens when there is none.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use forebay_store::*;

use crate::support::*;

/// A cell grows by a hundred fragments and is closed: its fragments are dead.
fn grow_and_close(table: &Table, id: &str) -> Result<Row> {
    let row = table.insert(0, id, [])?;
    for i in 0..100 {
        table.append(row, "response", vec![i; 25].into())?;
    }
    table.finalize(row, "response")?;
    Ok(row)
}

fn bytes_of(table: &Table, row: Row) -> Vec<u8> {
    match table.cell(row, "response").unwrap() {
        Cell::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn expected() -> Vec<u8> {
    (0..100_i32).flat_map(|i| [i; 25]).flat_map(i32::to_le_bytes).collect()
}

// FX-B10
#[test]
fn the_space_of_dead_values_is_used_again() {
    let world = World::new();
    let (store, table) = solver(&world);
    let mut most = 0;
    for i in 0..30 {
        grow_and_close(&table, &format!("q{i}_0_0")).unwrap();
        store.sync().unwrap();
        store.run_once().unwrap();
        let stats = store.stats();
        let live: u64 = store.extents().iter().map(|extent| extent.live_bytes).sum();
        most = most.max(stats.extent_bytes + stats.free_extent_bytes - live);
    }
    assert!(store.stats().extents_recycled > 5, "{:?}", store.stats());
    assert!(most < 300_000, "{most} bytes are taken beside live values; two extents of 65,536 are open");
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    let row = table.find(0, &"q7_0_0".parse().unwrap()).unwrap();
    assert_eq!(bytes_of(&table, row), expected());
}

#[test]
fn a_snapshot_holds_its_space_under_its_name_until_it_is_let_go() {
    let world = World::new();
    let options = world.options().snapshot_age_max(Duration::from_secs(60));
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let row = table.insert(0, "q_0_0", []).unwrap();
    for i in 0..100 {
        table.append(row, "response", vec![i; 150].into()).unwrap();
    }
    let snapshot = store.snapshot_for("export");
    table.finalize(row, "response").unwrap();
    store.run_once().unwrap();
    let recycled = || {
        store.run_once().unwrap();
        let stats = store.stats();
        (stats.free_extent_bytes + stats.extents_recycled) > 0
    };
    assert!(!recycled());
    let pin = store.pins().remove(0);
    assert_eq!((pin.owner.as_str(), pin.since, pin.overdue), ("export", Some(world.clock.now()), false));
    assert!(pin.bytes > 10_000, "{pin:?}");
    world.clock.advance(Duration::from_secs(61));
    assert!(store.pins()[0].overdue);
    drop(snapshot);
    store.sync().unwrap();
    table.insert(0, "a-record-that-says-so_0_0", []).unwrap();
    store.sync().unwrap();
    assert!(recycled());
}

/// A table whose prompt a snapshot has seen and that is gone since; with the store, whose snapshots may be a minute old.
fn seen_and_gone(world: &World) -> (Store, Snapshot) {
    let store = Store::open(ROOT, world.options().snapshot_age_max(Duration::from_secs(60))).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let text = |i: usize| format!("{i}").repeat(20_000);
    let row = table.insert(0, "q_0_0", [("prompt", text(7).into())]).unwrap();
    let snapshot = store.snapshot_for("export");
    table.delete(&Delete::rows([row])).unwrap();
    for i in 0..10 {
        table.insert(0, &format!("later_0_{i}"), [("prompt", text(i).into())]).unwrap();
        store.sync().unwrap();
    }
    (store, snapshot)
}

fn prompts(snapshot: &Snapshot) -> Result<Vec<RecordBatch>> {
    let table = snapshot.table("solver")?;
    let prompt = table.arrow_schema().index_of("prompt").unwrap();
    table.scan(Some(&[prompt]), ScanOrder::Arrival, 100)?.collect()
}

#[test]
fn a_snapshot_that_is_too_old_gives_no_values_any_more_and_holds_back_no_space() {
    let world = World::new();
    let (store, snapshot) = seen_and_gone(&world);
    let table = snapshot.table("solver").unwrap().clone();
    let prompt = table.arrow_schema().index_of("prompt").unwrap();
    let before = prompts(&snapshot).unwrap();
    let shown = show_batch(&before[0]);
    let mut begun = table.scan(Some(&[prompt]), ScanOrder::Arrival, 1).unwrap();
    let held_back = |store: &Store| {
        let pin = store.pins().into_iter().find(|pin| pin.owner == "export").unwrap();
        (pin.bytes > 10_000, pin.overdue)
    };
    store.run_once().unwrap();
    world.clock.advance(Duration::from_secs(60));
    store.run_once().unwrap();
    assert!(prompts(&snapshot).is_ok() && held_back(&store) == (true, false), "it is just old enough");

    world.clock.advance(Duration::from_secs(1));
    let reads = [
        ("a scan", prompts(&snapshot).map(drop)),
        ("a scan that had begun", begun.next().unwrap().map(drop)),
        ("a look at rows", table.read(&[0], &[ScanColumn::Value(prompt)]).map(drop)),
    ];
    for (what, read) in reads {
        let Err(error) = read else { panic!("{what} was let in") };
        assert_eq!(error.kind(), Kind::State, "{what}: {error}");
        assert!(error.to_string().contains(r#"snapshot "export" is 61 s old"#), "{what}: {error}");
    }
    assert_eq!(table.row_count(), 1, "what it had is known still");
    store.run_once().unwrap();
    assert_eq!(held_back(&store), (false, true));
    assert_eq!(show_batch(&before[0]), shown, "who has arrays keeps them");
    assert!(store.pins().iter().any(|pin| pin.owner == "values in use" && pin.bytes > 10_000));
    assert!(prompts(&store.snapshot()).is_ok(), "another one reads on");

    drop(before);
    let recycled = store.stats().extents_recycled + store.stats().free_extent_bytes;
    store.run_once().unwrap();
    assert!(
        store.stats().extents_recycled + store.stats().free_extent_bytes > recycled,
        "{:?}",
        store.pins()
    );
    drop((snapshot, table, begun));
    assert!(store.pins().iter().all(|pin| pin.owner != "export"));
}

#[test]
fn a_store_without_such_a_limit_lets_snapshots_be_as_old_as_they_are() {
    let world = World::new();
    let (store, table) = solver(&world);
    table.insert(0, "q_0_0", [("prompt", "a text that lies in an extent".into())]).unwrap();
    let snapshot = store.snapshot();
    world.clock.advance(Duration::from_secs(1 << 30));
    store.run_once().unwrap();
    assert!(prompts(&snapshot).is_ok() && !store.pins()[0].overdue);
}

#[test]
fn equal_values_of_a_shared_column_lie_in_one_place() {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new().data_shared("prompt", DataType::Utf8).data("reward", DataType::Float32);
    let table = store.create_table("solver", schema).unwrap();
    let prompt = |i: usize| format!("prompt number {} of the run", i % 3).repeat(5);
    let insert = |from: usize| {
        let mut batch = store.batch();
        for i in from..from + 8 {
            let row = NewRow::new(0, &format!("q{i}_0_0")).unwrap();
            batch.insert(&table, row, [("prompt", prompt(i).into())]).unwrap();
        }
        batch.commit().unwrap();
    };
    insert(0);
    insert(8);
    let live =
        |store: &Store| store.extents().iter().map(|extent| (extent.live_values, extent.live_bytes)).max();
    let three = (3, 3 * prompt(0).len() as u64);
    assert_eq!(live(&store), Some(three));
    for _ in 0..2 {
        let found = pick(&store, "solver", &["prompt"]);
        assert_eq!(found.len(), 16);
    }
    let store = world.reopen(store);
    assert_eq!(live(&store), Some(three));
    let table = store.table("solver").unwrap();
    table.insert(0, "q99_0_0", [("prompt", prompt(1).into())]).unwrap();
    assert_eq!(live(&store), Some(three), "found by the next process too");
    assert!(pick(&store, "solver", &["prompt"]).iter().any(|row| row[0] == prompt(2)));
}

// FX-B18
#[test]
fn at_the_budget_a_writer_is_told_the_largest_pin_and_goes_on_when_it_is_gone() {
    let world = World::new();
    let options = world.options().disk_bytes_max(300_000).capacity_wait(Duration::from_secs(5));
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let row = table.insert(0, "q_0_0", []).unwrap();
    (0..100).for_each(|i| table.append(row, "response", vec![i; 150].into()).unwrap());
    let snapshot = store.snapshot_for("slow reader");
    table.finalize(row, "response").unwrap();
    let text = "x".repeat(5_000);
    let mut refused = None;
    let mut written = 0;
    for i in 0..100 {
        let began = world.clock.now();
        match table.insert(1, &format!("r{i}_0_0"), [("prompt", text.as_str().into())]) {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!(world.clock.now().since(began), Duration::from_secs(5), "it waited for room");
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.unwrap();
    assert_eq!(error.kind(), Kind::Capacity);
    assert!(error.to_string().contains("slow reader"), "{error}");
    drop(snapshot);
    table.insert(1, "later_0_0", [("prompt", text.as_str().into())]).unwrap();
    assert_eq!(pick(&store, "solver", &["prompt"]).iter().filter(|row| row[0] == text).count(), written + 1);
}

#[test]
fn a_batch_on_its_way_out_has_the_bytes_that_it_uses_and_no_more() {
    let (store, table) = solver(&World::new());
    for i in 0..200 {
        let text = format!("prompt {i} ").repeat(20);
        table.insert(0, &format!("q{i}_0_0"), [("prompt", text.into())]).unwrap();
    }
    let snapshot = store.snapshot();
    let scanned = snapshot.table("solver").unwrap();
    let column = scanned.arrow_schema().index_of("prompt").unwrap();
    let batch = scanned.scan(Some(&[column]), ScanOrder::Arrival, 1000).unwrap().next().unwrap().unwrap();
    let few = batch.slice(0, 3);
    let small = compact(&few).unwrap();
    let texts = |batch: &RecordBatch| {
        batch.column(0).as_string_view().iter().map(|text| text.unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&few), texts(&small));
    let used: usize = texts(&few).iter().map(String::len).sum();
    let bytes = |batch: &RecordBatch| {
        batch.column(0).as_string_view().data_buffers().iter().map(arrow_buffer::Buffer::len).sum::<usize>()
    };
    assert!(bytes(&few) > 20 * used, "a window of the extent");
    assert_eq!(bytes(&small), used);
    assert!(small.column(0).get_array_memory_size() < few.column(0).get_array_memory_size() / 10);
}

#[test]
fn of_a_batch_that_is_copied_at_once_long_binary_values_stay_where_they_lie_and_nothing_else_goes_along() {
    const LONG: usize = 64 << 10;
    let scratch = tempfile::tempdir().unwrap();
    let store = Store::open(scratch.path().join("store"), Options::default()).unwrap();
    let schema = Schema::new().data("image", DataType::Binary).data("name", DataType::Utf8);
    let table = store.create_table("images", schema).unwrap();
    let cases: [(&[Option<usize>], bool); 5] = [
        (&[Some(LONG), Some(2 * LONG + 1), Some(LONG)], true),
        (&[Some(LONG), None, Some(12), Some(0), Some(LONG)], true), // what lies in its view needs no buffer
        (&[Some(LONG), Some(LONG - 1)], false),
        (&[Some(5), None], true),
        (&[], true),
    ];
    for (version, (lengths, is_left)) in cases.into_iter().enumerate() {
        for (at, length) in lengths.iter().enumerate() {
            let bytes: Option<Vec<u8>> =
                length.map(|length| (0..length).map(|byte| (byte + at) as u8).collect());
            let image = bytes.as_deref().map_or(Value::Null, Value::from);
            let cells = [("image", image), ("name", "n".repeat(100).into())];
            table.insert(version as u64, &format!("q{at}_0_0"), cells).unwrap();
        }
        let snapshot = store.snapshot();
        let scanned = snapshot.table("images").unwrap();
        let columns = ["image", "name"].map(|name| scanned.arrow_schema().index_of(name).unwrap());
        let rows = scanned.scan(Some(&columns), ScanOrder::Arrival, 1000).unwrap();
        let rows = rows.collect::<Result<Vec<_>>>().unwrap();
        let rows = arrow_select::concat::concat_batches(&rows[0].schema(), &rows).unwrap();
        let batch = rows.slice(rows.num_rows() - lengths.len(), lengths.len());
        let left = compact_to_copy(&batch).unwrap();
        assert_eq!(left, batch, "{lengths:?}");
        let (of_batch, of_left) = (batch.column(0).as_binary_view(), left.column(0).as_binary_view());
        let used: usize = lengths.iter().flatten().filter(|length| **length > 12).sum();
        assert_eq!(
            of_left.data_buffers().iter().map(arrow_buffer::Buffer::len).sum::<usize>(),
            used,
            "{lengths:?}"
        );
        let same = |at: usize| of_left.value(at).as_ptr() == of_batch.value(at).as_ptr();
        let long = || (0..lengths.len()).filter(|at| lengths[*at].is_some_and(|length| length > 12));
        assert!(long().all(|at| same(at) == is_left), "{lengths:?}");
    }
}

// FX-B10
#[test]
fn readers_see_every_byte_while_space_is_used_again_around_them() {
    const ROWS: usize = 300;
    let scratch = tempfile::tempdir().unwrap();
    let options = Options::default().extent_bytes(4096, 1 << 17).sync_interval(Duration::MAX);
    let store = Store::open(scratch.path().join("store"), options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let done = AtomicBool::new(false);
    let (store, table, done) = (&store, &table, &done);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn(move || {
                    for i in 0..ROWS {
                        grow_and_close(table, &format!("w{writer}-{i}_0_0")).unwrap();
                        // By the writers in turn, so that a slow disk slows them all and no space goes unused.
                        if i % 10 == writer {
                            store.sync().unwrap();
                            store.run_once().unwrap();
                        }
                    }
                })
            })
            .collect();
        for reader in 0..2 {
            scope.spawn(move || {
                let (whole, mut held, mut turn) = (expected(), Vec::new(), reader);
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let id = format!("w{}-{}_0_0", turn % 3, turn % ROWS);
                    let Some(row) = table.find(0, &id.parse().unwrap()) else { continue };
                    match table.cell(row, "response").unwrap() {
                        Cell::Partial(bytes) => assert_eq!(bytes, whole[..bytes.len()]),
                        Cell::Bytes(bytes) => held.push(bytes),
                        _ => {}
                    }
                    if held.len() > 20 {
                        held.drain(..).for_each(|bytes| assert_eq!(*bytes, *whole));
                    }
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().extents_recycled > 50, "{:?}", store.stats());
    let whole = expected();
    for id in ["w0-0_0_0", "w1-150_0_0", "w2-299_0_0"] {
        let row = table.find(0, &id.parse().unwrap()).unwrap();
        assert_eq!(bytes_of(table, row), whole);
    }
}

/// A cell that is larger than two large pages, grown in `pieces` fragments.
fn grow_large(table: &Table, id: &str, pieces: i32) -> Vec<u8> {
    let row = table.insert(0, id, []).unwrap();
    for piece in 0..pieces {
        table.append(row, "response", vec![piece; 16_000].into()).unwrap();
    }
    table.finalize(row, "response").unwrap();
    (0..pieces).flat_map(|piece| [piece; 16_000]).flat_map(i32::to_le_bytes).collect()
}

// FX-B10. On the machine's own disk, where large extents are filled through their mapping if its kernel has large pages.
#[test]
fn large_extents_hold_what_was_written_whichever_way_it_went_and_whatever_they_held_before() {
    for path in [ValuePath::Chosen, ValuePath::Mapped, ValuePath::Gathered] {
        let scratch = tempfile::tempdir().unwrap();
        let options = || Options::default().extent_bytes(4 << 20, 32 << 20).value_path(path);
        let store = Store::open(scratch.path().join("store"), options()).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let mut written = Vec::new();
        for i in 0..8 {
            let id = format!("q{i}_0_0");
            written.push((id.clone(), grow_large(&table, &id, 70 + i)));
            store.sync().unwrap();
            store.run_once().unwrap();
        }
        assert!(store.stats().extents_recycled > 3, "{path:?}: {:?}", store.stats());
        let check = |table: &Table| {
            for (id, whole) in &written {
                let row = table.find(0, &id.parse().unwrap()).unwrap();
                assert!(bytes_of(table, row) == *whole, "{path:?}: {id}");
            }
        };
        check(&table);
        drop((table, store));
        let found =
            verify(scratch.path().join("store"), &options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(found.is_sound(), "{path:?}: {found:?}");
        let store = Store::open(scratch.path().join("store"), options()).unwrap();
        check(&store.table("solver").unwrap());
    }
}

/// Small values and large ones by turns, of lengths that end anywhere.
const LENGTHS: [usize; 8] = [1, 300_001, 13, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 1_500_003, 77];

// FX-B10. What is large goes to the kernel without being gathered; what is beside it stays what it was.
#[test]
fn large_and_small_values_side_by_side_are_whole_at_every_level_whichever_way_they_went() {
    let ways = [ValuePath::Chosen, ValuePath::Mapped, ValuePath::Gathered]
        .map(|path| [Durability::Memory, Durability::Logged, Durability::Synced].map(|level| (path, level)));
    for (path, level) in ways.into_iter().flatten() {
        let scratch = tempfile::tempdir().unwrap();
        let options =
            || Options::default().extent_bytes(4 << 20, 32 << 20).value_path(path).durability(level);
        let store = Store::open(scratch.path().join("store"), options()).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        let text = |round: usize, at: usize| format!("{}", (round + at) % 10).repeat(LENGTHS[at]);
        for round in 0..4 {
            grow_large(&table, &format!("grown{round}_0_0"), 70); // leaves used extents behind
            store.sync().unwrap();
            store.run_once().unwrap();
            let mut batch = store.batch();
            for at in 0..LENGTHS.len() {
                let new = NewRow::new(0, &format!("q{round}_0_{at}")).unwrap();
                batch.insert(&table, new, [("prompt", text(round, at).into())]).unwrap();
            }
            batch.commit().unwrap();
        }
        assert!(store.stats().extents_recycled > 0, "{path:?}: {:?}", store.stats());
        let check = |table: &Table| {
            for (round, at) in (0..4).flat_map(|round| (0..LENGTHS.len()).map(move |at| (round, at))) {
                let row = table.find(0, &format!("q{round}_0_{at}").parse().unwrap()).unwrap();
                let cell = table.cell(row, "prompt").unwrap();
                let is_whole = match &cell {
                    Cell::Bytes(bytes) => **bytes == *text(round, at).as_bytes(),
                    _ => false,
                };
                assert!(is_whole, "{path:?} at {level}: {round}, {at}");
            }
        };
        check(&table);
        drop((table, store));
        let found =
            verify(scratch.path().join("store"), &options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(found.is_sound(), "{path:?} at {level}: {found:?}");
        check(&Store::open(scratch.path().join("store"), options()).unwrap().table("solver").unwrap());
    }
}

// FX-B03: what was gathered with a value that could not be written is in no extent either.
#[test]
fn a_batch_of_which_a_value_was_not_written_is_refused_whoever_goes_on_with_it() {
    let world = World::new();
    let options = world.options().extent_bytes(4 << 20, 4 << 20);
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    table.insert(0, "q_0_0", [("prompt", "x".repeat(20_000).as_str().into())]).unwrap();
    let mut batch = store.batch();
    let mut insert = |id: &str, length: usize| {
        batch.insert(&table, NewRow::new(0, id).unwrap(), [("prompt", "y".repeat(length).into())])
    };
    insert("small_0_0", 20_000).unwrap();
    world.disk.arm(world.disk.operations() + 1, DiskFault::IoError);
    assert!(matches!(insert("large_0_0", 300_000).unwrap_err().cause(), Cause::Io { .. }));
    insert("other_0_0", 20_000).unwrap();
    assert!(matches!(batch.commit().unwrap_err().cause(), Cause::Io { .. }));
    assert_eq!(table.counts().written, 1);
    let again = "z".repeat(300_000);
    table.insert(0, "large_0_0", [("prompt", (&*again).into())]).unwrap();
    let row = table.find(0, &"large_0_0".parse().unwrap()).unwrap();
    assert!(matches!(table.cell(row, "prompt").unwrap(), Cell::Bytes(bytes) if *bytes == *again.as_bytes()));
}

// File handles are few: a process has 1,024 of them where nobody says otherwise.
#[test]
fn what_is_full_and_synced_holds_no_file_open() {
    for level in [Durability::Logged, Durability::Synced] {
        let scratch = tempfile::tempdir().unwrap();
        let options = Options::default().durability(level).extent_bytes(1 << 16, 1 << 16);
        let store = Store::open(scratch.path().join("store"), options).unwrap();
        let table = store.create_table("solver", solver_schema()).unwrap();
        for i in 0..40 {
            let text = format!("{i} ").repeat(10_000);
            table.insert(0, &format!("q{i}_0_0"), [("prompt", text.as_str().into())]).unwrap();
        }
        store.sync().unwrap();
        store.run_once().unwrap();
        store.sync().unwrap();
        assert!(store.stats().extents >= 10, "{:?}", store.stats());
        let extents = scratch.path().join("store/extents");
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let open: Vec<_> = open.filter(|path| path.starts_with(&extents)).collect();
        assert!(open.len() <= 2, "{level:?}: {open:?}");
    }
}

// FX-B03: an insert whose values are written and whose record is not is no insert, and the room of its values is used again.
#[test]
fn values_whose_record_was_not_written_are_nobody_s_and_their_room_is_used_again() {
    let long = "x".repeat(20_000);
    let insert = |table: &Table, id: &str| table.insert(0, id, [("prompt", (&*long).into())]);
    // Refused: the values were in their extent before the store looked.
    let world = World::new();
    let (store, table) = solver(&world);
    for id in ["q_0_0", "q_0_1"] {
        insert(&table, id).unwrap();
        store.sync().unwrap(); // proven by the record that comes after it
    }
    let seen = |store: &Store| {
        let extents = store.extents();
        let live = extents.iter().map(|extent| (extent.live_values, extent.live_bytes));
        (scan_content(store), live.fold((0, 0), |(values, bytes), (v, b)| (values + v, bytes + b)))
    };
    let (before, mut occupied) = (seen(&store), Vec::new());
    for _ in 0..4 {
        for _ in 0..100 {
            assert!(matches!(insert(&table, "q_0_0").unwrap_err().cause(), Cause::DuplicateRow { .. }));
        }
        assert_eq!(seen(&store), before, "no row, and no value that lives");
        store.sync().unwrap();
        store.run_once().unwrap();
        occupied.push(world.disk.occupied());
    }
    assert!(
        occupied[3] <= occupied[0] + (1 << 18),
        "2 MB that nobody has come with each round: {occupied:?}"
    );

    // Failed: each operation of the disk in turn, the log's among them.
    let begin = |world: &World| {
        let (store, table) = solver(world);
        insert(&table, "q_0_0").unwrap();
        (store, table, world.disk.operations())
    };
    let (begun, ended) = {
        let world = World::new();
        let (_store, table, begun) = begin(&world);
        insert(&table, "r_0_0").unwrap();
        (begun, world.disk.operations())
    };
    let mut closed = 0;
    for point in begun + 1..=ended {
        let world = World::new();
        let (store, table, _) = begin(&world);
        world.disk.arm(point, DiskFault::IoError);
        let outcome = insert(&table, "r_0_0");
        closed += u64::from(outcome.as_ref().is_err_and(|error| error.kind() == Kind::Closed));
        world.disk.mend();
        drop(table);
        let store = world.reopen(store);
        let table = store.table("solver").unwrap();
        match table.get(0, &"r_0_0".parse().unwrap()) {
            Some(there) => {
                let prompt = there.cell("prompt").unwrap();
                assert!(
                    matches!(prompt, Cell::Bytes(text) if text.len() == long.len()),
                    "at {point}: whole or absent"
                );
            }
            None => {
                outcome.expect_err("what was acknowledged is there");
                let live: u64 = store.extents().iter().map(|extent| extent.live_values).sum();
                assert_eq!(live, 1, "at {point}: its value is nobody's");
                insert(&table, "r_0_0").unwrap(); // and its place is free
            }
        }
    }
    assert!(closed > 0, "a record that was not written closes the store");
}
