//! Ten tables of a million rows each: what a row takes in memory, a snapshot, a checkpoint, opening again, claiming.

use std::path::Path;

use forebay_store::{
    Consumer, DataType, Durability, Element, GroupBy, MicroBatch, NewRow, Schema, Store, Table, Value, Wait,
};

use crate::Outcome;
use crate::killed::{Errand, Killed};
use crate::measure::{Times, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, GROUP, MICRO_BATCH, Workload};

const TABLES: usize = 10;
const TEXTS: usize = 4;
const NUMBERS: usize = 8;
/// What a row is declared to take: texts of 12 bytes or fewer lie in their views of 16 bytes, numbers take 4; and the meta
/// columns: version 8, creation 8, token 16, input, agent, origin, parent, weights 4 each, turn, trajectory and attempt 4
/// each, purpose 4.
const DECLARED_BYTES: f64 = (TEXTS * 16 + NUMBERS * 4 + 8 + 8 + 16 + 5 * 4 + 3 * 4 + 4) as f64;
const BATCH: usize = 512;

/// Twelve data columns and three consumers a table, groups of eight.
pub(crate) fn rows(workload: &Workload, killed: &Killed, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (scale, directory) = (workload.scale, tempfile::tempdir()?);
    let total = (TABLES * scale.large_rows) as f64;
    // All memory of a process that does nothing else: one that has done something has room of that.
    let alone = killed.after(tempfile::tempdir()?.path(), Errand::FillLarge { rows: scale.large_rows })?;
    let store = fill(directory.path(), scale.large_rows)?;
    let counted = store.stats().memory_bytes;
    let mut row = |measure: String, value, unit, (limit, limit_kind), goal| {
        let level = Durability::Logged;
        print(Row { measure, level, value, unit, limit, limit_kind, goal, digest: total as u64 });
    };
    let what = format!("{total} rows, 12 data columns, 3 consumers, groups of {GROUP}");
    let declared = (DECLARED_BYTES, "declared widths, views and meta columns");
    let goal = Goal::AtMost(DECLARED_BYTES + 96.0);
    row(format!("memory a row, {what}"), alone as f64 / total, "bytes", declared, goal);
    row(
        format!("the same, as the store counts it, {what}"),
        counted as f64 / total,
        "bytes",
        declared,
        Goal::None,
    );

    let mut snapshots = Times::default();
    for _ in 0..scale.snapshots.min(100) {
        let (time, snapshot) = timed(|| store.snapshot());
        snapshots.add(time);
        std::hint::black_box(snapshot.commit());
    }
    let goal = (1.0, "the goal");
    row(format!("snapshot of {what}, p50"), snapshots.percentile(50) / 1e3, "ms", goal, Goal::AtMost(1.0));

    let (time, report) = timed(|| store.checkpoint());
    let written = report?.bytes_written;
    let copied = copy_bytes(directory.path(), written)?;
    let bare = (copied, "bare writes of the same bytes, and a sync");
    row(format!("first checkpoint of {what}"), time.as_secs_f64() * 1e3, "ms", bare, Goal::None);

    drop(store);
    let errand = Errand::More { rows: scale.large_rows, records: scale.large_records };
    killed.after(directory.path(), errand)?;
    let (time, store) = timed(|| workload::open(directory.path()));
    let store = store?;
    let (log, _) = timed(|| read_log(directory.path()));
    let log = (log.as_secs_f64() * 1e3, "reading the log since with its checksums");
    let what = format!("open {total} rows after kill -9, checkpoint {} records old", scale.large_records);
    row(what, time.as_secs_f64() * 1e3, "ms", log, Goal::AtMost(1_000.0));

    let mut claims = Times::default();
    let task = store.consumer("score0")?;
    for _ in 0..scale.claims {
        let (time, claimed) = timed(|| -> Outcome<_> {
            let claim =
                task.claim(MicroBatch::of(MICRO_BATCH), "bench", Wait::No)?.ok_or("nothing was ready")?;
            std::hint::black_box(claim.columns(["sample_id", "t0", "n0"])?);
            Ok(claim)
        });
        claims.add(time);
        claimed?.finish(|_| Ok(()))?;
    }
    row(
        format!("claim {MICRO_BATCH} + Arrow among those rows, p50"),
        claims.percentile(50),
        "us",
        (20.0, "the goal"),
        Goal::AtMost(20.0),
    );
    Ok(())
}

fn columns() -> (Vec<String>, Vec<String>) {
    ((0..TEXTS).map(|n| format!("t{n}")).collect(), (0..NUMBERS).map(|n| format!("n{n}")).collect())
}

/// A new store, with so many rows in each of its tables.
pub(crate) fn fill(path: &Path, rows: usize) -> Outcome<Store> {
    let store = workload::open(path)?;
    (0..TABLES).try_for_each(|number| fill_table(&store, number, rows))?;
    Ok(store)
}

fn fill_table(store: &Store, number: usize, rows: usize) -> Outcome<()> {
    let (texts, numbers) = columns();
    let mut schema = Schema::new();
    for text in &texts {
        schema = schema.data(text, DataType::Utf8);
    }
    for number in &numbers {
        schema = schema.data(number, DataType::Number(Element::Float32));
    }
    let name = format!("agent{number}");
    let table = store.create_table(&name, schema)?;
    let all = || texts.iter().chain(&numbers).map(String::as_str);
    let train = Consumer::trainer([&*name]).ready(all()).group(GroupBy::Input, GROUP);
    store.create_consumer(&format!("train{number}"), train)?;
    store.create_consumer(&format!("score{number}"), Consumer::task([&*name]).ready(all()))?;
    let judge = Consumer::task([&*name]).ready(["t0"]).group(GroupBy::Input, GROUP);
    store.create_consumer(&format!("judge{number}"), judge)?;
    insert(store, &table, 0, rows)
}

fn insert(store: &Store, table: &Table, first: usize, rows: usize) -> Outcome<()> {
    let (texts, numbers) = columns();
    for start in (first..first + rows).step_by(BATCH) {
        let mut batch = store.batch();
        for row in start..(start + BATCH).min(first + rows) {
            let id = format!("q{}_0_{}", row / GROUP as usize, row % GROUP as usize);
            let text = texts.iter().map(|name| (name.as_str(), Value::from("2 + 2 = 4")));
            let number = numbers.iter().map(|name| (name.as_str(), Value::from(row as f32)));
            batch.insert(table, NewRow::new(0, &id)?, text.chain(number))?;
        }
        batch.commit()?;
    }
    Ok(())
}

/// So many more records, of one row each, in a store with so many rows a table.
pub(crate) fn more(path: &Path, rows: usize, records: usize) -> Outcome<Store> {
    let store = workload::open(path)?;
    let table = store.table("agent1")?;
    for row in rows..rows + records {
        let id = format!("q{}_0_{}", row / GROUP as usize, row % GROUP as usize);
        table.insert(0, &id, [("t0", "2 + 2 =".into()), ("n0", 1.0_f32.into())])?;
    }
    Ok(store)
}

/// Milliseconds that bare writes of so many bytes take, with their sync.
fn copy_bytes(directory: &Path, bytes: u64) -> Outcome<f64> {
    use std::io::Write;
    let mut file = std::fs::File::create(directory.join("bare"))?;
    let block = vec![7_u8; 1 << 20];
    let (time, done) = timed(|| -> std::io::Result<()> {
        for _ in 0..bytes.div_ceil(1 << 20) {
            file.write_all(&block)?;
        }
        file.sync_data()
    });
    done?;
    std::fs::remove_file(directory.join("bare"))?;
    Ok(time.as_secs_f64() * 1e3)
}

fn read_log(directory: &Path) -> Outcome<u64> {
    let mut digest = 0_u64;
    for file in std::fs::read_dir(directory.join("store/log"))? {
        digest = digest.wrapping_add(forebay_store::checksum::crc32c(&std::fs::read(file?.path())?).into());
    }
    Ok(digest)
}
