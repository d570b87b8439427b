//! Ready samples into the hands of a trainer: the claim, and its columns as Arrow.

use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use forebay_store::{
    Claim, Consumer, Durability, GroupBy, Lists, MicroBatch, NewRow, Options, SampleId, Step, StepPlan,
    Store, Table, Value, Wait, compact,
};

use crate::Outcome;
use crate::measure::{Times, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, COLUMNS, GROUP, MICRO_BATCH, Workload};

const MEMCPY: &str = "nothing but a memcpy of those columns";
const TOGETHER: &str = "Arrow";
const IN_PLACE: &str = "Arrow in place";

/// Times of some claims and of their limit. Claims whose lists are gathered and claims whose lists stay where they are were
/// taken by turns, so that both saw the same machine.
#[derive(Default)]
struct Measured {
    together: Times,
    in_place: Times,
    /// From the claim until every value of a column that stayed where it is was read once.
    read: Times,
    copies: Times,
    digest: u64,
}

/// Claims of a trainer in a step, and of a task at two sizes of the table.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let groups = workload.scale.step_groups;
    let who = format!("trainer, step of {groups} groups of {GROUP}");
    trainer(workload, groups)?.rows(&who, Goal::AtMost, print);
    let [fewer, _] = workload.scale.claim_rows;
    let who = format!("task, {fewer} rows, values checked");
    task(workload, fewer, true)?.rows(&who, |_| Goal::None, print);
    let mut medians = Vec::new(); // the larger last: it leaves the process's memory as no other row does
    for rows in workload.scale.claim_rows {
        let mut measured = task(workload, rows, false)?;
        measured.rows(&format!("task, {rows} rows"), Goal::AtMost, print);
        let [together, in_place] =
            [&mut measured.together, &mut measured.in_place].map(|times| times.percentile(50));
        medians.push((together, in_place, measured.digest));
    }
    if let [small, large] = medians[..] {
        for (how, value, limit) in [(TOGETHER, large.0, small.0), (IN_PLACE, large.1, small.1)] {
            print(Row {
                measure: format!("claim {MICRO_BATCH} + {how}, task, p50 as rows grow"),
                level: Durability::Logged,
                value,
                unit: "us",
                limit,
                limit_kind: "the same claim among fewer rows",
                goal: Goal::RatioAtMost(1.5),
                digest: large.2,
            });
        }
    }
    Ok(())
}

/// A table of so many ready rows. Those that the claims take lie spread over all of it and were ready first; the others
/// stand behind them in the queue, with empty lists, for ten gigabytes of values would measure the disk. With values that are held
/// against their checksums as they are read, or not. It is brought to the disk before the first claim.
fn task(workload: &Workload, rows: usize, checked: bool) -> Outcome<Measured> {
    let directory = tempfile::tempdir()?;
    let options = Options::default().durability(Durability::Logged).check_values(checked);
    let store = workload::open_with(directory.path(), options)?;
    let table = workload::solver(&store)?;
    let consumer = workload::score(&store)?;
    let claimed = 2 * workload.scale.claims * MICRO_BATCH;
    fill(workload, &store, &table, &workload::sample_ids(rows)?, rows / claimed.min(rows))?;
    store.sync()?; // what it left to the disk is no part of a claim

    let mut measured = Measured::default();
    let mut copy = Copy::new();
    for claim in 0..(2 * workload.scale.claims).min(rows / MICRO_BATCH) {
        let start = Instant::now();
        let taken = consumer.claim(MicroBatch::of(MICRO_BATCH), "bench", Wait::No)?;
        let taken = taken.ok_or("nothing was ready")?;
        measured.columns(start, &taken, lists_of(claim))?;
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
    store.sync()?;
    let step: Step =
        store.begin_step(StepPlan::new().groups(&train, (0..groups).map(|g| format!("q{g}"))))?;

    let mut measured = Measured::default();
    let mut copy = Copy::new();
    for claim in 0..ids.len() / MICRO_BATCH {
        let start = Instant::now();
        let taken = step.next(&train, MicroBatch::of(MICRO_BATCH), Wait::No)?.ok_or("nothing was ready")?;
        measured.columns(start, &taken, lists_of(claim))?;
        taken.accumulated()?;
        measured.copies.add(copy.of(workload, claim * MICRO_BATCH));
    }
    step.commit([("solver", vec![])])?;
    Ok(measured)
}

/// How the lists of a claim are had: by turns.
fn lists_of(claim: usize) -> Lists {
    if claim.is_multiple_of(2) { Lists::Together } else { Lists::InPlace }
}

impl Measured {
    /// Takes the columns of a claim that was begun at `start`.
    fn columns(&mut self, start: Instant, claim: &Claim, lists: Lists) -> Outcome<()> {
        let batch = match lists {
            Lists::Together => {
                let batch = claim.columns(COLUMNS)?;
                self.together.add(start.elapsed());
                batch
            }
            Lists::InPlace => {
                let batch = claim.columns_in_place(COLUMNS)?;
                self.in_place.add(start.elapsed());
                std::hint::black_box(sum_of(&batch));
                self.read.add(start.elapsed());
                compact(&batch)?
            }
        };
        self.add(&batch);
        Ok(())
    }

    fn rows(&mut self, who: &str, goal: impl Fn(f64) -> Goal, print: &mut dyn FnMut(Row)) {
        let read = format!("{IN_PLACE}, each value read");
        let no_goal = |_| Goal::None;
        let ways: [Way<'_>; 3] = [
            (TOGETHER, &mut self.together, &goal),
            (IN_PLACE, &mut self.in_place, &goal),
            (&read, &mut self.read, &no_goal),
        ];
        for (how, times, goal) in ways {
            for (percent, most) in [(50, 20.0), (99, 60.0)] {
                print(Row {
                    measure: format!("claim {MICRO_BATCH} + {how}, {who}, p{percent}"),
                    level: Durability::Logged,
                    value: times.percentile(percent),
                    unit: "us",
                    limit: self.copies.percentile(percent),
                    limit_kind: MEMCPY,
                    goal: goal(most),
                    digest: self.digest,
                });
            }
        }
    }

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

/// Looks at every element of the lists.
fn sum_of(batch: &RecordBatch) -> u64 {
    let lists = batch.columns().iter().filter_map(|column| column.as_list_view_opt::<i32>());
    let sum = |list: ArrayRef| -> u64 {
        match list.as_primitive_opt::<Int32Type>() {
            Some(tokens) => tokens.values().iter().fold(0, |sum, at| sum ^ *at as u64),
            None => list
                .as_primitive::<Float32Type>()
                .values()
                .iter()
                .fold(0, |sum, at| sum ^ u64::from(at.to_bits())),
        }
    };
    lists.flat_map(|lists| lists.iter().flatten().map(sum).collect::<Vec<_>>()).fold(0, |sum, of| sum ^ of)
}

/// How the columns are had, how long that took, and what is wanted of it.
type Way<'a> = (&'a str, &'a mut Times, &'a dyn Fn(f64) -> Goal);

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
