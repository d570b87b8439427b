//! The memory budget: who waits at it, what is let go, and what one is told.

use std::time::Duration;

use forebay_store::*;

use crate::support::*;

const MIB: u64 = 1 << 20;
/// Rows in a batch of those who fill a store up.
const BATCH: usize = 128;
const PATIENCE: Duration = Duration::from_secs(5);

fn open(world: &World, bytes: u64) -> Store {
    Store::open(ROOT, world.options().memory_bytes_max(bytes).capacity_wait(PATIENCE)).unwrap()
}

fn id(number: usize) -> String {
    format!("q{}_0_{}", number / 64, number % 64)
}

/// Rows with a prompt, in one batch.
fn insert(store: &Store, numbers: std::ops::Range<usize>, wait: Wait) -> Result<Vec<Row>> {
    let table = store.table("solver")?;
    let mut batch = store.batch();
    batch.wait(wait);
    for number in numbers {
        batch.insert(&table, NewRow::new(0, &id(number))?, [("prompt", "a prompt".into())])?;
    }
    batch.commit()
}

/// The same, a few hundred rows at a time.
fn insert_many(store: &Store, rows: usize) -> Vec<Row> {
    let firsts = (0..rows).step_by(512);
    firsts.flat_map(|first| insert(store, first..rows.min(first + 512), Wait::No).unwrap()).collect()
}

/// Inserts until there is no memory. Gives the rows that came, and the refusal.
fn fill(store: &Store, from: usize) -> (Vec<Row>, Error) {
    let mut rows = Vec::new();
    loop {
        let next = from + rows.len();
        match insert(store, next..next + BATCH, Wait::For(PATIENCE)) {
            Ok(came) => rows.extend(came),
            Err(error) => return (rows, error),
        }
    }
}

/// Turns a column of rows final, so that every page of it and of the status is another one.
fn score(store: &Store, rows: &[Row]) {
    let table = store.table("solver").unwrap();
    for rows in rows.chunks(512) {
        let mut batch = store.batch();
        rows.iter().for_each(|row| batch.write(&table, *row, [("reward", 1.0.into())]).unwrap());
        batch.commit().unwrap();
    }
}

fn prompts(store: &Store) -> usize {
    pick(store, "solver", &["prompt"]).iter().filter(|row| row[0] == "a prompt").count()
}

// FX-B18: at the budget a writer is told the largest pin, nothing is lost, and it goes on when the pin is gone
#[test]
fn at_the_memory_budget_a_writer_is_told_the_largest_pin_and_goes_on_when_it_is_gone() {
    let world = World::new();
    let store = open(&world, 2 * MIB);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let mut rows = insert_many(&store, 2 * CHUNK_ROWS);
    let quick = store.snapshot_for("quick reader");
    let slow = store.snapshot_for("slow reader");
    score(&store, &rows);
    drop(quick);
    let pin = store.pins().into_iter().find(|pin| pin.owner == "slow reader").unwrap();
    assert!(pin.memory_bytes > 0 && pin.memory_bytes < store.stats().memory_bytes, "{pin:?}");
    let began = world.clock.now();
    let (came, refused) = fill(&store, rows.len());
    assert_eq!(world.clock.now().since(began), PATIENCE, "it waited for memory, once");
    assert_eq!(refused.kind(), Kind::Capacity);
    assert!(refused.to_string().contains("slow reader"), "{refused}");
    let Cause::NoMemory { used, usable, limit, .. } = refused.cause() else { panic!("{refused:?}") };
    assert!(used + 256 * BATCH as u64 > *usable && *used <= 2 * MIB && *limit == 2 * MIB, "{refused}");
    rows.extend(came);
    table.write(rows[rows.len() - 1], [("reward", 1.0.into())]).unwrap(); // the last eighth is for rows that are there
    assert_eq!(prompts(&store), rows.len(), "what was refused is not there");
    let seen = slow.table("solver").unwrap();
    assert_eq!(scan_of(seen, |name| name == "reward").iter().filter(|row| *row != "reward=null").count(), 0);

    drop(slow);
    rows.extend(insert(&store, rows.len()..rows.len() + 64, Wait::No).unwrap());
    assert_eq!(prompts(&store), rows.len());
}

/// Lets a writer wait at the budget, then does something, and sees the writer through.
fn frees_a_writer(what: &str, relieve: impl FnOnce(&Store, Snapshot)) {
    let options = World::new().options().memory_bytes_max(2 * MIB).clock(std::sync::Arc::new(SystemClock));
    let store = Store::open(ROOT, options).unwrap();
    store.create_table("solver", solver_schema()).unwrap();
    let rows = insert_many(&store, 2 * CHUNK_ROWS);
    let snapshot = store.snapshot_for("reader");
    score(&store, &rows);
    let mut next = rows.len();
    while insert(&store, next..next + BATCH, Wait::No).is_ok() {
        next += BATCH;
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| insert(&store, next..next + BATCH, Wait::Forever).map(|rows| rows.len()));
        relieve(&store, snapshot);
        match writer.join().unwrap() {
            Ok(rows) => assert_eq!(rows, BATCH, "{what}"),
            Err(error) => assert_eq!(error.kind(), Kind::Closed, "{what}: {error}"),
        }
    });
}

#[test]
fn whatever_lets_memory_go_wakes_a_writer() {
    frees_a_writer("a snapshot that is dropped", |_, snapshot| drop(snapshot));
    frees_a_writer("a part of a snapshot that outlives it", |_, snapshot| {
        let part = snapshot.table("solver").unwrap().clone();
        drop(snapshot);
        drop(part);
    });
    frees_a_writer("a store that is closed", |store, snapshot| {
        store.close("tired");
        drop(snapshot);
    });
}

#[test]
fn full_pages_go_to_the_files_of_a_checkpoint_so_that_a_store_grows_beyond_its_memory() {
    let world = World::new();
    let (budget, rows) = (2 * MIB, 12 * CHUNK_ROWS);
    let store = open(&world, budget);
    store.create_table("solver", solver_schema()).unwrap();
    store.create_consumer("task", Consumer::task(["solver"]).ready(["reward"])).unwrap();
    let mut inserted = Vec::new();
    for first in (0..rows).step_by(512) {
        let came = insert(&store, first..first + 512, Wait::No).unwrap();
        if first % 2048 == 0 {
            score(&store, &came);
        }
        inserted.extend(came);
        let taken = store.stats().memory_bytes;
        assert!(taken <= budget + budget / 32, "{taken} bytes after {first} rows");
    }
    let table = store.table("solver").unwrap();
    for number in [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, rows / 2, rows - 1] {
        let sample: SampleId = id(number).parse().unwrap();
        assert_eq!(table.find(0, &sample), Some(inserted[number]), "found in a mapped index and page");
    }
    score(&store, &inserted[700..710]); // mapped pages are taken back into memory
    table.exclude(inserted[5000], "failed").unwrap();
    check_counts(&store);
    let before = scan(&store);
    let claim = store.consumer("task").unwrap().claim(MicroBatch::of(16), "me", Wait::No).unwrap().unwrap();
    assert_eq!(ids(&claim)[0], id(0));
    drop(claim);
    let store = world.reopen(store);
    assert_eq!(scan(&store), before);
}

#[test]
fn the_duty_lets_pages_go_before_anybody_has_to_wait() {
    let world = World::new();
    let store = open(&world, 4 * MIB);
    store.create_table("solver", solver_schema()).unwrap();
    let mut next = 0;
    while store.stats().memory_bytes < 3 * MIB {
        insert(&store, next..next + 512, Wait::No).unwrap();
        next += 512;
    }
    let before = scan(&store);
    store.run_once().unwrap();
    let after = store.stats().memory_bytes;
    assert!(after < 2 * MIB, "{after} bytes are left");
    assert_eq!(scan(&store), before);
}

#[test]
fn claims_steps_and_exclusions_need_no_memory() {
    let world = World::new();
    let store = open(&world, 2 * MIB);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["prompt"])).unwrap();
    let rows = insert_many(&store, 2 * CHUNK_ROWS);
    let snapshot = store.snapshot_for("reader");
    score(&store, &rows);
    let (_, refused) = fill(&store, rows.len());
    assert_eq!(refused.kind(), Kind::Capacity);
    let now = world.clock.now();
    table.exclude(rows[0], "failed").unwrap();
    assert_eq!(train_once(&store, &train, StepPlan::new().rows(&train, 8), "solver"), 8);
    table.delete(&Delete::rows([rows[100]]).force()).unwrap();
    assert_eq!(world.clock.now(), now, "nothing of it waited");
    drop(snapshot);
}

// Writers at the budget, snapshots that come and go, and a claimer: nothing is lost and nobody waits for ever.
#[test]
fn writers_at_the_budget_readers_and_a_claimer_all_come_to_their_end() {
    const WRITERS: usize = 3;
    const ROWS: usize = CHUNK_ROWS;
    let options = World::new().options().memory_bytes_max(3 * MIB).clock(std::sync::Arc::new(SystemClock));
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, table) = (&store, &table);
            scope.spawn(move || {
                for first in (0..ROWS).step_by(64) {
                    let from = writer * ROWS + first;
                    let rows = insert(store, from..from + 64, Wait::Forever).unwrap();
                    let mut batch = store.batch();
                    batch.wait(Wait::Forever);
                    rows.iter().for_each(|row| batch.write(table, *row, [("reward", 1.0.into())]).unwrap());
                    batch.commit().unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut taken = 0;
            while taken < WRITERS * ROWS {
                let snapshot = store.snapshot();
                let claim = task.claim(MicroBatch::up_to(500), "me", Wait::Forever).unwrap().unwrap();
                taken += claim.len();
                claim.finish(|_| Ok(())).unwrap();
                drop(snapshot);
            }
        });
    });
    let rewards = pick(&store, "solver", &["reward"]);
    assert_eq!(rewards.iter().filter(|row| row[0] == "1.0").count(), WRITERS * ROWS);
}

// A budget would count for ever what a record took while it was written, and writers wait for it.
#[test]
fn what_a_large_batch_took_of_the_log_s_buffers_is_let_go_when_it_is_written() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    table.insert_rollouts(NewRow::new(0, "q_0_0").unwrap(), 20_000, [("prompt", "?".into())]).unwrap();
    let took = store.stats().memory_bytes;
    let claim = task.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap().unwrap();
    claim.finish(|_| Ok(())).unwrap();
    let takes = store.stats().memory_bytes;
    assert!(takes.abs_diff(took) < MIB / 4, "{took}, and {takes} after records that are small");
}

#[test]
fn a_budget_that_no_store_fits_in_is_refused() {
    let world = World::new();
    for bytes in [0, 1, MIB - 1] {
        let refused = Store::open(ROOT, world.options().memory_bytes_max(bytes)).unwrap_err();
        assert!(refused.to_string().contains("allow 1048576 at least"), "{refused}");
    }
}
