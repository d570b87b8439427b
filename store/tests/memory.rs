//! What a store says that it takes in memory is what an allocator that counts has given out.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use forebay_store::*;

/// The system's allocator, with a count of what is given out and not given back.
struct Counting;

static GIVEN: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: every call is the system allocator's, unchanged; counting touches nothing that it gives out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this very call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        GIVEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this very call.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How far what is said may be from what is given out: a fifth.
const FACTOR: f64 = 1.2;

const INPUTS: usize = 2_500;

/// Held by the test that counts: what another one takes meanwhile is not its own.
static ALONE: Mutex<()> = Mutex::new(());

struct Run {
    store: Store,
    before: usize,
}

impl Run {
    fn check(&self, what: &str) {
        let given = (GIVEN.load(Ordering::Relaxed) - self.before) as f64;
        let said = self.store.stats().memory_bytes as f64;
        let ratio = said / given;
        assert!((1.0 / FACTOR..=FACTOR).contains(&ratio), "{what}: {said} bytes said, {given} given out");
        println!("{what}: {said} bytes said, {given} given out, {ratio:.3}");
    }

    /// Three columns of so many rows, in the groups of a trainer.
    fn insert(&self, table: &Table, version: u64, inputs: std::ops::Range<usize>, rows: &mut Vec<Row>) {
        for input in inputs {
            let mut batch = self.store.batch();
            for trajectory in 0..8 {
                let row = NewRow::new(version, &format!("input-{input}_0_{trajectory}")).unwrap();
                batch.insert(table, row, [("prompt", "a prompt that lies in an extent".into())]).unwrap();
            }
            rows.extend(batch.commit().unwrap());
        }
    }

    fn score(&self, table: &Table, rows: &[Row]) {
        for rows in rows.chunks(64) {
            let mut batch = self.store.batch();
            for row in rows {
                let cells = [("response", vec![1_i32; 20].into()), ("reward", 1.0.into())];
                batch.write(table, *row, cells).unwrap();
            }
            batch.commit().unwrap();
        }
    }
}

#[test]
fn what_a_store_says_that_it_takes_is_what_it_was_given() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let mut rows = Vec::with_capacity(8 * INPUTS); // what the test itself holds does not count
    let groups: Vec<String> = (0..INPUTS).map(|input| format!("input-{input}")).collect();
    let before = GIVEN.load(Ordering::Relaxed);
    let options = Options::default().checkpoint_records(u64::MAX);
    let run = Run { store: Store::open(directory.path().join("store"), options).unwrap(), before };
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32);
    let table = run.store.create_table("solver", schema).unwrap();
    let train = Consumer::trainer(["solver"]).ready(["response", "reward"]).group(GroupBy::Input, 8);
    let train = run.store.create_consumer("train", train).unwrap();
    let task = run.store.create_consumer("judge", Consumer::task(["solver"]).ready(["response"])).unwrap();

    run.insert(&table, 0, 0..INPUTS, &mut rows);
    run.check("rows that wait");
    let snapshot = run.store.snapshot();
    run.score(&table, &rows);
    run.check("rows that are ready, and a snapshot from before");
    drop(snapshot);
    run.check("no snapshot");
    while let Some(claim) = task.claim(MicroBatch::up_to(4), "me", Wait::No).unwrap() {
        claim.finish(|_| Ok(())).unwrap();
    }
    run.check("claims that have ended");
    let step =
        run.store.begin_step(StepPlan::new().groups(&train, groups.iter().map(String::as_str))).unwrap();
    while let Some(claim) = step.next(&train, MicroBatch::of(64), Wait::No).unwrap() {
        claim.accumulated().unwrap();
    }
    step.commit([("solver", vec![])]).unwrap();
    run.check("a version that is over");
    run.store.checkpoint().unwrap();
    run.check("a checkpoint");
    rows.clear();
    run.insert(&table, 1, 0..INPUTS / 5, &mut rows);
    run.check("another version");
}

/// Steps that are looked at, after as many that are not.
const STEPS: u64 = 200;
const STEP_ROWS: usize = 256;
/// What a step may leave that nobody counts: two bytes a row. It is 1.3, of lists that grow by doubling until 65,536 claims
/// have ended.
const UNCOUNTED_BYTES_A_STEP: i64 = 512;

/// Writes a version, scores it, trains on half of it and leaves it behind.
fn step(store: &Store, table: &Table, judge: &ConsumerHandle, train: &ConsumerHandle, version: u64) {
    let mut batch = store.batch();
    for number in 0..STEP_ROWS as u64 {
        let group = version * STEP_ROWS as u64 / 8 + number / 8;
        let id = SampleId::new(&format!("q{}", group % 1024), (group / 1024) as u32, (number % 8) as u32);
        let cells = [("prompt", "a prompt that lies in an extent".into()), ("response", vec![1; 20].into())];
        batch.insert(table, NewRow::of(version, id.unwrap()), cells).unwrap();
    }
    batch.commit().unwrap();
    while let Some(claim) = judge.claim(MicroBatch::up_to(64), "judge", Wait::No).unwrap() {
        let rows = claim.rows().to_vec();
        let judged = claim.finish(|batch| {
            batch.exclude(table, rows[0], "unscored")?;
            rows[1..].iter().try_for_each(|row| batch.write(table, *row, [("reward", 1.0.into())]))
        });
        judged.unwrap();
    }
    let step = store.begin_step(StepPlan::new().rows(train, STEP_ROWS as u64 / 2)).unwrap();
    while let Some(claim) = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap() {
        claim.columns(["sample_id", "prompt", "response"]).unwrap();
        claim.accumulated().unwrap();
    }
    let object = store.put_object("weights", step.number(), &[7; 64]).unwrap();
    step.commit([("solver", vec![object])]).unwrap();
    store.run_once().unwrap();
}

// Growth that the store's own count does not show would be a leak, or a list that is never cut.
#[test]
fn steps_leave_nothing_behind_that_is_not_counted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().retention(Retention::default().versions(2)).object_versions_kept(1);
    let options = options.checkpoint_records(1_000).extent_bytes(4096, 1 << 20);
    let store = Store::open(directory.path().join("store"), options).unwrap();
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("reward", DataType::Float32);
    let table = store.create_table("solver", schema).unwrap();
    let train = Consumer::trainer(["solver"]).ready(["response", "reward"]).group(GroupBy::Input, 8);
    let train = store.create_consumer("train", train.staleness(1)).unwrap();
    let judge = store.create_consumer("judge", Consumer::task(["solver"]).ready(["response"])).unwrap();
    let look = |what: &str| {
        store.checkpoint().unwrap();
        let (given, said) = (GIVEN.load(Ordering::Relaxed) as i64, store.stats().memory_bytes as i64);
        println!("{what}: {given} bytes given out, {said} said");
        (given, said)
    };
    (0..STEPS).for_each(|version| step(&store, &table, &judge, &train, version));
    let before = look("half of the steps");
    (STEPS..2 * STEPS).for_each(|version| step(&store, &table, &judge, &train, version));
    let after = look("all steps");
    let uncounted = (after.0 - before.0) - (after.1 - before.1);
    let limit = UNCOUNTED_BYTES_A_STEP * STEPS as i64;
    assert!(uncounted <= limit, "{uncounted} bytes more that nobody counts, {STEPS} steps later");
}
