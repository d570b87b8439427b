//! One instant of ten tables, and what it costs the writer who comes after.

use std::sync::Arc;

use forebay_store::{
    CHUNK_ROWS, Consumer, DataType, Durability, NewRow, Row as TableRow, Schema, Store, Table,
};

use crate::Outcome;
use crate::measure::{Times, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, Workload};

const TABLES: usize = 10;
/// What a chunk is made of in these tables: meta, status, three columns and one consumer's words.
const PAGES_PER_CHUNK: usize = 6;

/// Taking a snapshot, and writing while it is held.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (scale, directory) = (workload.scale, tempfile::tempdir()?);
    let store = workload::open(directory.path())?;
    let tables = fill(&store, scale.snapshot_rows)?;

    let references = TABLES * scale.snapshot_rows.div_ceil(CHUNK_ROWS) * PAGES_PER_CHUNK;
    let pages: Vec<Arc<u64>> = (0..references as u64).map(Arc::new).collect();
    let (mut snapshots, mut clones, mut digest) = (Times::default(), Times::default(), 0_u64);
    for _ in 0..scale.snapshots {
        let (time, snapshot) = timed(|| store.snapshot());
        snapshots.add(time);
        digest = digest.wrapping_add(snapshot.commit());
        let (time, cloned) = timed(|| pages.clone());
        clones.add(time);
        std::hint::black_box(cloned);
    }
    print(Row {
        measure: format!("snapshot of {TABLES} tables of {} rows, p50", scale.snapshot_rows),
        level: Durability::Logged,
        value: snapshots.percentile(50) / 1e3,
        unit: "ms",
        limit: clones.percentile(50) / 1e3,
        limit_kind: "cloning one reference a page",
        goal: Goal::AtMost(0.1),
        digest,
    });
    after(&store, &tables, scale.snapshots, print)
}

/// The first batch of writes after a snapshot copies the pages that it touches.
fn after(
    store: &Store,
    tables: &[(Table, Vec<TableRow>)],
    most: usize,
    print: &mut dyn FnMut(Row),
) -> Outcome<()> {
    let (mut copied, mut bare, mut written) = (Times::default(), Times::default(), 0);
    let batches = tables.iter().flat_map(|(table, rows)| rows.chunks(BATCH).map(move |rows| (table, rows)));
    for (at, (table, rows)) in batches.take(most).enumerate() {
        let held = (at % 2 == 0).then(|| store.snapshot());
        let mut batch = store.batch();
        for &row in rows {
            batch.write(table, row, [("reward", 1.0_f32.into())])?;
        }
        let (time, done) = timed(|| batch.commit());
        done?;
        written += rows.len() as u64;
        if held.is_some() { copied.add(time) } else { bare.add(time) }
    }
    print(Row {
        measure: format!("commit of {BATCH} rewards while a snapshot is held, p50"),
        level: Durability::Logged,
        value: copied.percentile(50),
        unit: "us",
        limit: bare.percentile(50),
        limit_kind: "the same commit with no snapshot",
        goal: Goal::None,
        digest: written,
    });
    Ok(())
}

/// Ten tables with one consumer each, whose rows lack nothing but their reward.
fn fill(store: &Store, rows: usize) -> Outcome<Vec<(Table, Vec<TableRow>)>> {
    let ids = workload::sample_ids(rows)?;
    let mut tables = Vec::new();
    for number in 0..TABLES {
        let schema = Schema::new()
            .data("prompt", DataType::Utf8)
            .data("response", DataType::Utf8)
            .data("reward", DataType::Float32);
        let table = store.create_table(&format!("agent{number}"), schema)?;
        store.create_consumer(&format!("train{number}"), Consumer::task([table.name()]).ready(["reward"]))?;
        let mut filled = Vec::with_capacity(rows);
        for ids in ids.chunks(BATCH) {
            let mut batch = store.batch();
            for id in ids {
                let cells = [("prompt", "2 + 2 =".into()), ("response", "4".into())];
                batch.insert(&table, NewRow::of(0, id.clone()), cells)?;
            }
            filled.extend(batch.commit()?);
        }
        tables.push((table, filled));
    }
    Ok(tables)
}
