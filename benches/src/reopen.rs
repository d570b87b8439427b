//! A store that is opened again after its process was killed.

use std::path::Path;

use forebay_store::{DataType, Durability, NewRow, Schema, Store};

use crate::Outcome;
use crate::killed::{Errand, Killed};
use crate::measure::{Pair, timed, typical};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, Workload, score};

/// Two sizes; values of 12 bytes or fewer, three stages, so that the log is all there is to read.
pub(crate) fn rows(workload: &Workload, killed: &Killed, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    for (rows, goal) in workload.scale.reopen_rows.into_iter().zip([Goal::AtMost(100.0), Goal::None]) {
        let directory = tempfile::tempdir()?;
        let last = workload::sample_ids(rows)?.pop().ok_or("no rows")?;
        killed.after(directory.path(), Errand::Fill { rows })?;
        let (mut pairs, mut digest) = (Vec::new(), 0);
        for repetition in 0..workload.scale.repetitions {
            if repetition > 0 {
                killed.after(directory.path(), Errand::Open)?; // the one before was closed in order
            }
            let (time, store) = timed(|| workload::open(directory.path()));
            let store = store?;
            let table = store.table("solver")?;
            let last = table.find(0, &last).ok_or("the last row is gone")?;
            digest = table
                .counts()
                .written
                .wrapping_add(format!("{:?}", table.cell(last, "reward")?).len() as u64);
            drop(store);
            let (bare, bytes) = timed(|| read(&directory.path().join("store")));
            std::hint::black_box(bytes?);
            pairs.push(Pair { value: time.as_secs_f64() * 1e3, limit: bare.as_secs_f64() * 1e3 });
        }
        let pair = typical(pairs);
        print(Row {
            measure: format!("open a store of {rows} rows after kill -9, no checkpoint"),
            level: Durability::Logged,
            value: pair.value,
            unit: "ms",
            limit: pair.limit,
            limit_kind: "reading the same log with its checksums",
            goal,
            digest,
        });
    }
    Ok(())
}

/// A new store of so many rows.
pub(crate) fn fill(path: &Path, rows: usize) -> Outcome<Store> {
    let ids = workload::sample_ids(rows)?;
    let store = workload::open(path)?;
    let schema = Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::Utf8)
        .data("logprobs", DataType::Float32)
        .data("reward", DataType::Float32);
    let table = store.create_table("solver", schema)?;
    score(&store)?;
    for ids in ids.chunks(BATCH) {
        let mut batch = store.batch();
        for id in ids {
            batch.insert(&table, NewRow::of(0, id.clone()), [("prompt", "2 + 2 =".into())])?;
        }
        let rows = batch.commit()?;
        let mut batch = store.batch();
        for &row in &rows {
            batch.write(&table, row, [("response", "4".into()), ("logprobs", (-0.5_f32).into())])?;
        }
        batch.commit()?;
        let mut batch = store.batch();
        for &row in &rows {
            batch.write(&table, row, [("reward", 1.0_f32.into())])?;
        }
        batch.commit()?;
    }
    Ok(store)
}

/// Reads every file of the log, and checksums it.
fn read(store: &Path) -> Outcome<u64> {
    let mut digest = 0_u64;
    for file in std::fs::read_dir(store.join("log"))? {
        digest = digest.wrapping_add(forebay_store::checksum::crc32c(&std::fs::read(file?.path())?).into());
    }
    Ok(digest)
}
