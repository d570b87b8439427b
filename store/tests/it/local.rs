//! Processes of the same machine that write and read values where the store keeps them.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use forebay_store::*;

use crate::support::*;

fn disk(world: &World) -> Arc<dyn Disk> {
    Arc::new(world.disk.clone())
}

fn filler(world: &World, store: &Store, lent: &LentExtent) -> ExtentFiller {
    ExtentFiller::open_on(disk(world), ROOT.as_ref(), store.id(), lent.loan()).unwrap()
}

fn reader(world: &World, store: &Store) -> Arc<ValueReader> {
    let reader = ValueReader::open_on(disk(world), ROOT.as_ref(), store.id()).unwrap();
    reader.knows(store.commits());
    reader
}

fn schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("image", DataType::Binary)
        .data("response", DataType::list(Element::Int32))
        .data("matrix", DataType::tensor(Element::Float32, [2, 2]))
        .data_shared("system", DataType::Utf8)
        .data("reward", DataType::Float32)
}

fn long(i: usize) -> String {
    format!("prompt {i}: {}", "what is two and two? ".repeat(30))
}

const NUMBERS: PlacedKind = PlacedKind::Numbers(Element::Int32);

/// A table, a task over its prompts and the rows that a neighbour has filled, one batch.
fn filled(world: &World, store: &Store, rows: usize) -> (Table, ConsumerHandle) {
    let table = store.create_table("solver", schema()).unwrap();
    let task = store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    insert(world, store, &table, 0, 0..rows);
    (table, task)
}

/// Of three rows the first has trailers that its filler has written, the second such of other cells, and the third none.
fn insert(world: &World, store: &Store, table: &Table, version: u64, rows: std::ops::Range<usize>) {
    let lent = store.lend_extent(version, 64 << 10).unwrap();
    let mut filler = filler(world, store, &lent);
    let mut batch = store.batch();
    for i in rows {
        let row = NewRow::new(version, &format!("q{i}_0_0")).unwrap();
        let mut place = |column: u32, bytes: &[u8]| {
            let spot = match i % 3 {
                0 => filler.place_of(bytes, CellName::of_new(table.id(), &row, column).unwrap()),
                1 => filler.place_of(bytes, CellName::of_new(table.id(), &row, column + 1).unwrap()),
                _ => filler.place(bytes),
            };
            spot.unwrap().unwrap()
        };
        let response: Vec<u8> = (0..200_i32).flat_map(|n| (n + i as i32).to_le_bytes()).collect();
        let cells = [
            ("prompt", lent.value(PlacedKind::Utf8, place(0, long(i).as_bytes()))),
            ("image", lent.value(PlacedKind::Binary, place(1, &[i as u8; 100]))),
            ("response", lent.value(NUMBERS, place(2, &response))),
            ("matrix", lent.value(PlacedKind::Numbers(Element::Float32), place(3, &[i as u8; 16]))),
            ("system", lent.value(PlacedKind::Utf8, place(4, b"you are one who counts things"))),
        ];
        filler.flush().unwrap(); // before a batch may look
        batch.insert(table, row, cells).unwrap();
    }
    batch.commit().unwrap();
}

/// What a task's claim shows in every way there is: the same.
fn check(world: &World, store: &Store, task: &ConsumerHandle, rows: usize) {
    let names = ["sample_id", "prompt", "image", "response", "matrix", "system", "reward"];
    let reader = reader(world, store);
    let claim = task.claim(MicroBatch::of(rows), "me", Wait::No).unwrap().unwrap();
    let hold = reader.hold().unwrap();
    let places = claim.places(names).unwrap();
    let (direct, read) = (claim.columns(names).unwrap(), hold.columns(&places, Lists::Together).unwrap());
    assert_eq!(direct, read);
    let in_place = hold.columns(&places, Lists::InPlace).unwrap();
    assert_eq!(claim.columns_in_place(names).unwrap(), in_place);
    let prompts = read.column(1).as_string_view();
    assert!(prompts.iter().enumerate().all(|(i, text)| text == Some(&*long(i))), "{prompts:?}");
    for name in ["prompt", "image", "response", "matrix", "system"] {
        for cell in claim.cells(name).unwrap() {
            let Cell::Bytes(there) = cell else { panic!("{cell:?}") };
            let place = ValuePlace::from_bytes(there.place().unwrap().to_bytes());
            assert_eq!(hold.value(place).unwrap()[..], there[..], "{name}");
        }
    }
    claim.release().unwrap();
}

#[test]
fn what_a_neighbour_puts_into_its_extent_is_read_from_there_by_the_store_and_by_neighbours() {
    let world = World::new();
    let store = world.open();
    let (table, task) = filled(&world, &store, 8);
    check(&world, &store, &task, 8);
    let row = table.find(0, &"q3_0_0".parse().unwrap()).unwrap();
    assert!(matches!(table.cell(row, "image").unwrap(), Cell::Bytes(bytes) if *bytes == [3; 100]));
    assert_eq!(
        store.extents().len(),
        2,
        "the neighbour's, and one for the shared column: {:?}",
        store.extents()
    );
    let store = world.reopen(store);
    check(&world, &store, &store.consumer("read").unwrap(), 8);
    drop(store);
    let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.faults.is_empty(), "{report:?}");
}

#[test]
fn what_is_said_to_lie_in_an_extent_and_does_not_is_refused_by_name() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", schema()).unwrap();
    let lent = store.lend_extent(0, 4096).unwrap();
    let mut filler = filler(&world, &store, &lent);
    let first = filler.place(&[7; 100]).unwrap().unwrap();
    let (text, capacity) = (filler.place(&[0xFF; 80]).unwrap().unwrap(), lent.loan().capacity);
    filler.flush().unwrap();
    let try_insert = |id: &str, column: &'static str, kind, spot| {
        table.insert(0, id, [(column, lent.value(kind, spot))]).map_err(|error| error.to_string())
    };
    let image = |id: &str, spot| try_insert(id, "image", PlacedKind::Binary, spot);
    let sum = checksum::crc32c;
    for (spot, reason) in [
        (Spot { crc32c: first.crc32c ^ 1, ..first }, "other bytes lie there"),
        (Spot { length: 99, ..first }, "other bytes lie there"),
        (Spot { offset: first.offset + 8, ..first }, "no value can lie there"),
        (Spot { offset: 0, ..first }, "no value can lie there"),
        (Spot { offset: capacity - 64, ..first }, "no value can lie there"),
        (Spot { offset: u32::MAX - 63, length: 1000, crc32c: 0 }, "no value can lie there"),
        (Spot { length: u32::MAX, ..first }, "no value can lie there"),
    ] {
        let refused = image("a_0_0", spot).unwrap_err();
        assert!(
            refused.contains(reason) && refused.contains(&spot.offset.to_string()),
            "{spot:?}: {refused}"
        );
    }
    let refused = try_insert("a_0_0", "prompt", PlacedKind::Utf8, text).unwrap_err();
    assert!(refused.contains("no UTF-8"), "{refused}");
    for (column, kind) in [
        ("prompt", PlacedKind::Binary),
        ("response", PlacedKind::Numbers(Element::Int8)),
        ("matrix", NUMBERS),
    ] {
        let refused = try_insert("a_0_0", column, kind, first).unwrap_err();
        assert!(refused.contains(column), "{refused}");
    }
    image("a_0_0", first).unwrap();
    let inner = Spot { offset: first.offset + 64, length: 36, crc32c: sum(&[7; 36]) };
    for spot in [first, inner] {
        let refused = image("b_0_0", spot).unwrap_err();
        assert!(refused.contains("another value lies there"), "{refused}");
    }
    let other = World::new();
    let stranger = other.open();
    let theirs = stranger.create_table("solver", schema()).unwrap();
    let refused = theirs.insert(0, "a_0_0", [("image", lent.value(PlacedKind::Binary, first))]).unwrap_err();
    assert!(refused.to_string().contains("another store's"), "{refused}");
    assert_eq!(pick(&store, "solver", &["sample_id"]).len(), 1, "nothing else came in");
}

#[test]
fn values_of_one_call_are_taken_together_whatever_their_sizes_and_places() {
    let world = World::new();
    let store = Store::open(ROOT, world.options().extent_bytes(4096, 8 << 20)).unwrap();
    let table = store.create_table("solver", schema()).unwrap();
    let (lent, second) = (store.lend_extent(0, 8 << 20).unwrap(), store.lend_extent(0, 1 << 20).unwrap());
    let mut fillers = [filler(&world, &store, &lent), filler(&world, &store, &second)];
    let lengths = [13, 64, 4000, 300_000, 100, 262_112, 20, 200_000, 1000, 262_113, 56, 70_000];
    let value = |i: usize| "\u{e9}".repeat(lengths[i] / 2) + &"x".repeat(lengths[i] % 2); // characters across pieces
    let mut batch = store.batch();
    for i in 0..lengths.len() {
        let which = usize::from(i % 5 == 4);
        let spot = fillers[which].place(value(i).as_bytes()).unwrap().unwrap();
        if i == 7 {
            fillers[which].place(b"nobody names this one").unwrap();
        }
        let placed = [&lent, &second][which].value(PlacedKind::Utf8, spot);
        batch.insert(&table, NewRow::new(0, &format!("q{i:02}_0_0")).unwrap(), [("prompt", placed)]).unwrap();
    }
    fillers.iter_mut().for_each(|filler| filler.flush().unwrap());
    batch.commit().unwrap();
    let shown = pick(&store, "solver", &["prompt"]);
    assert_eq!(shown, (0..lengths.len()).map(|i| vec![value(i)]).collect::<Vec<_>>());
    drop((lent, second, fillers, table));
    drop(store);
    let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.faults.is_empty(), "{report:?}");
}

#[test]
fn one_wrong_value_among_many_is_named_and_the_others_can_be_said_again() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", schema()).unwrap();
    let lent = store.lend_extent(0, 64 << 10).unwrap();
    let mut filler = filler(&world, &store, &lent);
    let spots: Vec<Spot> = (0..5).map(|i| filler.place(&[i; 1000]).unwrap().unwrap()).collect();
    filler.flush().unwrap();
    let insert = |spots: &[Spot]| {
        let mut batch = store.batch();
        for (i, spot) in spots.iter().enumerate() {
            let image = [("image", lent.value(PlacedKind::Binary, *spot))];
            batch.insert(&table, NewRow::new(0, &format!("q{i}_0_0"))?, image)?;
        }
        batch.commit()
    };
    let mut wrong = spots.clone();
    wrong[3].crc32c ^= 1;
    let refused = insert(&wrong).unwrap_err();
    assert!(refused.to_string().contains(&format!("{}", spots[3].offset)), "{refused}");
    insert(&spots).unwrap();
    assert!(insert(&spots).unwrap_err().to_string().contains("another value lies there"));
}

#[test]
fn a_value_in_a_file_that_was_cut_short_is_refused_and_the_store_goes_on() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", schema()).unwrap();
    let lent = store.lend_extent(0, 4096).unwrap();
    let mut filler = filler(&world, &store, &lent);
    let spot = filler.place(&[7; 1000]).unwrap().unwrap();
    filler.flush().unwrap();
    let file = format!("{ROOT}/extents/{:08}.extent", lent.loan().extent);
    world.disk.truncate(file.as_ref(), 500);
    let refused = table.insert(0, "a_0_0", [("image", lent.value(PlacedKind::Binary, spot))]).unwrap_err();
    assert!(refused.kind() == Kind::Input && refused.to_string().contains("cut short"), "{refused}");
    table.insert(0, "a_0_0", [("image", Value::Binary(vec![7; 1000].into()))]).unwrap();
}

#[test]
fn values_of_another_version_and_short_ones_are_copied_out_of_the_extent() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", schema()).unwrap();
    let lent = store.lend_extent(0, 4096).unwrap();
    let mut filler = filler(&world, &store, &lent);
    let (short, long) =
        (filler.place(b"twelve bytes").unwrap().unwrap(), filler.place(&[9; 400]).unwrap().unwrap());
    let none = filler.place(b"").unwrap().unwrap();
    filler.flush().unwrap();
    let kind = PlacedKind::Binary;
    table.insert(0, "a_0_0", [("image", lent.value(kind, short))]).unwrap();
    table.insert(0, "b_0_0", [("image", lent.value(kind, none))]).unwrap();
    let later = table.insert(1, "c_0_0", [("image", lent.value(kind, long))]);
    assert!(
        later.is_ok_and(
            |row| matches!(table.cell(row, "image"), Ok(Cell::Bytes(bytes)) if *bytes == [9; 400])
        )
    );
    let lives = |extent: &ExtentInfo| extent.number == lent.loan().extent && extent.live_bytes > 0;
    assert!(!store.extents().iter().any(lives), "{:?}", store.extents());
}

// What was acknowledged as synced is there after the power failed, wherever its values were put by whom.
#[test]
fn values_of_neighbours_survive_a_power_failure_as_all_others_do() {
    for seed in 0..40 {
        let world = World::on(SimulatedDisk::seeded(seed));
        let store = world.open();
        filled(&world, &store, 8);
        store.sync().unwrap();
        std::mem::forget(store);
        world.disk.cut_power();
        world.disk.restart();
        world.disk.reboot();
        let store = world.open();
        assert_eq!(store.recovery().rows_lost, 0, "seed {seed}");
        check(&world, &store, &store.consumer("read").unwrap(), 8);
    }
}

// What a filler closes itself the store need not write, and has to sync all the same.
#[test]
fn values_that_their_filler_has_closed_are_not_written_again_and_are_synced_as_all_others_are() {
    let cases =
        [("none", 1), ("its own", 0), ("another row's", 1), ("another column's", 1), ("one of three", 1)];
    for (seed, (trailers, expected)) in (0..10).flat_map(|seed| cases.map(|case| (seed, case))) {
        let world = World::on(SimulatedDisk::seeded(seed));
        let store = world.open();
        let table = store.create_table("solver", schema()).unwrap();
        store.create_consumer("read", Consumer::task(["solver"]).ready(["image"])).unwrap();
        let row = table.insert(0, "q0_0_0", []).unwrap();
        let other = table.insert(0, "q1_0_0", []).unwrap();
        let lent = store.lend_extent(0, 64 << 10).unwrap();
        let mut filler = filler(&world, &store, &lent);
        let name = |column| match (trailers, column) {
            ("its own", _) | ("one of three", 1) => Some(CellName::of(row, column)),
            ("another row's", _) => Some(CellName::of(other, column)),
            ("another column's", _) => Some(CellName::of(row, column + 1)),
            _ => None,
        };
        let mut place = |column: u32, bytes: &[u8]| {
            let spot = match name(column) {
                Some(name) => filler.place_of(bytes, name),
                None => filler.place(bytes),
            };
            spot.unwrap().unwrap()
        };
        let spots = [place(0, long(0).as_bytes()), place(1, &[7; 5000]), place(2, &[9; 400])];
        filler.flush().unwrap();
        let kinds = [PlacedKind::Utf8, PlacedKind::Binary, NUMBERS];
        let values = kinds.iter().zip(spots).map(|(kind, spot)| lent.value(*kind, spot));
        let written = || world.disk.history().iter().filter(|done| **done == DiskOperation::Write).count();
        let before = written();
        let mut batch = store.batch();
        batch.durability(Durability::Synced);
        batch.write(&table, row, ["prompt", "image", "response"].into_iter().zip(values)).unwrap();
        let of_batch = written() - before;
        batch.commit().unwrap();
        let of_commit = written() - before - of_batch;
        assert_eq!(
            (of_batch, of_commit),
            (0, 1 + expected),
            "{trailers}: the record, and what is written back"
        );
        drop((lent, filler, table));
        std::mem::forget(store);
        world.disk.cut_power();
        world.disk.restart();
        world.disk.reboot();
        let store = world.open();
        let shown = pick(&store, "solver", &["prompt"]);
        assert_eq!(
            (store.recovery().rows_lost, shown),
            (0, vec![vec![long(0)], vec!["null".to_owned()]]),
            "{trailers}"
        );
        drop(store);
        let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.faults.is_empty(), "{trailers}, seed {seed}: {report:?}");
    }
}

/// Lets everything of a version go, and the space of it be used again if nobody holds it.
fn retire(store: &Store, table: &Table, version: u64) {
    table.delete(&Delete::version(version).force()).unwrap();
    store.sync().unwrap();
    store.checkpoint().unwrap();
    store.run_once().unwrap();
}

fn is_there(store: &Store, loan: Loan) -> bool {
    store.extents().iter().any(|extent| (extent.number, extent.generation) == (loan.extent, loan.generation))
}

#[test]
fn an_extent_that_may_still_be_filled_is_not_used_again_whatever_became_of_the_store_meanwhile() {
    let world = World::new();
    let store = world.open();
    let (table, _) = filled(&world, &store, 1);
    let lent = store.lend_extent(1, 4096).unwrap();
    let loan = lent.loan();
    let filler = filler(&world, &store, &lent);
    drop(lent);
    retire(&store, &table, 0);
    assert!(is_there(&store, loan), "its filler is there");
    drop((table, store)); // the store's process ends, and another begins
    let store = world.open();
    let table = store.table("solver").unwrap();
    retire(&store, &table, 0);
    assert!(is_there(&store, loan), "its filler is there still");
    drop(filler);
    table.insert(1, "a_0_0", []).unwrap();
    retire(&store, &table, 1);
    assert!(!is_there(&store, loan), "{:?}", store.extents());
    let late = ExtentFiller::open_on(disk(&world), ROOT.as_ref(), store.id(), loan).unwrap_err();
    assert_eq!((late.kind(), late.to_string().contains("not lent any more")), (Kind::State, true), "{late}");
}

#[test]
fn what_an_answer_named_is_not_used_again_while_a_value_of_it_is_held() {
    let world = World::new();
    let store = world.open();
    let (table, task) = filled(&world, &store, 4);
    let reader = reader(&world, &store);
    let hold = reader.hold().unwrap();
    let claim = task.claim(MicroBatch::of(4), "me", Wait::No).unwrap().unwrap();
    let place = |cell: &Cell| match cell {
        Cell::Bytes(bytes) => hold.value(bytes.place().unwrap()).unwrap(),
        other => panic!("{other:?}"),
    };
    let values: Vec<ValueBytes> = claim.cells("image").unwrap().iter().map(place).collect();
    drop((hold, claim));
    let free = |store: &Store| store.stats().free_extent_bytes > 0;
    retire(&store, &table, 0);
    assert!(!free(&store), "a value is held");
    drop((table, task, store)); // the store's process ends, and another begins
    let store = world.open();
    let table = store.table("solver").unwrap();
    retire(&store, &table, 0);
    assert!(!free(&store), "a value is held still");
    assert!(values.iter().enumerate().all(|(i, bytes)| **bytes == [i as u8; 100]));
    drop(values);
    table.insert(1, "a_0_0", []).unwrap();
    retire(&store, &table, 1);
    assert!(free(&store) || store.stats().extents_recycled > 0, "{:?}", store.extents());
}

#[test]
fn who_reads_another_store_or_none_is_told_so() {
    let world = World::new();
    let store = world.open();
    let refused = ValueReader::open_on(disk(&world), ROOT.as_ref(), store.id() ^ 1).unwrap_err();
    assert_eq!(refused.kind(), Kind::State);
    assert!(ValueReader::open_on(disk(&world), "/nowhere".as_ref(), store.id()).is_err());
    let table = store.create_table("solver", schema()).unwrap();
    let task = store.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    table.insert(0, "q_0_0", [("prompt", long(1).into())]).unwrap();
    let reader = reader(&world, &store);
    let hold = reader.hold().unwrap();
    let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
    let mut places = claim.places(["prompt"]).unwrap().batch().clone();
    let hostile = arrow_array::FixedSizeBinaryArray::try_from_iter([[0xFF_u8; 16]].into_iter()).unwrap();
    places = RecordBatch::try_new(places.schema(), vec![Arc::new(hostile)]).unwrap();
    let refused = hold.columns(&Places::of_batch(places), Lists::Together).unwrap_err();
    assert!(!refused.to_string().is_empty());
    // A list that lies as none does is read, and not in place.
    let row =
        table.insert(0, "q_0_1", [("prompt", long(2).into()), ("response", vec![7; 40].into())]).unwrap();
    let Cell::Bytes(bytes) = table.cell(row, "response").unwrap() else { panic!("no bytes") };
    let mut place = bytes.place().unwrap().to_bytes();
    place[12] += 2;
    place[0] = 9;
    drop(claim);
    let claim = task.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap();
    let places = claim.places(["response"]).unwrap().batch().clone();
    let crooked = arrow_array::FixedSizeBinaryArray::try_from_iter([place; 2].into_iter()).unwrap();
    let places = Places::of_batch(RecordBatch::try_new(places.schema(), vec![Arc::new(crooked)]).unwrap());
    let hold = reader.hold().unwrap();
    for lists in [Lists::Together, Lists::InPlace] {
        assert_eq!(hold.columns(&places, lists).unwrap().num_rows(), 2);
    }
}

#[test]
fn the_space_of_files_that_the_store_has_removed_is_not_held_by_who_read_them_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options::default().extent_bytes(4096, 1 << 16).free_extent_bytes_max(0);
    let store = Store::open(&path, options.sync_interval(std::time::Duration::MAX)).unwrap();
    let table = store.create_table("solver", schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["image"])).unwrap();
    let reader = ValueReader::open(&path, store.id()).unwrap();
    reader.knows(store.commits());
    let read = |version: u64| {
        let image = Value::Binary(vec![version as u8; 3000].into());
        table.insert(version, &format!("q{version}_0_0"), [("image", image)]).unwrap();
        let hold = reader.hold().unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
        let Cell::Bytes(bytes) = &claim.cells("image").unwrap()[0] else { panic!("no image") };
        assert_eq!(hold.value(bytes.place().unwrap()).unwrap()[..], [version as u8; 3000]);
        claim.accumulated().unwrap();
        step.commit([("solver", vec![])]).unwrap();
        reader.knows(store.commits());
    };
    let removed = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ours = path.display().to_string();
        maps.lines().filter(|line| line.contains(&ours) && line.ends_with("(deleted)")).count()
    };
    for version in 0..4 {
        read(version);
        retire(&store, &table, version);
        assert_eq!(removed(), 1, "that of version {version} alone, until another file is opened");
    }
    read(4);
    assert_eq!(removed(), 0);
}
