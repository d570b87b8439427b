//! Versions that go, and how long everybody waits for it.
//!
//! A version is deleted under the lock of the store's state. Its rows may follow on each other, or lie between those of the next version,
//! which other rollouts wrote meanwhile: then a deletion is as long in rows and a hundred times as long in runs.

use std::hint::black_box;

use forebay_store::{
    Consumer, ConsumerHandle, DataType, Delete, Durability, MicroBatch, NewRow, Options, SampleId, Schema,
    StepPlan, Store, Table, Wait,
};

use crate::Outcome;
use crate::measure::{Times, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, GROUP, Workload};

/// Versions that are written together; steps go past them before they are deleted.
const TOGETHER: u64 = 2;
/// What a row has at least that a deletion looks at: meta, status, a view.
type BareRow = [u64; 8];

/// Deleting versions whose rows follow on each other, and whose rows were written in turns.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let scale = workload.scale;
    let ids = workload::sample_ids(scale.retired_rows)?;
    let (mut apart, mut in_turns) = (Run::open()?, Run::open()?);
    let (mut times, mut turned, mut bare, mut digest) =
        (Times::default(), Times::default(), Times::default(), 0);
    for _ in 0..scale.retired_versions {
        digest += apart.round(&ids, ids.len(), &mut times)?;
        digest += in_turns.round(&ids, GROUP as usize, &mut turned)?;
        let rows: Vec<BareRow> = (0..scale.retired_rows as u64).map(|row| [row; 8]).collect();
        bare.add(timed(|| black_box(bare_pass(rows))).0);
    }
    let (apart, in_turns) = (times.percentile(50) / 1e3, turned.percentile(50) / 1e3);
    let mut row = |how: &str, value, limit, limit_kind| {
        print(Row {
            measure: format!("deleting a version of {} rows{how}, p50", scale.retired_rows),
            level: Durability::Memory,
            value,
            unit: "ms",
            limit,
            limit_kind,
            goal: Goal::None,
            digest,
        });
    };
    row("", apart, bare.percentile(50) / 1e3, "a pass over as many bare rows of 64 bytes, and freeing them");
    row(
        " that were written in turns with the next one's",
        in_turns,
        apart,
        "the same, its rows written one after the other",
    );
    Ok(())
}

fn bare_pass(rows: Vec<BareRow>) -> u64 {
    rows.iter().map(|row| row[3].wrapping_add(row[5])).sum()
}

struct Run {
    store: Store,
    table: Table,
    train: ConsumerHandle,
    version: u64,
    _directory: tempfile::TempDir,
}

impl Run {
    fn open() -> Outcome<Run> {
        let directory = tempfile::tempdir()?;
        let options = Options::default().durability(Durability::Memory).object_versions_kept(1);
        let store = workload::open_with(directory.path(), options)?;
        let schema = Schema::new().data("response", DataType::Utf8).data("reward", DataType::Float32);
        let table = store.create_table("solver", schema)?;
        let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"]))?;
        store.create_consumer("score", Consumer::task(["solver"]).ready(["response"]))?;
        Ok(Run { store, table, train, version: 0, _directory: directory })
    }

    /// Writes the next versions, so many rows of each at a time, trains past them and deletes them. Gives how many rows went.
    fn round(&mut self, ids: &[SampleId], in_turn: usize, times: &mut Times) -> Outcome<u64> {
        let versions = self.version..self.version + TOGETHER;
        for ids in ids.chunks(in_turn) {
            for version in versions.clone() {
                self.write(version, ids)?;
            }
        }
        for _ in 0..=TOGETHER {
            self.train()?;
        }
        let mut went = 0;
        for version in versions {
            let (time, deleted) = timed(|| self.table.delete(&Delete::version(version)));
            times.add(time);
            went += deleted?.rows;
        }
        Ok(went)
    }

    fn write(&self, version: u64, ids: &[SampleId]) -> Outcome<()> {
        for ids in ids.chunks(workload::BATCH) {
            let mut batch = self.store.batch();
            for id in ids {
                let response = "an answer that does not fit a view";
                let cells = [("response", response.into()), ("reward", 1.0_f32.into())];
                batch.insert(&self.table, NewRow::of(version, id.clone()), cells)?;
            }
            batch.commit()?;
        }
        Ok(())
    }

    /// A step over one row of the current version, which is written where there is none.
    fn train(&mut self) -> Outcome<()> {
        let step = self.store.begin_step(StepPlan::new().rows(&self.train, 1))?;
        let batch = match step.next(&self.train, MicroBatch::of(1), Wait::No)? {
            Some(batch) => batch,
            None => {
                self.write(self.version, &workload::sample_ids(1)?)?;
                step.next(&self.train, MicroBatch::of(1), Wait::No)?.ok_or("no row to train on")?
            }
        };
        batch.accumulated()?;
        step.commit([("solver", vec![])])?;
        self.version += 1;
        Ok(())
    }
}
