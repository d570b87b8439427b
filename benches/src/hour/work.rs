//! The threads of an hour.
//!
//! Writers write two stages of a sample; a task takes rows in the order in which they come and writes their reward with
//! the end of its claim, or leaves one in [`UNSCORED`] out; a trainer takes groups of eight in a step until it has half
//! of what a version is to hold, waits until the writers have written the rest, names a new object and commits. Its window
//! of one version lets writers go on while it commits; nobody is more than that behind, for it waits for stragglers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use forebay_store::{
    Cause, Claim, Consumer, ConsumerHandle, Durability, GroupBy, MicroBatch, Options, Retention, SampleId,
    Step, StepPlan, Store, Table, Value, Wait,
};

use super::histogram::Histogram;
use super::sample::Sample;
use crate::Outcome;
use crate::measure::timed;
use crate::workload::{self, BATCH, COLUMNS, GROUP, Workload};

/// How many versions are live at once, the one being written among them: the span is divided among them.
const LIVE_VERSIONS: usize = 4;
/// One sample in so many is left out instead of being scored.
const UNSCORED: u64 = 64;
/// The part of a version's samples that is trained on.
const TRAINED_SHARE: f64 = 0.5;
/// The state of the trainer that each commit names.
const OBJECT_BYTES: usize = 1 << 20;
const OBJECT: &str = "solver.weights";
/// The store is asked this often whether something is due.
const DUTY_INTERVAL: Duration = Duration::from_millis(20);
/// Who waits looks this often whether the run is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// What a writer says that it writes while it writes nothing.
const NOTHING: u64 = u64::MAX;

/// A store at work.
#[derive(Debug)]
pub(super) struct Work<'w> {
    workload: &'w Workload,
    store: Store,
    table: Table,
    score: ConsumerHandle,
    train: ConsumerHandle,
    /// Samples of each version.
    version_samples: u64,
    stopped: AtomicBool,
    /// The version that is to be written.
    version: AtomicU64,
    /// Batches that were begun.
    batches: AtomicU64,
    written: AtomicU64,
    scored: AtomicU64,
    unscored: AtomicU64,
    claims: AtomicU64,
    steps: AtomicU64,
    trained: AtomicU64,
    times: Histogram,
    longest_ns: AtomicU64,
}

type Thread<'s> = ScopedJoinHandle<'s, Outcome<()>>;

impl<'w> Work<'w> {
    pub(super) fn open(path: &std::path::Path, workload: &'w Workload, live_bytes: usize) -> Outcome<Self> {
        let keep = Retention::default().versions(LIVE_VERSIONS as u64 - 2);
        let options =
            Options::default().durability(Durability::Logged).retention(keep).object_versions_kept(1);
        // As much again as is live: what is used next has its pages, and no peak of a busy second stays for good.
        let options = options.free_extent_bytes_max(live_bytes as u64);
        let store = Store::open(path.join("store"), options)?;
        let table = workload::solver(&store)?;
        let score = store.create_consumer("score", Consumer::task(["solver"]).ready(["response"]))?;
        let trainer = Consumer::trainer(["solver"]).ready(["response", "logprobs", "reward"]);
        let train = store.create_consumer("train", trainer.group(GroupBy::Input, GROUP).staleness(1))?;
        let sample_bytes = workload.bytes(workload.scale.pool) / workload.scale.pool;
        let version_samples = (live_bytes / LIVE_VERSIONS / sample_bytes).next_multiple_of(BATCH) as u64;
        Ok(Work {
            workload,
            store,
            table,
            score,
            train,
            version_samples,
            stopped: AtomicBool::new(false),
            version: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            written: AtomicU64::new(0),
            scored: AtomicU64::new(0),
            unscored: AtomicU64::new(0),
            claims: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            trained: AtomicU64::new(0),
            times: Histogram::default(),
            longest_ns: AtomicU64::new(0),
        })
    }

    /// Starts all threads. They end with [`stop`](Self::stop), or all with the first failure of one.
    pub(super) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, writers: usize) -> Vec<Thread<'s>> {
        let on: std::sync::Arc<[AtomicU64]> = (0..writers).map(|_| AtomicU64::new(NOTHING)).collect();
        let spawn = |work: Box<dyn FnOnce() -> Outcome<()> + Send + 's>| {
            scope.spawn(move || {
                let _stop = StopAtTheEnd(self);
                work()
            })
        };
        let mut threads = Vec::new();
        for writer in 0..writers {
            let on = on.clone();
            threads.push(spawn(Box::new(move || self.write(&on[writer]))));
        }
        threads.push(spawn(Box::new(|| self.score())));
        threads.push(spawn(Box::new(move || self.train(&on))));
        // Three hands, as `forebay::Duties` has them.
        threads.push(spawn(Box::new(|| self.tend(|store| store.tend().map(drop)))));
        threads.push(spawn(Box::new(|| self.tend(|store| store.sync_if_due().map(drop)))));
        threads.push(spawn(Box::new(|| self.tend(|store| store.checkpoint_if_due().map(drop)))));
        threads
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The mean time of a batch and the one that one in a thousand exceeds, in microseconds.
    pub(super) fn batch_times(&self) -> (f64, f64) {
        (self.times.mean_us(), self.times.percentile_us(0.999))
    }

    /// Fills in what is counted here and what the store says of itself.
    pub(super) fn count(&self, sample: &mut Sample) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        sample.samples = of(&self.written);
        (sample.scored, sample.claims, sample.steps) = (of(&self.scored), of(&self.claims), of(&self.steps));
        sample.batch_max_us = self.longest_ns.swap(0, Ordering::Relaxed) as f64 / 1e3;
        let stats = self.store.stats();
        sample.store_bytes = stats.memory_bytes as f64;
        sample.extents = stats.extents as f64;
        sample.free_extent_bytes = stats.free_extent_bytes as f64;
        sample.extents_recycled = stats.extents_recycled as f64;
        sample.logged_bytes = stats.log_bytes as f64;
        sample.commits = stats.commits as f64;
    }

    /// Holds the store's counts against what was acknowledged, once all threads have ended.
    pub(super) fn check(&self) -> Outcome<()> {
        let counts = self.table.counts();
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let left_out = counts.excluded.get("unscored").copied().unwrap_or(0);
        let store = (counts.written, counts.consumed, left_out);
        let here = (of(&self.written), of(&self.trained), of(&self.unscored));
        if store != here {
            return Err(format!(
                "the store has {store:?} samples written, trained on and left out, {here:?} were"
            )
            .into());
        }
        Ok(())
    }

    fn write(&self, on: &AtomicU64) -> Outcome<()> {
        while !self.is_stopped() {
            // Said before it is read again: the trainer either sees it or has not moved on yet.
            on.store(self.version.load(Ordering::SeqCst), Ordering::SeqCst);
            let version = self.version.load(Ordering::SeqCst);
            let first = self.batches.fetch_add(1, Ordering::Relaxed) * BATCH as u64;
            let ids = (first..first + BATCH as u64).map(sample_id).collect::<Outcome<Vec<_>>>()?;
            let samples =
                ids.iter().zip(first as usize..).map(|(id, number)| (id, self.workload.sample(number)));
            let (time, rows) = timed(|| workload::write_unscored(&self.store, &self.table, version, samples));
            self.written.fetch_add(rows?.len() as u64, Ordering::Relaxed);
            self.times.add(time);
            self.longest_ns.fetch_max(time.as_nanos() as u64, Ordering::Relaxed);
        }
        on.store(NOTHING, Ordering::SeqCst);
        Ok(())
    }

    fn score(&self) -> Outcome<()> {
        while !self.is_stopped() {
            let claim = self.score.claim(MicroBatch::up_to(BATCH), "scorer", Wait::For(LOOK_INTERVAL))?;
            let Some(claim) = claim else { continue };
            claim.columns(["sample_id", "response"])?;
            self.claims.fetch_add(1, Ordering::Relaxed);
            match self.give_rewards(claim) {
                Ok(()) => {}
                // The policy moved on twice meanwhile: what is stale is nobody's, the rest comes again.
                Err(error) if is_too_late(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn give_rewards(&self, claim: Claim) -> forebay_store::Result<()> {
        let named: Vec<_> = claim.rows().iter().copied().zip(claim.sample_ids().iter().cloned()).collect();
        let mut left_out = 0;
        claim.finish(|batch| {
            for (row, sample) in &named {
                let number = number_of(sample);
                if number.is_multiple_of(UNSCORED) {
                    batch.exclude(&self.table, *row, "unscored")?;
                    left_out += 1;
                } else {
                    let reward = Value::from(f32::from(number.is_multiple_of(2)));
                    batch.write(&self.table, *row, [("reward", reward)])?;
                }
            }
            Ok(())
        })?;
        self.unscored.fetch_add(left_out, Ordering::Relaxed);
        self.scored.fetch_add(named.len() as u64 - left_out, Ordering::Relaxed);
        Ok(())
    }

    fn train(&self, writers: &[AtomicU64]) -> Outcome<()> {
        let mut state = vec![7_u8; OBJECT_BYTES];
        let planned = (self.version_samples as f64 * TRAINED_SHARE) as u64;
        for version in 0.. {
            let step = self.store.begin_step(StepPlan::new().rows(&self.train, planned.max(1)))?;
            let full = (version + 1) * self.version_samples;
            let behind = |on: &AtomicU64| on.load(Ordering::SeqCst) < version;
            let written = || self.written.load(Ordering::Relaxed) >= full && !writers.iter().any(behind);
            if !self.take_all(&step)? || !self.wait_until(written) {
                return Ok(());
            }
            state[..8].copy_from_slice(&step.number().to_le_bytes());
            let object = self.store.put_object(OBJECT, step.number(), &state)?;
            let committed = step.commit([("solver", vec![object])])?;
            self.trained.fetch_add(committed.rows, Ordering::Relaxed);
            self.version.store(version + 1, Ordering::SeqCst);
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes what the step plans. False when the run is over before.
    fn take_all(&self, step: &Step) -> Outcome<bool> {
        while !self.is_stopped() {
            match step.next(&self.train, MicroBatch::up_to(BATCH), Wait::For(LOOK_INTERVAL))? {
                Some(claim) => {
                    claim.columns(COLUMNS)?;
                    claim.accumulated()?;
                    self.claims.fetch_add(1, Ordering::Relaxed);
                }
                None if step.is_complete(&self.train) => return Ok(true),
                None => {}
            }
        }
        Ok(false)
    }

    /// Waits for something that others do. False when the run is over before.
    fn wait_until(&self, done: impl Fn() -> bool) -> bool {
        while !done() {
            if self.is_stopped() {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        true
    }

    fn tend(&self, work: fn(&Store) -> Result<(), forebay_store::Error>) -> Outcome<()> {
        while !self.is_stopped() {
            work(&self.store)?;
            std::thread::park_timeout(DUTY_INTERVAL);
        }
        Ok(())
    }
}

/// Ends the run with the thread that holds it, so that the failure of one is not waited for by the others.
struct StopAtTheEnd<'w>(&'w Work<'w>);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Whether rows of a claim were left behind, or even retired, while their holder worked on them.
fn is_too_late(error: &forebay_store::Error) -> bool {
    matches!(
        error.cause(),
        Cause::RowExcluded { .. } | Cause::ClaimFenced { .. } | Cause::Unknown { what: "row", .. }
    )
}

/// The name of a sample by its number: its group's members follow on each other. No group has the input of another.
fn sample_id(number: u64) -> Outcome<SampleId> {
    let (group, trajectory) = (number / u64::from(GROUP), number % u64::from(GROUP));
    Ok(SampleId::new(&format!("q{group}"), 0, trajectory as u32)?)
}

/// A number that differs from sample to sample: which reward it gets.
fn number_of(sample: &SampleId) -> u64 {
    let input =
        sample.input().bytes().fold(0_u64, |all, byte| all.wrapping_mul(31).wrapping_add(byte.into()));
    input.wrapping_add(u64::from(sample.trajectory()) * 7)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_samples_have_one_name_and_groups_are_whole() -> Outcome<()> {
        let names = (0..1024).map(sample_id).collect::<Outcome<Vec<_>>>()?;
        assert_eq!(names.iter().map(ToString::to_string).collect::<HashSet<_>>().len(), names.len());
        for group in names.chunks(GROUP as usize) {
            assert!(group.iter().all(|id| (id.input(), id.turn()) == (group[0].input(), group[0].turn())));
        }
        Ok(())
    }
}
