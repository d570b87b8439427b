//! What a store says that it takes in memory is what an allocator that counts has given out.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

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
