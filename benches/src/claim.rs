//! Ready samples into the hands of a trainer: the claim, and its columns as Arrow.

use std::time::Instant;

use arrow_array::{Array, RecordBatch};
use forebay_store::{
    Consumer, Durability, GroupBy, MicroBatch, NewRow, Options, SampleId, Step, StepPlan, Store, Table,
    Value, Wait,
};

use crate::Outcome;
use crate::measure::{Times, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, COLUMNS, GROUP, MICRO_BATCH, Workload};

const MEMCPY: &str = "nothing but a memcpy of those columns";

/// Times of some claims and of their limit.
#[derive(Default)]
struct Measured {
    claims: Times,
    copies: Times,
    digest: u64,
}

/// Claims of a trainer in a step, and of a task at two sizes of the table.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let groups = workload.scale.step_groups;
    both(
        &format!("claim {MICRO_BATCH} + Arrow, trainer, step of {groups} groups of {GROUP}"),
        &mut trainer(workload, groups)?,
        Goal::AtMost,
        print,
    );
    let [fewer, _] = workload.scale.claim_rows;
    both(
        &format!("claim {MICRO_BATCH} + Arrow, task, {fewer} rows, values checked"),
        &mut task(workload, fewer, true)?,
        |_| Goal::None,
        print,
    );
    let mut medians = Vec::new(); // the larger last: it leaves the process's memory as no other row does
    for rows in workload.scale.claim_rows {
        let mut measured = task(workload, rows, false)?;
        let measure = format!("claim {MICRO_BATCH} + Arrow, task, {rows} rows");
        medians.push((measured.claims.percentile(50), measured.digest));
        both(&measure, &mut measured, Goal::AtMost, print);
    }
    if let [(small, _), (large, digest)] = medians[..] {
        print(Row {
            measure: "claim 16 + Arrow, task, p50 as rows grow".into(),
            level: Durability::Logged,
            value: large,
            unit: "us",
            limit: small,
            limit_kind: "the same claim among fewer rows",
            goal: Goal::RatioAtMost(1.5),
            digest,
        });
    }
    Ok(())
}

fn both(measure: &str, measured: &mut Measured, goal: impl Fn(f64) -> Goal, print: &mut dyn FnMut(Row)) {
    for (percent, most) in [(50, 20.0), (99, 60.0)] {
        print(Row {
            measure: format!("{measure}, p{percent}"),
            level: Durability::Logged,
            value: measured.claims.percentile(percent),
            unit: "us",
            limit: measured.copies.percentile(percent),
            limit_kind: MEMCPY,
            goal: goal(most),
            digest: measured.digest,
        });
    }
}

/// A table of so many ready rows. Those that the claims take lie spread over all of it and were ready first; the others
/// stand behind them in the queue, with empty lists, for ten gigabytes of values would measure the disk. With values that are held
/// against their checksums as they are read, or not.
fn task(workload: &Workload, rows: usize, checked: bool) -> Outcome<Measured> {
    let directory = tempfile::tempdir()?;
    let options = Options::default().durability(Durability::Logged).check_values(checked);
    let store = workload::open_with(directory.path(), options)?;
    let table = workload::solver(&store)?;
    let consumer = workload::score(&store)?;
    let claimed = workload.scale.claims * MICRO_BATCH;
    fill(workload, &store, &table, &workload::sample_ids(rows)?, rows / claimed.min(rows))?;

    let mut measured = Measured::default();
    let mut copy = Copy::new();
    for claim in 0..workload.scale.claims.min(rows / MICRO_BATCH) {
        let start = Instant::now();
        let taken = consumer.claim(MicroBatch::of(MICRO_BATCH), "bench", Wait::No)?;
        let taken = taken.ok_or("nothing was ready")?;
        let batch = taken.columns(COLUMNS)?;
        measured.claims.add(start.elapsed());
        measured.add(&batch);
        taken.finish(|_| Ok(()))?;
        measured.copies.add(copy.of(workload, claim * MICRO_BATCH));
    }
    Ok(measured)
}

/// Inserts all rows, then makes every `stride`-th ready with its values, then the others without.
fn fill(workload: &Workload, store: &Store, table: &Table, ids: &[SampleId], stride: usize) -> Outcome<()> {
    let mut rows = Vec::with_capacity(ids.len());
    for ids in ids.chunks(BATCH) {
        let mut batch = store.batch();
        for id in ids {
            batch.insert(table, NewRow::of(0, id.clone()), [])?;
        }
        rows.extend(batch.commit()?);
    }
    let (heavy, light): (Vec<_>, Vec<_>) = rows.into_iter().enumerate().partition(|(at, _)| at % stride == 0);
    for (batch_at, rows) in heavy.chunks(BATCH).enumerate() {
        let mut batch = store.batch();
        for (at, (_, row)) in rows.iter().enumerate() {
            let sample = workload.sample(batch_at * BATCH + at);
            let [response, logprobs] = sample.response();
            batch.write(table, *row, [sample.prompt(), response, logprobs, sample.reward()])?;
        }
        batch.commit()?;
    }
    for rows in light.chunks(BATCH) {
        let mut batch = store.batch();
        for (_, row) in rows {
            let null = |column| (column, Value::Null);
            batch.write(table, *row, [null("prompt"), null("response"), null("logprobs"), null("reward")])?;
        }
        batch.commit()?;
    }
    Ok(())
}

/// One step over all groups, in micro-batches.
fn trainer(workload: &Workload, groups: usize) -> Outcome<Measured> {
    let directory = tempfile::tempdir()?;
    let store = workload::open(directory.path())?;
    let table = workload::solver(&store)?;
    let train = Consumer::trainer(["solver"]).ready(["response", "logprobs", "reward"]);
    let train = store.create_consumer("train", train.group(GroupBy::Input, GROUP))?;
    let ids = workload::sample_ids(groups * GROUP as usize)?;
    for (at, ids) in ids.chunks(BATCH).enumerate() {
        let samples = ids.iter().enumerate().map(|(i, id)| (id, workload.sample(at * BATCH + i)));
        workload::write_staged(&store, &table, 0, samples)?;
    }
    let step: Step =
        store.begin_step(StepPlan::new().groups(&train, (0..groups).map(|g| format!("q{g}"))))?;

    let mut measured = Measured::default();
    let mut copy = Copy::new();
    for claim in 0..ids.len() / MICRO_BATCH {
        let start = Instant::now();
        let taken = step.next(&train, MicroBatch::of(MICRO_BATCH), Wait::No)?.ok_or("nothing was ready")?;
        let batch = taken.columns(COLUMNS)?;
        measured.claims.add(start.elapsed());
        measured.add(&batch);
        taken.accumulated()?;
        measured.copies.add(copy.of(workload, claim * MICRO_BATCH));
    }
    step.commit([("solver", vec![])])?;
    Ok(measured)
}

impl Measured {
    /// Hashes what was claimed, in whatever order it came.
    fn add(&mut self, batch: &RecordBatch) {
        for column in batch.columns() {
            let data = column.to_data();
            let child = data.child_data().first().map_or(&[][..], |child| child.buffers());
            for buffer in data.buffers().iter().chain(child) {
                self.digest = self.digest.wrapping_add(forebay_store::checksum::crc32c(buffer).into());
            }
        }
    }
}

/// The limit: one buffer a column, there before, and the bytes of the samples copied to it.
struct Copy([Vec<u8>; 4]);

impl Copy {
    fn new() -> Self {
        Copy(std::array::from_fn(|_| Vec::with_capacity(1 << 20)))
    }

    fn of(&mut self, workload: &Workload, first: usize) -> std::time::Duration {
        self.0.iter_mut().for_each(Vec::clear);
        let (time, ()) = timed(|| {
            for row in first..first + MICRO_BATCH {
                let sample = workload.sample(row);
                for (buffer, list) in self.0.iter_mut().zip(sample.lists()) {
                    buffer.extend_from_slice(list);
                }
                self.0[3].extend_from_slice(&sample.reward.to_le_bytes());
            }
        });
        std::hint::black_box(&self.0);
        time
    }
}
