//! Snapshots: one instant of tables, read again and again while others write.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use forebay_client::{ReadRows, Snapshot, SnapshotTable, TakeSnapshot};
use forebay_store::{Delete, Kind, NewRow, ScanOrder};

use super::waits::until;
use super::*;

fn take(client: &Client) -> Snapshot {
    client.snapshot(&TakeSnapshot::default()).unwrap()
}

fn read(table: &SnapshotTable, rows: ReadRows) -> Vec<RecordBatch> {
    table.read(rows).collect::<Result<_, _>>().unwrap()
}

/// The texts of a column, batch after batch.
fn texts(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let of = |batch: &RecordBatch| -> Vec<String> {
        let array = batch.column_by_name(column).unwrap();
        match array.as_string_view_opt() {
            Some(texts) => texts.iter().map(|text| text.unwrap_or_default().to_owned()).collect(),
            None => array.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect(),
        }
    };
    batches.iter().flat_map(of).collect()
}

fn pins(world: &World, owner: &str) -> usize {
    world.store.pins().iter().filter(|pin| pin.owner.ends_with(owner)).count()
}

#[test]
fn a_snapshot_shows_one_instant_whatever_is_written_later() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        client.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
        (0..3).for_each(|at| _ = row(&table, at / 2, &format!("q{at}_0_0"), Some(1.0)));
        let early = table.insert(NewRow::new(0, "early_0_0").unwrap(), []).unwrap();
        let snapshot = take(&client);
        let shown = snapshot.table("solver").unwrap();
        let before = read(&shown, ReadRows::default());
        row(&table, 0, "late_0_0", None);
        table.write(early, [("prompt", "late".into())]).unwrap();
        table.delete(&Delete::all_confirmed().force()).unwrap();
        client.create_table("later", Schema::new().data("verdict", DataType::Utf8)).unwrap();
        for _ in 0..2 {
            assert_eq!(read(&shown, ReadRows::default()), before);
        }
        assert_eq!(texts(&before, "sample_id"), ["early_0_0", "q0_0_0", "q1_0_0", "q2_0_0"]);
        assert_eq!(texts(&before, "prompt"), ["", "q0_0_0", "q1_0_0", "q2_0_0"]);
        assert_eq!((shown.row_count(), shown.current_version(), shown.policy()), (4, 0, "solver"));
        let names: Vec<String> = snapshot.tables().map(|table| table.name().to_owned()).collect();
        assert_eq!(names, ["solver", "checker"]);
        let later = take(&client);
        assert!(later.commit() > snapshot.commit());
        let none = read(&later.table("solver").unwrap(), ReadRows::default());
        assert_eq!((none.len(), none[0].num_rows(), none[0].schema()), (1, 0, before[0].schema()));
    });
}

#[test]
fn rows_are_read_by_version_in_either_order_and_in_batches_of_any_size() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        for id in [9, 3, 7, 1, 8, 2] {
            row(&table, id / 5, &format!("q{id}_0_0"), None);
        }
        let snapshot = take(&client);
        let shown = snapshot.table("solver").unwrap();
        let by_id = ["q1_0_0", "q2_0_0", "q3_0_0", "q7_0_0", "q8_0_0", "q9_0_0"];
        let by_arrival = ["q9_0_0", "q3_0_0", "q7_0_0", "q1_0_0", "q8_0_0", "q2_0_0"];
        let named = || ReadRows::default().columns(["sample_id"]);
        for rows in [1, 2, 5, 6, 100] {
            let batches = read(&shown, named().batch_rows(rows));
            assert_eq!(batches.len(), 6_usize.div_ceil(rows));
            assert!(batches.iter().all(|batch| batch.num_columns() == 1 && batch.num_rows() <= rows));
            assert_eq!(texts(&batches, "sample_id"), by_id);
            let batches = read(&shown, named().order(ScanOrder::Arrival).batch_rows(rows));
            assert_eq!(texts(&batches, "sample_id"), by_arrival);
        }
        for (version, ids) in [(0, &by_id[..3]), (1, &by_id[3..]), (2, &[])] {
            assert_eq!(texts(&read(&shown, named().version(version)), "sample_id"), ids);
        }
        let one = read(&shown, named().version(1).order(ScanOrder::Arrival));
        assert_eq!(texts(&one, "sample_id"), ["q9_0_0", "q7_0_0", "q8_0_0"]);
        let versions = shown.versions().unwrap();
        let counted: Vec<(u64, u64)> = versions.iter().map(|(version, of)| (*version, of.rows)).collect();
        assert_eq!(counted, [(0, 3), (1, 3)]);
    });
}

#[test]
fn large_values_come_in_batches_that_are_small_and_take_no_more_than_they_are() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        for at in 0..6 {
            let (long, tokens) = ("x".repeat(3 << 20), vec![at; 1 << 20]);
            let new = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            table.insert(new, [("prompt", long.into()), ("response", tokens.into())]).unwrap();
        }
        let snapshot = take(&client);
        let shown = snapshot.table("solver").unwrap();
        let batches = read(&shown, ReadRows::default());
        let sizes: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(sizes, [2, 2, 2], "7 MiB a row, and 16 MiB a batch");
        let prompts = read(&shown, ReadRows::default().columns(["prompt"]));
        assert_eq!(prompts.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [5, 1]);
        if world.way != Way::Embedded {
            let last = prompts[1].column(0).as_string_view();
            let bytes = last.data_buffers().iter().fold(0, |bytes, buffer| bytes + buffer.len());
            assert_eq!(bytes, 3 << 20, "nothing of the rows beside it");
        }
        assert!(texts(&prompts, "prompt").iter().all(|prompt| prompt.len() == 3 << 20));
    });
}

#[test]
fn some_tables_are_taken_and_the_rest_is_not_there() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        client.create_table("checker", Schema::new().data("verdict", DataType::Utf8)).unwrap();
        let snapshot = client.snapshot(&TakeSnapshot::default().tables(["checker"])).unwrap();
        assert_eq!(snapshot.tables().count(), 1);
        let error = snapshot.table("solver").unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unknown"), "{error}");
        let calls = client.connection().snapshots();
        let error = calls.read(1, "solver", &ReadRows::default(), 0).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Unknown"), "{error}");
        let refused = client.snapshot(&TakeSnapshot::default().tables(["chekcer"])).unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::Input, "Unknown"));
        assert!(refused.to_string().contains("checker"), "{refused}");
        let checker = snapshot.table("checker").unwrap();
        for columns in [vec!["verdcit"], vec!["verdict", "verdict"]] {
            let error = checker.read(ReadRows::default().columns(columns)).next().unwrap().unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{error}");
        }
    });
}

#[test]
fn a_snapshot_has_an_owner_and_a_deadline_and_is_over_when_that_has_come() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        row(&table, 0, "q_0_0", None);
        let brief = Duration::from_millis(50);
        let asked = TakeSnapshot::default().owner("the evaluation").time(brief);
        let snapshot = client.snapshot(&asked).unwrap();
        assert_eq!(pins(world, "snapshot of the evaluation"), 1);
        let shown = snapshot.table("solver").unwrap();
        until(|| world.store.clock().now() > snapshot.deadline());
        let error = shown.read(ReadRows::default()).next().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "SnapshotOver"), "{error}");
        for error in [shown.versions().unwrap_err(), snapshot.extend(brief).unwrap_err()] {
            assert_eq!((error.kind(), error.cause()), (Kind::State, "SnapshotOver"), "{error}");
        }
        assert_eq!(pins(world, "snapshot of the evaluation"), 0);
    });
}

#[test]
fn a_snapshot_is_extended_no_further_than_its_greatest_age() {
    for way in Way::ALL {
        eprintln!("on the way {way:?}"); // shown when the case fails
        let world = World::with(way, Options::default().snapshot_age_max(Duration::from_secs(90)));
        let client = world.client();
        let table = solver(&client);
        row(&table, 0, "q_0_0", None);
        let before = world.store.clock().now();
        let snapshot = client.snapshot(&TakeSnapshot::default().time(Duration::from_secs(5))).unwrap();
        let after = world.store.clock().now();
        let within = |seconds: u64| {
            let time = Duration::from_secs(seconds);
            before.after(time)..=after.after(time)
        };
        assert!(within(5).contains(&snapshot.deadline()));
        let extended = snapshot.extend(Duration::from_secs(60)).unwrap();
        assert!(extended >= before.after(Duration::from_secs(60)) && extended == snapshot.deadline());
        assert_eq!(snapshot.extend(Duration::from_secs(1)).unwrap(), extended, "no shorter");
        let last = snapshot.extend(Duration::from_secs(3600)).unwrap();
        assert!(within(90).contains(&last), "{last} of {before}");
        let capped = client.snapshot(&TakeSnapshot::default().time(Duration::MAX)).unwrap();
        assert!(capped.deadline() >= last && capped.deadline() <= last.after(Duration::from_secs(60)));
    }
}

#[test]
fn a_client_holds_so_many_snapshots_and_those_that_are_dropped_make_room() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        let mut held: Vec<Snapshot> = (0..16).map(|_| take(&client)).collect();
        let refused = client.snapshot(&TakeSnapshot::default()).unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "Snapshots"), "{refused}");
        let kept = held[0].table("solver").unwrap();
        held.truncate(1);
        held.clear();
        assert_eq!(read(&kept, ReadRows::default())[0].num_rows(), 0, "its table holds it");
        let others: BTreeSet<u64> = (0..15).map(|_| take(&client).commit()).collect();
        assert_eq!(others.len(), 1);
    });
}

#[test]
fn snapshots_end_with_their_client() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        row(&table, 0, "q_0_0", None);
        let snapshot = client.snapshot(&TakeSnapshot::default().owner("who goes")).unwrap();
        let shown = snapshot.table("solver").unwrap();
        assert_eq!(pins(world, "who goes"), 1);
        client.close().unwrap();
        assert!(shown.read(ReadRows::default()).next().unwrap().is_err());
        assert!(client.snapshot(&TakeSnapshot::default()).is_err());
        until(|| pins(world, "who goes") == 0);
    });
}

// Space that a snapshot shows is not used again, whoever deletes.
#[test]
fn what_a_snapshot_shows_is_there_after_everything_was_deleted_and_written_anew() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let long = |at: usize| format!("prompt {at} ").repeat(2_000);
        for at in 0..8 {
            let new = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            table.insert(new, [("prompt", long(at).into())]).unwrap();
        }
        let snapshot = take(&client);
        let shown = snapshot.table("solver").unwrap();
        for round in 0..3 {
            table.delete(&Delete::all_confirmed().force()).unwrap();
            world.store.sync().unwrap();
            world.store.compact().unwrap();
            for at in 0..8 {
                let new = NewRow::new(0, &format!("r{round}n{at}_0_0")).unwrap();
                table.insert(new, [("prompt", "other ".repeat(3_000).into())]).unwrap();
            }
        }
        let prompts = texts(&read(&shown, ReadRows::default().columns(["prompt"])), "prompt");
        assert_eq!(prompts, (0..8).map(long).collect::<Vec<_>>());
    });
}
