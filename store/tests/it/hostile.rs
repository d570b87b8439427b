//! Damaged and forged files: an error or the bytes that are there, never a panic, and no memory out of proportion.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Slot;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use forebay_store::*;
use proptest::prelude::*;

use crate::support::*;

/// The system's allocator, which remembers each thread's greatest request.
struct Watching;

thread_local! {
    static GREATEST: Slot<usize> = const { Slot::new(0) };
}

#[allow(unsafe_code, reason = "an allocator that hands everything on to the system's")]
// SAFETY: every call goes to `System` with the arguments that came; the thread-local is a plain number without a
// destructor, so touching it allocates nothing.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GREATEST.with(|greatest| greatest.set(greatest.get().max(layout.size())));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`; every pointer came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        GREATEST.with(|greatest| greatest.set(greatest.get().max(layout.size())));
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        GREATEST.with(|greatest| greatest.set(greatest.get().max(size)));
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// A small store with something of everything in it.
pub(crate) fn victim() -> Image {
    static VICTIM: OnceLock<Image> = OnceLock::new();
    VICTIM.get_or_init(make_victim).clone()
}

fn make_victim() -> Image {
    let world = World::new();
    let store = world.open();
    let schema =
        solver_schema().data("image", DataType::tensor(Element::UInt8, [4, 4])).data("raw", DataType::Binary);
    let table = store.create_table("solver", schema).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]).group(GroupBy::Input, 2);
    let train = store.create_consumer("train", declared).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for i in 0..4 {
        let row = finished(&table, 0, &format!("q{}_0_{}", i / 2, i % 2));
        let image = Value::Numbers(Element::UInt8, vec![i as u8; 16].into());
        table
            .write(
                row,
                [("response", vec![i; 20].into()), ("image", image), ("raw", (&[7_u8; 30][..]).into())],
            )
            .unwrap();
    }
    table.exclude(table.insert(0, "gone_0_0", []).unwrap(), "lost").unwrap();
    table.insert_row(NewRow::new(0, "gone_0_0").unwrap().next_attempt().excluded("lost again"), []).unwrap();
    task.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap().finish(|_| Ok(())).unwrap();
    let weights = store.put_object("solver", 1, b"weights").unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0"])).unwrap();
    step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![weights])]).unwrap();
    let row = table.insert(1, "q0_0_0", [("prompt", "half a row".into())]).unwrap();
    table.append(row, "response", vec![7_i32; 20].into()).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    std::mem::forget((task.claim(MicroBatch::of(1), "me", Wait::No).unwrap(), step, store));
    world.disk.restart();
    image_of(&world.disk)
}

/// Opens an image and uses everything in it. Errors are fine; a panic or a great allocation is not.
fn use_all(image: &Image) -> bool {
    GREATEST.with(|greatest| greatest.set(0));
    let world = World::on(disk_of(image));
    let Ok(store) = world.try_open() else { return false };
    let snapshot = store.snapshot();
    for table in snapshot.tables() {
        let all: Vec<usize> =
            (0..table.arrow_schema().fields().len()).filter(|&at| is_small(table, at)).collect();
        let batches = table.scan(Some(&all), ScanOrder::SampleId, 3).unwrap();
        batches.flatten().for_each(|batch| drop(show_batch(&batch)));
    }
    _ = (store.claims(), store.steps(), store.consumers(), store.stats());
    for policy in store.policies() {
        policy.objects.iter().for_each(|object| drop(store.object(object)));
    }
    for name in store.tables() {
        let table = store.table(&name).unwrap();
        _ = table.counts().open();
        for i in 0..4 {
            let row = NewRow::new(2, &format!("new_0_{i}")).unwrap().next_attempt();
            _ = table.insert_row(row, [("prompt", "x".repeat(40).into())]);
            let Ok(row) = table.insert(2, &format!("new_0_{i}"), [("reward", 1.0.into())]) else { continue };
            _ = (table.append(row, "response", vec![1_i32; 20].into()), table.finalize(row, "response"));
            _ = table.exclude(row, "superseded");
        }
    }
    take_all(&store);
    drop(world.reopen(store)); // whatever the calls led to can be read again
    true
}

/// A tensor of a great shape takes its room in an Arrow array even where it is null; a forged schema may declare one.
fn is_small(table: &TableSnapshot, column: usize) -> bool {
    let size = |c: &DataColumn| match &c.data_type {
        DataType::Tensor(_, shape) => shape.iter().map(|&side| side as usize).product(),
        _ => 0_usize,
    };
    let schema = table.arrow_schema();
    table.schema().data_columns().iter().all(|c| c.name != *schema.field(column).name() || size(c) < 1 << 16)
}

fn take_all(store: &Store) {
    for info in store.consumers() {
        let consumer = store.consumer(&info.name).unwrap();
        if let Ok(Some(claim)) = consumer.claim(MicroBatch::up_to(9), "me", Wait::No) {
            drop((claim.columns(["prompt", "response"]), claim.release()));
        }
        let plan = StepPlan::new().rows(&consumer, 2);
        if let Ok(step) = store.begin_step(plan) {
            if let Ok(Some(claim)) = step.next(&consumer, MicroBatch::up_to(9), Wait::No) {
                _ = claim.accumulated();
            }
            let names: Vec<String> = store.policies().into_iter().map(|policy| policy.name).collect();
            _ = step.commit(names.iter().map(|name| (name.as_str(), vec![])));
        }
    }
}

fn check(image: &Image, what: &str) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(|| use_all(image)));
    let greatest = GREATEST.with(Slot::get);
    assert!(greatest < 64 << 20, "{what}: {greatest} bytes were asked for at once");
    outcome.unwrap_or_else(|_| panic!("{what}: a panic"))
}

#[derive(Clone, Debug)]
enum Damage {
    Byte { file: usize, at: usize, value: u8 },
    Word { file: usize, at: usize, value: u32 },
    Cut { file: usize, at: usize },
    Grow { file: usize, by: usize, value: u8 },
    Swap { file: usize, other: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    let words = prop_oneof![any::<u32>(), Just(u32::MAX), Just(0), Just(1 << 31), 0..100_u32];
    prop_oneof![
        (0..9_usize, any::<usize>(), any::<u8>()).prop_map(|(file, at, value)| Damage::Byte {
            file,
            at,
            value
        }),
        (0..9_usize, any::<usize>(), words).prop_map(|(file, at, value)| Damage::Word { file, at, value }),
        (0..9_usize, any::<usize>()).prop_map(|(file, at)| Damage::Cut { file, at }),
        (0..9_usize, 1..200_usize, any::<u8>()).prop_map(|(file, by, value)| Damage::Grow {
            file,
            by,
            value
        }),
        (0..9_usize, 0..9_usize).prop_map(|(file, other)| Damage::Swap { file, other }),
    ]
}

fn apply(image: &mut Image, damage: &Damage) {
    let mut paths = [files_with(image, "log"), files_with(image, "extent")].concat();
    paths.push(Path::new(ROOT).join("FOREBAY"));
    let path = |file: usize| paths[file % paths.len()].clone();
    match *damage {
        Damage::Byte { file, at, value } => overwrite(image.get_mut(&path(file)).unwrap(), at, &[value]),
        Damage::Word { file, at, value } => {
            overwrite(image.get_mut(&path(file)).unwrap(), at, &value.to_le_bytes());
        }
        Damage::Cut { file, at } => {
            let bytes = image.get_mut(&path(file)).unwrap();
            bytes.truncate(at % (bytes.len() + 1));
        }
        Damage::Grow { file, by, value } => {
            image.get_mut(&path(file)).unwrap().extend(std::iter::repeat_n(value, by));
        }
        Damage::Swap { file, other } => {
            let (a, b) = (path(file), path(other));
            let bytes = image[&a].clone();
            let other = image.insert(b, bytes).unwrap();
            image.insert(a, other);
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    let at = at % bytes.len().max(1);
    bytes.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = *new);
}

/// The frames of a segment: where each payload begins and how long it is.
fn frames(segment: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 64;
    while let Some(length) = segment.get(at..at + 4) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        found.push((at + 32, length));
        at += 32 + length.next_multiple_of(8);
    }
    found
}

/// Changes a payload and makes both checksums right again: a record that a hostile or broken writer could leave.
fn forge(segment: &mut [u8], frame: usize, at: usize, new: &[u8]) {
    let frames = frames(segment);
    let (start, length) = frames[frame % frames.len()];
    overwrite(&mut segment[start..start + length], at, new);
    let payload = crc32c(&segment[start..start + length]);
    segment[start - 28..start - 24].copy_from_slice(&payload.to_le_bytes());
    let header = crc32c(&segment[start - 32..start - 4]);
    segment[start - 4..start].copy_from_slice(&header.to_le_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn a_forged_record_that_says_the_same_is_read() {
    let mut image = victim();
    let path = files_with(&image, "log").remove(0);
    let segment = image.get_mut(&path).unwrap();
    let before = segment.clone();
    (0..frames(&before).len()).for_each(|frame| forge(segment, frame, 0, &[]));
    assert_eq!(*segment, before, "the test's checksum is the log's");
    assert!(check(&image, "unchanged"));
}

/// Every byte of every record, set to values that make great numbers, with checksums that are right.
#[test]
fn forged_records_are_refused_or_followed_but_never_a_panic() {
    let image = victim();
    let path = files_with(&image, "log").remove(0);
    let (mut opened, mut tried) = (0, 0);
    for (frame, (_, length)) in frames(&image[&path]).into_iter().enumerate() {
        for at in 0..length {
            for value in [0xFF, (at % 5) as u8] {
                let mut image = image.clone();
                forge(image.get_mut(&path).unwrap(), frame, at, &[value]);
                opened += u32::from(check(&image, &format!("record {frame}, byte {at} = {value}")));
                tried += 1;
            }
        }
    }
    assert!(tried > 1000 && opened > 100, "{opened} of {tried} opened");
}

#[test]
fn a_file_named_as_the_greatest_extent_takes_no_memory() {
    let mut image = victim();
    for name in ["4294967295.extent", "4000000000.extent", "99999999999.extent", "notes.txt", ".extent"] {
        image.insert(Path::new(ROOT).join("extents").join(name), vec![1; 10]);
    }
    assert!(check(&image, "foreign names"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_make_a_panic(damages in prop::collection::vec(damage(), 1..4)) {
        let mut image = victim();
        damages.iter().for_each(|damage| apply(&mut image, damage));
        check(&image, "damaged");
    }

    #[test]
    fn forged_words_never_make_a_panic(
        forged in prop::collection::vec((any::<usize>(), any::<usize>(), prop_oneof![any::<u64>(), Just(u64::MAX), 0..64_u64]), 1..4),
    ) {
        let mut image = victim();
        let path = files_with(&image, "log").remove(0);
        for (frame, at, value) in forged {
            forge(image.get_mut(&path).unwrap(), frame, at, &value.to_le_bytes()[..1 + at % 8]);
        }
        check(&image, "forged");
    }
}
