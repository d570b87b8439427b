//! Opening what a process left behind, and refusing what is not a store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use forebay_store::*;

use crate::support::*;

/// A store with something of everything in it, whose process has died.
fn lived() -> World {
    let world = World::new();
    let (store, table, train) = trained(&world, Some(2));
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for i in 0..6 {
        let row = finished(&table, 0, &format!("q{}_0_{}", i / 2, i % 2));
        table.write(row, [("response", vec![i; 30].into())]).unwrap();
    }
    table.exclude(table.insert(0, "gone_0_0", []).unwrap(), "lost").unwrap();
    train_once(&store, &train, StepPlan::new().groups(&train, ["q0", "q1"]), "solver");
    let row = table.insert(1, "q0_0_0", [("prompt", "half a row".into())]).unwrap();
    table.append(row, "response", vec![7_i32; 20].into()).unwrap();
    std::mem::forget(task.claim(MicroBatch::of(1), "me", Wait::No).unwrap());
    std::mem::forget(store);
    world.disk.restart();
    world
}

// FX-12
#[test]
fn what_was_held_comes_back_once_and_what_was_committed_does_not() {
    let world = World::new();
    let (store, table, train) = trained(&world, Some(2));
    (0..8).for_each(|i| _ = finished(&table, 0, &format!("q{}_0_{}", i / 2, i % 2)));
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1", "q2"])).unwrap();
    let take = |step: &Step, train| step.next(train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    take(&step, &train).accumulated().unwrap();
    std::mem::forget((take(&step, &train), step));
    let before = scan_content(&store);

    let store = world.reopen(store);
    assert_eq!(scan_content(&store), before);
    assert_eq!(store.consumers()[0].ready_rows, 8);
    let ends: Vec<ClaimProgress> = store.claims().iter().map(|claim| claim.progress).collect();
    assert_eq!(ends, [ClaimProgress::Lost], "the lease was nowhere but in its process");
    assert_eq!(store.steps()[0].progress, StepProgress::Abandoned);
    let train = store.consumer("train").unwrap();
    assert_eq!(train_once(&store, &train, StepPlan::new().groups(&train, ["q0", "q1", "q2"]), "solver"), 6);
    check_counts(&store);

    let store = world.reopen(store);
    assert_eq!(store.consumers()[0].ready_rows, 0);
    assert_eq!(pick(&store, "solver", &["step"]).iter().filter(|row| row[0] == "1").count(), 6);
    assert_eq!(store.table("solver").unwrap().counts().excluded["stale"], 2);
    check_counts(&store);
}

#[test]
fn a_partial_cell_grows_on_in_the_next_process() {
    let world = lived();
    let store = world.open();
    let table = store.table("solver").unwrap();
    let row = table.find(1, &"q0_0_0".parse().unwrap()).unwrap();
    table.append(row, "response", vec![8_i32].into()).unwrap();
    table.finalize(row, "response").unwrap();
    let store = world.reopen(store);
    let expected = ["7 "; 20].concat() + "8";
    assert_eq!(pick(&store, "solver", &["response"]).last().unwrap()[0], expected);
}

#[test]
fn reopening_shows_the_same_whatever_the_size_of_segments() {
    for bytes in [0, 1, 200, 4096, 1 << 20] {
        let world = World::new();
        let open = || Store::open(ROOT, world.options().segment_bytes_max(bytes)).unwrap();
        let mut store = open();
        store.create_table("solver", solver_schema()).unwrap();
        for life in 0..4 {
            let table = store.table("solver").unwrap();
            (0..9).for_each(|i| _ = finished(&table, 0, &format!("q{life}_0_{i}")));
            let before = scan(&store);
            drop((store, table));
            store = open();
            assert_eq!(scan(&store), before);
        }
        let segments = files_with(&image_of(&world.disk), "log").len();
        assert!(if bytes <= 1 { segments > 36 } else { segments >= 5 }, "{bytes}: {segments}");
    }
}

#[test]
fn fifty_lives_lose_nothing_and_give_back_everything() {
    let world = World::new();
    let (mut store, ..) = trained(&world, None);
    store.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let mut acknowledged = BTreeMap::new();
    for life in 0..50_u32 {
        let table = store.table("solver").unwrap();
        let id = format!("q{life}_0_0");
        let text = format!("what life {life} wrote, at some length");
        let row = table.insert(0, &id, [("prompt", (&*text).into())]).unwrap();
        acknowledged.insert(id, text);
        table.append(row, "response", vec![life as i32; 5].into()).unwrap();
        let task = store.consumer("task").unwrap();
        let claim = task.claim(MicroBatch::up_to(1000), "me", Wait::No).unwrap().unwrap();
        assert!(claim.len() > life as usize, "every row is there again");
        std::mem::forget(claim);
        // The process dies in the middle of its next write: at the log, or while it begins a file.
        world.disk.fail_at(world.disk.operations() + 1 + u64::from(life % 3));
        let long = "x".repeat(5000);
        for part in 0..2 {
            _ = table.insert(0, &format!("torn{life}_0_{part}"), [("prompt", (&*long).into())]);
        }
        store = world.reopen(store);
        check_counts(&store);
    }
    let found = pick(&store, "solver", &["sample_id", "prompt"]);
    for (id, text) in &acknowledged {
        assert!(found.contains(&vec![id.clone(), text.clone()]), "{id}");
    }
}

#[test]
fn a_last_record_cut_at_any_length_is_absent_and_only_that() {
    let world = World::new();
    let (store, table) = solver(&world);
    finished(&table, 0, "kept_0_0");
    let before = scan(&store);
    let path = files_with(&image_of(&world.disk), "log").remove(0);
    let start = image_of(&world.disk)[&path].len();
    finished(&table, 0, "cut_0_0");
    let after = scan(&store);
    let image = image_of(&world.disk);
    let end = image[&path].len();
    for length in start..=end {
        let world = World::on(disk_of(&image));
        world.disk.truncate(&path, length);
        let expected = if length == end { &after } else { &before };
        let store = world.open();
        assert_eq!(&scan(&store), expected, "cut at {length} of {start}..{end}");
        finished(&store.table("solver").unwrap(), 0, "later_0_0");
        let then = scan(&store);
        let store = world.reopen(store);
        assert_eq!(scan(&store), then, "cut at {length}, written to, and opened again");
    }
}

#[test]
fn a_segment_cut_short_in_the_middle_of_the_log_is_corrupt() {
    let world = lived();
    drop(world.open()); // a second segment
    let image = image_of(&world.disk);
    let paths = files_with(&image, "log");
    assert!(paths.len() >= 2);
    for length in 0..image[&paths[0]].len() {
        let disk = disk_of(&image);
        disk.truncate(&paths[0], length);
        let error = World::on(disk).try_open().unwrap_err();
        assert!(matches!(error.cause(), Cause::Corrupt { .. }), "cut at {length}: {error}");
    }
    let mut missing = image.clone();
    missing.remove(&paths[0]);
    assert_eq!(World::on(disk_of(&missing)).try_open().unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_flipped_byte_anywhere_in_the_log_is_corrupt_with_file_and_offset() {
    let world = lived();
    drop(world.open());
    let image = image_of(&world.disk);
    for path in files_with(&image, "log") {
        for at in 0..image[&path].len() {
            let disk = disk_of(&image);
            disk.flip_byte(&path, at);
            let error = World::on(disk).try_open().unwrap_err();
            let Cause::Corrupt { path: named, offset, .. } = error.cause() else {
                panic!("byte {at}: {error}")
            };
            assert_eq!(named, &path);
            assert!(*offset <= at as u64, "byte {at} is named at {offset}");
        }
    }
}

#[test]
fn a_flipped_byte_in_the_identity_or_in_an_extents_header_is_refused() {
    let world = lived();
    let image = image_of(&world.disk);
    let paths = [vec![Path::new(ROOT).join("FOREBAY")], files_with(&image, "extent")].concat();
    assert!(paths.len() > 1);
    for path in paths {
        for at in 0..64 {
            let disk = disk_of(&image);
            disk.flip_byte(&path, at);
            let error = World::on(disk).try_open().unwrap_err();
            let version = matches!(error.cause(), Cause::FormatVersion { .. }) && (8..12).contains(&at);
            assert!(version || error.kind() == Kind::Corrupt, "{} byte {at}: {error}", path.display());
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn an_extent_that_is_missing_or_short_is_named_when_its_value_is_read() {
    let image = image_of(&lived().disk);
    let path = files_with(&image, "extent").remove(0);
    for short in [Some(0), Some(40), Some(64), Some(100), None] {
        let mut image = image.clone();
        match short {
            Some(length) => image.get_mut(&path).unwrap().truncate(length),
            None => drop(image.remove(&path)),
        }
        let store = World::on(disk_of(&image)).open();
        assert_eq!(pick(&store, "solver", &["reward_status"]).len(), 8, "statuses are there");
        let table = store.table("solver").unwrap();
        let row = table.find(0, &"q0_0_0".parse().unwrap()).unwrap();
        let error = table.cell(row, "response").unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.to_string().contains("00000001.extent"), "{error}");
    }
}

#[test]
fn what_is_not_a_store_is_refused_and_left_as_it_is() {
    let file = |path: &str, bytes: &[u8]| (Path::new(ROOT).join(path), bytes.to_vec());
    let cases: [(&str, Image, &str); 5] = [
        ("a directory of something else", Image::from([file("notes.txt", b"mine")]), "not empty"),
        (
            "a directory with a log folder of its own",
            Image::from([file("log/app.log", b"12:00 started")]),
            "not empty",
        ),
        ("an identity that is none", Image::from([file("FOREBAY", b"hello")]), "mark of a Forebay store"),
        ("an empty identity", Image::from([file("FOREBAY", b"")]), "mark of a Forebay store"),
        ("another format", Image::from([file("FOREBAY", &other_format())]), "on-disk format 9"),
    ];
    for (what, image, reason) in cases {
        let world = World::on(disk_of(&image));
        let error = world.try_open().unwrap_err();
        assert!(error.to_string().contains(reason), "{what}: {error}");
        let mut after = image_of(&world.disk);
        after.remove(&Path::new(ROOT).join("LOCK"));
        assert_eq!(after, image, "{what}");
    }
    let nowhere = World::new();
    for options in [nowhere.options().create(false), nowhere.options().read_only(true)] {
        assert!(matches!(Store::open(ROOT, options).unwrap_err().cause(), Cause::NotAStore { .. }));
    }
    assert_eq!(nowhere.disk.operations(), 0, "nothing was made");
}

fn other_format() -> Vec<u8> {
    let world = World::new();
    drop(world.open());
    let mut bytes = image_of(&world.disk).remove(&Path::new(ROOT).join("FOREBAY")).unwrap();
    bytes[8] = 9;
    bytes
}

#[test]
fn a_segment_of_another_store_is_corrupt() {
    let world = lived();
    let mut image = image_of(&world.disk);
    let other = World::new();
    let options = other.options().randomness(Arc::new(SeededRandomness::new(8)));
    drop(Store::open(ROOT, options).unwrap());
    let path = files_with(&image, "log").remove(0);
    image.insert(path.clone(), image_of(&other.disk)[&path].clone());
    let error = World::on(disk_of(&image)).try_open().unwrap_err();
    assert!(error.to_string().contains("another store"), "{error}");
}

/// Every file below a directory of the machine, with its bytes.
fn tree(path: &Path) -> Image {
    let mut image = Image::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            image.extend(tree(&path));
        } else {
            image.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    image
}

/// Whoever opens a store knows nothing of values that an earlier opening gave out, and may use their space again.
#[test]
fn a_store_stays_locked_while_its_values_are_held() {
    let text = "a text that is too long to lie in its view";
    type Hold = fn(&Store, Claim) -> Box<dyn std::any::Any>;
    let held: [Hold; 4] = [
        |_, claim| Box::new(claim.cells("prompt").unwrap()),
        |_, claim| Box::new(claim.columns(["prompt"]).unwrap()),
        |store, _| Box::new(store.snapshot()),
        |store, _| {
            let snapshot = store.snapshot();
            let rows = snapshot.table("solver").unwrap().scan(None, ScanOrder::Arrival, 8).unwrap();
            Box::new(rows.collect::<Result<Vec<_>>>().unwrap())
        },
    ];
    for hold in held {
        let world = World::new();
        let (store, table) = solver(&world);
        let task = store.create_consumer("task", Consumer::task(["solver"])).unwrap();
        table.insert(0, "q_0_0", [("prompt", text.into())]).unwrap();
        let claim = task.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
        let held = hold(&store, claim);
        drop((task, table, store));
        let error = world.try_open().unwrap_err();
        assert!(matches!(error.cause(), Cause::Locked { .. }), "{error}");
        assert!(error.to_string().contains("let go of its handles, and of the snapshots, values"), "{error}");
        drop(held);
        world.open();
    }
}

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/store");
    let store = Store::open(&path, Options::default()).unwrap();
    let error = Store::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error.cause(), Cause::Locked { pid, .. } if *pid == std::process::id()), "{error}");
    assert!(error.to_string().contains("that is this one: let go of its handles"), "{error}");
    let clone = store.clone();
    drop(store);
    assert!(Store::open(&path, Options::default()).is_err(), "a handle is left");
    drop(clone);
    Store::open(&path, Options::default()).unwrap();
}

#[test]
fn reading_only_changes_no_byte_and_refuses_every_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let writer = Store::open(&path, Options::default()).unwrap();
    let table = writer.create_table("solver", solver_schema()).unwrap();
    let task = writer.create_consumer("task", Consumer::task(["solver"])).unwrap();
    let train = writer.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    let row = finished(&table, 0, "q_0_0");
    table.append(row, "response", vec![1_i32; 50].into()).unwrap();
    let object = writer.put_object("solver", 0, b"weights").unwrap();
    let before = scan(&writer);
    drop((writer, table, task, train));
    let files = tree(&path);

    let one = Store::open(&path, Options::default().read_only(true)).unwrap();
    let store = Store::open(&path, Options::default().read_only(true)).unwrap();
    assert_eq!(scan(&store), before);
    assert_eq!(scan(&one), before);
    assert_eq!(store.object(&object).unwrap(), b"weights");
    let table = store.table("solver").unwrap();
    let row = table.find(0, &"q_0_0".parse().unwrap()).unwrap();
    assert!(matches!(table.cell(row, "response").unwrap(), Cell::Partial(bytes) if bytes.len() == 200));
    let (task, train) = (store.consumer("task").unwrap(), store.consumer("train").unwrap());
    let refused: [(&str, Result<()>); 13] = [
        ("create a table", store.create_table("new", Schema::new()).map(drop)),
        ("create a policy", store.create_policy("new", 0, &[])),
        ("create a consumer", store.create_consumer("new", Consumer::task(["solver"])).map(drop)),
        ("insert", table.insert(0, "q_0_1", []).map(drop)),
        ("insert a long value", table.insert(0, "q_0_1", [("prompt", "x".repeat(99).into())]).map(drop)),
        ("write", table.write(row, [("logprobs", vec![1_f32; 50].into())])),
        ("append", table.append(row, "response", vec![1_i32; 50].into())),
        ("finalize", table.finalize(row, "response")),
        ("exclude", table.exclude(row, "x")),
        ("claim", task.claim(MicroBatch::of(1), "me", Wait::No).map(drop)),
        ("begin a step", store.begin_step(StepPlan::new().rows(&train, 1)).map(drop)),
        ("put an object", store.put_object("solver", 1, b"x").map(drop)),
        ("take leases back", store.run_once().map(drop)),
    ];
    for (what, result) in refused {
        assert!(matches!(result.unwrap_err().cause(), Cause::ReadOnly { .. }), "{what}");
    }
    drop((store, table, task, train, one));
    std::fs::remove_dir_all(path.join("readers")).unwrap(); // the readers' slots, which are all that they write
    assert_eq!(tree(&path), files);
}

#[test]
fn a_store_on_the_machines_disk_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::open(folder.path(), Options::default().extent_bytes(4096, 1 << 16)).unwrap();
    let store = open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for i in 0..300 {
        let row = finished(&table, 0, &format!("q_0_{i}"));
        table.append(row, "response", vec![i; i as usize % 90].into()).unwrap();
        table.finalize(row, "response").unwrap();
    }
    let before = scan(&store);
    drop((store, table));
    assert_eq!(scan(&open()), before);
}

/// Told when the failing append has begun; the append goes on when answered.
type Pause = Arc<Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>>;

/// A disk that fails one append (after half of it) or one allocation when told to, and works on as if nothing had been.
#[derive(Debug)]
struct Faulty {
    disk: SimulatedDisk,
    armed: Arc<AtomicBool>,
    pause: Pause,
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn DiskFile>,
    armed: Arc<AtomicBool>,
    pause: Pause,
}

impl DiskFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        if !self.armed.swap(false, Ordering::SeqCst) {
            return self.file.append(bytes);
        }
        if let Some((begun, go_on)) = self.pause.lock().unwrap().take() {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        self.file.append(&bytes[..bytes.len() / 2])?;
        Err(std::io::ErrorKind::StorageFull.into())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_at(buffer, offset)
    }
    fn set_length(&self, length: u64) -> std::io::Result<()> {
        self.file.set_length(length)
    }
    fn punch(&self, offset: u64, length: u64) -> std::io::Result<()> {
        self.file.punch(offset, length)
    }
    fn length(&self) -> std::io::Result<u64> {
        self.file.length()
    }
    fn allocate(&self, length: u64) -> std::io::Result<()> {
        if self.armed.swap(false, Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.file.allocate(length)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
    fn map(&self, length: usize) -> std::io::Result<Arc<Mapping>> {
        self.file.map(length)
    }
}

impl Disk for Faulty {
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        Ok(Box::new(FaultyFile { file, armed: self.armed.clone(), pause: self.pause.clone() }))
    }
    fn open(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn open_writable(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        self.disk.open_writable(path)
    }
    fn create_directory(&self, path: &Path) -> std::io::Result<()> {
        self.disk.create_directory(path)
    }
    fn list(&self, path: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_directory(&self, path: &Path) -> std::io::Result<()> {
        self.disk.sync_directory(path)
    }
    fn boot(&self) -> u128 {
        self.disk.boot()
    }
    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> std::io::Result<Option<Box<dyn HeldLock>>> {
        self.disk.lock(path, kind, note)
    }
}

/// A full disk fails the append of one thread while others have records in the buffer behind it, and answers to give
/// that rest on them. None of them may be told that all is well.
#[test]
fn when_the_log_fails_nobody_is_acknowledged_for_what_is_not_in_it() {
    let world = World::new();
    let (armed, pause) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let faulty = Faulty { disk: world.disk.clone(), armed: armed.clone(), pause: Pause::clone(&pause) };
    let store = Store::open(ROOT, world.options().disk(Arc::new(faulty))).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let kept = scan(&store);
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    *pause.lock().unwrap() = Some((begun, may_go_on));
    armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let insert = |id: &'static str, token| {
            let table = &table;
            scope.spawn(move || table.insert_row(NewRow::new(0, id).unwrap().token(token), []).map(drop))
        };
        let first = insert("a_0_0", 1);
        has_begun.recv().unwrap();
        let mut others = vec![insert("b_0_0", 2), insert("a_0_0", 1)];
        while table.counts().written < 2 {
            std::thread::yield_now();
        }
        others.push(insert("b_0_0", 2));
        go_on.send(()).unwrap();
        let error = first.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), Kind::Closed);
        assert!(error.to_string().contains("no room"), "{error}");
        for other in others {
            assert_eq!(other.join().unwrap().unwrap_err().kind(), Kind::Closed);
        }
    });
    assert_eq!(table.insert(0, "c_0_0", []).unwrap_err().kind(), Kind::Closed);
    let store = world.reopen(store);
    assert_eq!(scan(&store), kept);
    finished(&store.table("solver").unwrap(), 0, "d_0_0");
    assert_eq!(scan(&world.reopen(store))["solver"].len(), 1);
}

#[test]
fn a_full_disk_refuses_a_value_and_the_store_goes_on() {
    let world = World::new();
    let armed = Arc::new(AtomicBool::new(false));
    let faulty = Faulty { disk: world.disk.clone(), armed: armed.clone(), pause: Arc::default() };
    let store = Store::open(ROOT, world.options().disk(Arc::new(faulty))).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    armed.store(true, Ordering::SeqCst); // space for an extent is asked for next
    let text = "a value that lies in an extent";
    let error = table.insert(0, "q_0_0", [("prompt", text.into())]).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity);
    table.insert(0, "q_0_0", [("prompt", text.into())]).unwrap();
    assert_eq!(pick(&world.reopen(store), "solver", &["prompt"]), [[text]]);
}
