//! Snapshots: one instant of all tables, whatever is written afterwards.

use forebay_store::*;

use crate::support::*;

#[test]
fn a_snapshot_does_not_move() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let rows: Vec<Row> = (0..10).map(|i| table.insert(0, &format!("q_0_{i}"), []).unwrap()).collect();
    let snapshot = store.snapshot();
    let shown = || scan_of(snapshot.table("solver").unwrap(), |_| true);
    let before = shown();
    rows[..4]
        .iter()
        .for_each(|&row| table.write(row, [("reward", 1.0.into()), ("prompt", "late".into())]).unwrap());
    table.exclude(rows[9], "late").unwrap();
    train_once(&store, &train, StepPlan::new().rows(&train, 4), "solver");
    store.create_consumer("late", Consumer::task(["solver"])).unwrap();
    store.create_table("late", Schema::new()).unwrap();
    (0..3).for_each(|i| _ = finished(&table, 1, &format!("q_0_{i}")));
    assert_eq!(shown(), before);
    assert_eq!((snapshot.tables().len(), snapshot.table("solver").unwrap().current_version()), (1, 0));
    drop((store, table, train));
    assert_eq!(shown(), before, "a snapshot outlives the store's handles");
}

#[test]
fn snapshots_held_over_the_end_of_a_chunk_show_what_was_there() {
    let (store, table) = solver(&World::new());
    let mut held = Vec::new();
    let mut batch = store.batch();
    for i in 0..CHUNK_ROWS as u32 + 3 {
        let row = NewRow::of(0, SampleId::new("q", 0, i).unwrap());
        batch.insert(&table, row, [("reward", f64::from(i).into())]).unwrap();
        if i as usize + 3 >= CHUNK_ROWS {
            std::mem::replace(&mut batch, store.batch()).commit().unwrap();
            held.push((i + 1, store.snapshot()));
        }
    }
    drop(batch.commit().unwrap());
    let at = |i: usize| table.find(0, &SampleId::new("q", 0, i as u32).unwrap()).unwrap();
    [0, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1]
        .into_iter()
        .for_each(|i| table.exclude(at(i), "later").unwrap());
    for (rows, snapshot) in &held {
        let shown = snapshot.table("solver").unwrap();
        let scanned = scan_of(shown, |name| name == "reward" || name == "excluded_reason");
        assert_eq!((shown.row_count(), scanned.len()), (*rows as usize, *rows as usize));
        for (i, row) in scanned.iter().enumerate() {
            assert_eq!(row, &format!("excluded_reason=null | reward={:?}", i as f32));
        }
    }
    assert_eq!(table.counts().excluded["later"], 4);
    check_counts(&store);
}

#[test]
fn parts_tell_what_their_rows_have_in_common_and_lengths_are_read_without_the_lists() {
    let (store, table) = solver(&World::new());
    let trajectories = CHUNK_ROWS as u32 + 2;
    let mut batch = store.batch();
    for i in 0..trajectories {
        let version = u64::from(i / CHUNK_ROWS as u32);
        let response: Vec<i32> = (0..i as i32 % 5).collect();
        let row = NewRow::of(version, SampleId::new("q", 0, i).unwrap());
        let cells: &[(&str, Value<'_>)] = &[("response", (&response[..]).into())];
        batch.insert(&table, row, cells[..usize::from(i % 7 != 0)].iter().cloned()).unwrap();
    }
    batch.commit().unwrap();
    let reads = store.stats().value_reads;
    let snapshot = store.snapshot();
    let shown = snapshot.table("solver").unwrap();
    let parts: Vec<Part> = shown.parts().collect();
    let told: Vec<_> = parts.iter().map(|part| (part.row_count(), part.versions())).collect();
    assert_eq!(told, [(CHUNK_ROWS, Some(0..=0)), (2, Some(1..=1))]);
    let sample = |i| [SampleId::new("q", 0, i).unwrap()];
    let holding = |i| parts.iter().map(|part| shown.holds_any(part, &sample(i))).collect::<Vec<_>>();
    assert_eq!((holding(3), holding(trajectories - 1)), (vec![true, false], vec![false, true]));
    assert_eq!(holding(trajectories), [false, false]);

    let position = shown.arrow_schema().index_of("response").unwrap();
    let rows = shown.rows_of(&parts[1]);
    let lengths = shown.read(&[rows[1], rows[0], 7, 6], &[ScanColumn::Length(position)]).unwrap();
    let of = |i: u32| if i.is_multiple_of(7) { "null".to_owned() } else { (i % 5).to_string() };
    let expected: Vec<String> = [rows[1], rows[0], 7, 6].map(|i| format!("response_length={}", of(i))).into();
    assert_eq!(show_batch(&lengths), expected);
    assert_eq!(store.stats().value_reads, reads, "a length is known without its list");

    let prompt = shown.arrow_schema().index_of("prompt").unwrap();
    for (rows, column) in [(vec![0], ScanColumn::Length(prompt)), (vec![trajectories], ScanColumn::Value(0))]
    {
        assert_eq!(shown.read(&rows, &[column]).unwrap_err().kind(), Kind::Input);
    }
}

#[test]
fn a_scan_in_batches_gives_every_row_once_in_either_order() {
    let (store, table) = solver(&World::new());
    for i in (0..25).rev() {
        finished(&table, 0, &format!("q_0_{i}"));
    }
    let snapshot = store.snapshot();
    let shown = snapshot.table("solver").unwrap();
    let position = shown.arrow_schema().index_of("trajectory_id").unwrap();
    for size in [0, 1, 7, 25, 100] {
        for (order, expected) in [
            (ScanOrder::SampleId, (0..25).collect::<Vec<_>>()),
            (ScanOrder::Arrival, (0..25).rev().collect()),
        ] {
            let batches = shown.scan(Some(&[position]), order, size).unwrap();
            let found: Vec<String> = batches.flat_map(|batch| show_batch(&batch.unwrap())).collect();
            let expected: Vec<String> = expected.iter().map(|i: &i32| format!("trajectory_id={i}")).collect();
            assert_eq!(found, expected, "{size}");
        }
    }
    let past = shown.arrow_schema().fields().len();
    assert_eq!(shown.scan(Some(&[past]), ScanOrder::Arrival, 1).err().unwrap().kind(), Kind::Input);
}

#[test]
fn a_batch_outlives_the_store_that_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let text = "a text that is longer than a view and lies in an extent";
    table.insert(0, "q_0_0", [("prompt", text.into())]).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let claim = task.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
    let batch = claim.columns(["prompt"]).unwrap();
    drop((claim, task, table, store));
    assert_eq!(show_batch(&batch), [format!("prompt={text}")]);
}
