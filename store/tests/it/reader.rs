//! Reading beside a writer: in the same process, and in another one that is killed.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forebay_store::*;

use crate::support::*;

fn reader(world: &World) -> Store {
    Store::open(ROOT, world.options().read_only(true)).unwrap()
}

/// How many records the reader in the first slot says that it has seen.
fn sees(world: &World) -> u64 {
    let slot = Path::new(ROOT).join("readers/00000001.slot");
    let text = String::from_utf8((&world.disk as &dyn Disk).read(&slot).unwrap()).unwrap();
    text.split_whitespace().nth(3).unwrap().parse().unwrap()
}

fn long(i: i32) -> Value<'static> {
    vec![i; 100].into()
}

#[test]
fn a_reader_sees_what_was_written_and_after_a_refresh_what_has_come_since() {
    let world = World { segment_bytes: 512, ..World::new() }; // a new segment every few records
    let (store, table) = solver(&world);
    let beside = reader(&world);
    assert_eq!(scan(&beside), scan(&store));
    assert_eq!(beside.refresh().unwrap(), 0);
    for i in 0..200 {
        let row =
            table.insert(0, &format!("q{i}_0_0"), [("prompt", "a prompt of some length".into())]).unwrap();
        table.write(row, [("response", long(i))]).unwrap();
        if i % 50 == 33 {
            store.checkpoint().unwrap(); // and what it makes superfluous stays while the reader needs it
        }
        if i % 10 == 0 {
            assert_eq!(beside.refresh().unwrap(), if i == 0 { 2 } else { 20 });
            assert_eq!(scan(&beside), scan(&store), "after {i}");
        }
    }
    let late = store.create_table("late", solver_schema()).unwrap();
    finished(&late, 0, "q_0_0");
    beside.refresh().unwrap();
    assert_eq!(scan(&beside), scan(&store));
    assert_eq!(beside.snapshot().commit(), store.snapshot().commit());
    assert_eq!(store.refresh().unwrap(), 0, "a writer has nothing to take in");
}

#[test]
fn what_a_snapshot_of_a_reader_shows_stays_and_holds_the_slot() {
    let world = World::new();
    let (_store, table) = solver(&world);
    let row = finished(&table, 0, "q0_0_0");
    table.write(row, [("response", long(1))]).unwrap();
    let beside = reader(&world);
    let first = sees(&world);
    let snapshot = beside.snapshot();
    finished(&table, 0, "q1_0_0");
    assert_eq!(beside.refresh().unwrap(), 1);
    assert_eq!(sees(&world), first, "the snapshot is of that time");
    assert_eq!(scan_of(snapshot.table("solver").unwrap(), |_| true).len(), 1);
    drop(snapshot);
    beside.refresh().unwrap();
    assert_eq!(sees(&world), first + 1);

    let bytes = beside.table("solver").unwrap().cell(row, "response").unwrap();
    finished(&table, 0, "q2_0_0");
    beside.refresh().unwrap();
    assert_eq!(sees(&world), first + 1, "the value may still be read");
    drop(bytes);
    beside.refresh().unwrap();
    assert_eq!(sees(&world), first + 2);
}

#[test]
fn an_object_that_a_reader_may_read_is_not_removed() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let step = |version: u64| {
        finished(&table, version, &format!("q{version}_0_0"));
        let object = store.put_object("solver", version + 1, &[version as u8; 100]).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![object.clone()])]).unwrap();
        object
    };
    let first = step(0);
    let beside = reader(&world);
    (1..5).for_each(|version| drop(step(version)));
    assert_eq!(beside.policy("solver").unwrap().objects, std::slice::from_ref(&first));
    assert_eq!(beside.object(&first).unwrap(), [0; 100], "four versions later");
    beside.refresh().unwrap();
    step(5);
    assert!(beside.object(&first).is_ok(), "the last step is news to the reader");
    drop(beside);
    step(6);
    store.sync().unwrap();
    store.run_once().unwrap();
    assert!(store.object(&first).is_err(), "nobody reads, and all is durable, so old versions go");
}

#[test]
fn a_reader_where_there_is_no_store_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let error = Store::open_read_only(&path).unwrap_err();
    assert!(matches!(error.cause(), Cause::NotAStore { .. }), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_damaged_log_closes_the_reader_with_its_file_and_place() {
    let world = World::new();
    let (_store, table) = solver(&world);
    let beside = reader(&world);
    let log = Path::new(ROOT).join("log/00000001.log");
    let end = image_of(&world.disk)[&log].len();
    finished(&table, 0, "q0_0_0");
    world.disk.flip_byte(&log, end + 40);
    let error = beside.refresh().unwrap_err().to_string();
    assert!(error.contains("00000001.log") && error.contains(&format!("offset {end}")), "{error}");
    assert_eq!(beside.refresh().unwrap_err().kind(), Kind::Closed);
}

#[test]
fn a_reader_goes_on_behind_a_segment_that_it_has_read_to_its_end_and_that_is_gone() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "q0_0_0");
    let beside = reader(&world);
    drop((store, table));
    let store = world.open(); // in a segment of its own
    world.disk.remove(&Path::new(ROOT).join("log/00000001.log")).unwrap();
    finished(&store.table("solver").unwrap(), 0, "q1_0_0");
    beside.refresh().unwrap();
    assert_eq!(scan(&beside), scan(&store));
}

// There was no room for its header and the log goes on with the segment that it has, or the process ended in there.
#[test]
fn a_reader_leaves_a_segment_once_the_next_one_has_begun() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "q0_0_0");
    let beside = reader(&world);
    let sees_all = |store: &Store| {
        beside.refresh().unwrap();
        assert_eq!(scan(&beside), scan(store));
    };
    let next = Path::new(ROOT).join("log/00000002.log");
    for header_bytes in [0, 63] {
        world.disk.create(&next).unwrap().append(&vec![0; header_bytes]).unwrap();
        sees_all(&store);
        finished(&table, 0, &format!("q1_0_{header_bytes}"));
        sees_all(&store);
        world.disk.remove(&next).unwrap();
    }
    world.disk.create(&next).unwrap();
    drop((store, table));
    let store = world.open();
    finished(&store.table("solver").unwrap(), 0, "q2_0_0"); // in the third
    sees_all(&store);
}

// What lies before the checkpoint is nobody's, but a reader may stand at its end.
#[test]
fn an_opening_after_a_failed_sync_leaves_a_reader_the_segment_that_it_stands_in() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "q0_0_0");
    store.checkpoint().unwrap();
    let beside = reader(&world);
    drop((store, table));
    drop(world.open()); // its first record comes right after the checkpoint
    world.disk.create(&Path::new(ROOT).join("DOUBT")).unwrap();
    let store = world.open();
    assert!(
        store.recovery().checked && world.disk.exists(&Path::new(ROOT).join("log/00000001.log")).unwrap()
    );
    finished(&store.table("solver").unwrap(), 0, "q1_0_0");
    beside.refresh().unwrap();
    assert_eq!(scan(&beside), scan(&store));
}

#[test]
fn a_check_beside_a_writer_holds_for_what_was_written() {
    let world = World::new();
    let (store, table) = solver(&world);
    for i in 0..20 {
        let row = finished(&table, 0, &format!("q{i}_0_0"));
        table.write(row, [("response", long(i))]).unwrap();
        let report = verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_sound(), "{:?}", report.faults);
        assert_eq!(report.next_sequence, store.snapshot().commit());
    }
}

/// What another process does, chosen by `FOREBAY_TEST_ROLE`; it is not a test of its own.
#[test]
#[ignore = "the other process of the tests below"]
fn in_another_process() {
    let path = std::env::var("FOREBAY_TEST_STORE").unwrap();
    let say = |line: &str| {
        println!("{line}");
        std::io::stdout().flush().unwrap();
    };
    match std::env::var("FOREBAY_TEST_ROLE").unwrap().as_str() {
        "write" => {
            let store = Store::open(&path, Options::default().extent_bytes(4096, 1 << 16)).unwrap();
            let table = store.create_table("solver", solver_schema()).unwrap();
            for i in 0.. {
                let row = table.insert(0, &format!("q{i}_0_0"), [("response", long(i))]).unwrap();
                table.write(row, [("reward", f64::from(i).into())]).unwrap();
                if i == 0 {
                    say("begun");
                }
            }
        }
        _ => {
            let store = Store::open_read_only(&path).unwrap();
            say("begun");
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            drop(store);
        }
    }
}

struct Other(Child);

impl Other {
    fn begin(role: &str, store: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reader::in_another_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env("FOREBAY_TEST_ROLE", role)
            .env("FOREBAY_TEST_STORE", store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("begun")), "{role} did not begin");
        Other(child)
    }

    /// Ends it as `kill -9` does, at whatever it is doing.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Every row that is shown is whole: its values are what its number says.
fn check_rows(store: &Store) -> usize {
    let rows = pick(store, "solver", &["sample_id", "response", "reward"]);
    for row in &rows {
        let number = row[0].trim_matches('"').strip_prefix('q').unwrap().split('_').next().unwrap();
        assert!(row[1].contains(number), "{row:?}");
        assert!(
            row[2] == "null" || row[2].parse::<f64>().unwrap() == number.parse::<f64>().unwrap(),
            "{row:?}"
        );
    }
    rows.len()
}

#[test]
fn a_process_reads_beside_one_that_writes_until_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let writer = Other::begin("write", &path);
    let beside = Store::open_read_only(&path).unwrap();
    let error = Store::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error.cause(), Cause::Locked { .. }), "{error}");
    let mut rows = check_rows(&beside);
    let wanted = rows + 2000;
    while rows < wanted {
        beside.refresh().unwrap();
        let now = check_rows(&beside);
        assert!(now >= rows);
        rows = now;
        if rows.is_multiple_of(7) {
            let report = verify(&path, &Options::default(), &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(report.is_sound(), "{:?}", report.faults);
        }
    }
    writer.kill();
    beside.refresh().unwrap();
    let left = scan(&beside);
    let store = Store::open(&path, Options::default()).unwrap(); // the reader does not keep it out
    assert_eq!(scan(&store), left);
    finished(&store.table("solver").unwrap(), 0, "after_0_0");
    beside.refresh().unwrap();
    assert_eq!(scan(&beside), scan(&store));
}

#[test]
fn the_slot_of_a_reader_ends_with_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    drop(Store::open(&path, Options::default()).unwrap());
    let slots = || std::fs::read_dir(path.join("readers")).unwrap().count();
    let one = Other::begin("read", &path);
    let two = Other::begin("read", &path);
    assert_eq!(slots(), 2);
    one.kill();
    two.kill();
    let readers = [(), ()].map(|()| Store::open_read_only(&path).unwrap());
    assert_eq!(slots(), 2, "slots of the dead are used again");
    drop(readers);
}

#[test]
fn a_reader_lets_go_of_extents_that_the_writer_has_removed() {
    let world = World::new();
    let (store, table) = solver(&world);
    let beside = reader(&world);
    for round in 0..5 {
        (0..50).for_each(|i| {
            _ = table.insert(round, &format!("q{i}_0_0"), [("response", long(i))]).unwrap();
        });
        beside.refresh().unwrap();
        assert!(beside.extents().len() > 3, "round {round}: {}", beside.extents().len());
        table.delete(&Delete::version(round).force()).unwrap();
        beside.refresh().unwrap();
        store.compact().unwrap();
        table.insert(round + 1, "next_0_0", []).unwrap(); // a reader looks when there is something to read
        beside.refresh().unwrap();
        let numbers = |of: &Store| of.extents().iter().map(|extent| extent.number).collect::<Vec<_>>();
        assert_eq!(numbers(&beside), numbers(&store), "round {round}");
        assert_eq!(scan(&beside), scan(&store));
    }
}
