//! Forebay itself, through its public interface: a task that takes rows one by one, once all of their cells are there.
//!
//! At `synced` the writes are, and claims are `logged`: a claim that a power failure takes away is given again.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{ArrayRef, RecordBatch};
use forebay_store::{
    ConsumerHandle, Durability, MicroBatch, NewRow, SampleId, Store, Table, Wait, WriteBatch,
};

use crate::Outcome;
use crate::columns::Columns;
use crate::peer::{Level, Native, PATIENCE, Peer, Taker, Writer};
use crate::workload::{self, BATCH, COLUMNS, GROUP, MICRO_BATCH, Workload};

pub(crate) const PEER: Native = Native {
    name: "Forebay",
    version: || Ok("this tree".to_owned()),
    levels: &[Level::Memory, Level::Logged, Level::Synced],
    note: |level| match level {
        Level::Synced => "writes wait for the disk, takes do not; else as above",
        Level::Memory => "nothing survives that the log has not yet; else as below",
        Level::Logged => "leases, readiness a column, checksums, waits inside; columns come as Arrow",
    },
    open: |workload, directory, level| Ok(Box::new(Forebay::open(workload, directory, level)?)),
};

struct Forebay<'a> {
    workload: &'a Workload,
    /// The names of rows, made before the clock starts: they are the caller's.
    ids: Vec<SampleId>,
    /// What the writes ask for.
    level: Durability,
    store: Store,
    table: Table,
    consumer: ConsumerHandle,
}

impl<'a> Forebay<'a> {
    fn open(workload: &'a Workload, directory: &Path, level: Level) -> Outcome<Self> {
        let level = match level {
            Level::Memory => Durability::Memory,
            Level::Logged => Durability::Logged,
            Level::Synced => Durability::Synced,
        };
        let store = workload::open_at(directory, level.min(Durability::Logged))?;
        let table = workload::solver(&store)?;
        let consumer = workload::score(&store)?;
        let ids = workload::sample_ids(workload.scale.ingest_samples)?;
        Ok(Forebay { workload, ids, level, store, table, consumer })
    }

    fn batch(&self) -> WriteBatch<'_> {
        let mut batch = self.store.batch();
        batch.durability(self.level);
        batch
    }
}

impl Peer for Forebay<'_> {
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Hand(self)))
    }

    fn taker(&self) -> Outcome<Box<dyn Taker + '_>> {
        Ok(Box::new(Hand(self)))
    }
}

struct Hand<'a>(&'a Forebay<'a>);

impl Writer for Hand<'_> {
    fn write(&mut self, first: usize) -> Outcome<()> {
        let Forebay { workload, ids, table, .. } = self.0;
        let samples = || (first..first + BATCH).map(|row| (&ids[row], workload.sample(row)));
        let mut batch = self.0.batch();
        for (id, sample) in samples() {
            batch.insert(table, NewRow::of(0, id.clone()), [sample.prompt()])?;
        }
        let rows = batch.commit()?;
        let mut batch = self.0.batch();
        for (&row, (_, sample)) in rows.iter().zip(samples()) {
            batch.write(table, row, sample.response())?;
        }
        batch.commit()?;
        let mut batch = self.0.batch();
        for (&row, (_, sample)) in rows.iter().zip(samples()) {
            batch.write(table, row, [sample.reward()])?;
        }
        batch.commit()?;
        Ok(())
    }
}

impl Taker for Hand<'_> {
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize> {
        let claim = self.0.consumer.claim(MicroBatch::of(MICRO_BATCH), "peers", Wait::For(PATIENCE))?;
        let Some(claim) = claim else { return Ok(0) };
        let batch = claim.columns(COLUMNS)?;
        let rows = claim.sample_ids().iter().map(row).collect::<Outcome<Vec<u64>>>()?;
        read(columns(&batch, &rows)?);
        let count = claim.len();
        claim.finish(|_| Ok(()))?;
        Ok(count)
    }
}

/// The number of the row that `workload::sample_ids` gave this name.
fn row(id: &SampleId) -> Outcome<u64> {
    let input: u64 = id.input().strip_prefix('q').ok_or("a row that nobody wrote")?.parse()?;
    Ok(input * u64::from(GROUP) + u64::from(id.trajectory()))
}

fn columns<'a>(batch: &'a RecordBatch, rows: &'a [u64]) -> Outcome<Columns<'a>> {
    let [_, prompts, responses, logprobs, rewards] = batch.columns() else {
        return Err(format!("five columns were asked for, and {} came", batch.num_columns()).into());
    };
    let lists = [values(prompts), values(responses), values(logprobs)];
    Ok(Columns { rows, lists, rewards: rewards.as_primitive::<Float32Type>().values() })
}

/// The bytes of a column of lists. Its lists follow each other without a gap, as they do in every array that Forebay gives.
fn values(column: &ArrayRef) -> &[u8] {
    let values = column.as_list::<i32>().values();
    match values.as_primitive_opt::<Int32Type>() {
        Some(numbers) => numbers.values().inner(),
        None => values.as_primitive::<Float32Type>().values().inner(),
    }
}
