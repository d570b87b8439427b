//! Samples on their way into extents that were used before: a run that has been going for a while.
//!
//! Versions of a policy come and go: writers fill one, a step trains on a little of it, the next one begins, and
//! retention gives the space of the one before back. What is live goes round in a span of a fixed size. Housekeeping
//! (retention and used-again extents, syncs, checkpoints) runs beside the writers on three threads, as `forebay run` has it, and
//! is paid for by the same two cores; the clock runs from a version's first row to its last.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_store::{
    Consumer, ConsumerHandle, Durability, GroupBy, MicroBatch, Options, Retention, SampleId, StepPlan, Store,
    Table, Wait,
};

use crate::measure::{Pair, Times, on_threads, timed, typical};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, GROUP, Workload};
use crate::{Outcome, limit};

/// How many versions are live at once, the one being written among them: the span is divided among them.
const LIVE_VERSIONS: usize = 4;
/// When so many versions have come and gone without a new file, what there is is enough.
const STEADY_VERSIONS: u64 = 2 * LIVE_VERSIONS as u64;
const WARM_VERSIONS_MAX: u64 = 16 * LIVE_VERSIONS as u64;
/// How often the limits are synced: the store's own default.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Housekeeping is asked this often.
const DUTY_INTERVAL: Duration = Duration::from_millis(20);

/// One and two writers, at the levels that wait for no disk.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    for level in [Durability::Memory, Durability::Logged] {
        for writers in [1, 2] {
            at(workload, level, writers, print)?;
        }
    }
    Ok(())
}

/// What one repetition saw.
struct Seen {
    time: Duration,
    samples: usize,
    /// Extents used again, of all that were begun.
    again: Pair,
    batches: Times,
    digest: u64,
}

fn at(workload: &Workload, level: Durability, writers: usize, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (mut pairs, mut warm, mut stall, mut again, mut digest) =
        (vec![], vec![], Times::default(), vec![], 0);
    let repetitions = if workload.scale.row_time.is_zero() { workload.scale.repetitions.min(3) } else { 1 };
    for _ in 0..repetitions {
        let seen = store(workload, level, writers)?;
        let rate = |samples: usize, time: Duration| workload.bytes(samples) as f64 / 1e6 / time.as_secs_f64();
        // As many bytes as there is time for between several syncs.
        let many = seen.samples.max(workload.scale.rotated_samples);
        let stores = rate(many, rotating(workload, writers, many, false)?);
        let writes = rate(many, rotating_writes(workload, writers, many)?);
        let copies = rate(seen.samples, rotating(workload, writers, seen.samples, true)?);
        let value = rate(seen.samples, seen.time);
        pairs.push(Pair { value, limit: stores.max(writes) });
        warm.push(Pair { value, limit: copies });
        (digest, again) = (seen.digest, {
            again.push(seen.again);
            again
        });
        stall.join(seen.batches);
    }
    let who = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
    let measure = format!("ingest into used extents, {}, {who}", workload.scale.live_words());
    let mut row = |measure: String, Pair { value, limit }: Pair, unit, limit_kind, goal| {
        print(Row { measure, level, value, unit, limit, limit_kind, goal, digest });
    };
    let (of_copy, of_better) = match level {
        Durability::Memory => (Goal::RatioAtLeast(0.7), Goal::None),
        _ => (Goal::None, Goal::RatioAtLeast(0.8)),
    };
    row(
        measure.clone(),
        typical(warm),
        "MB/s",
        "copy with crc32c into a warm file of the span, round and round",
        of_copy,
    );
    let better = typical(pairs);
    let kind = "the better of bare mapped stores and gathered writes, round and round, synced once a second";
    row(measure.clone(), better, "MB/s", kind, of_better);
    let per_sample = workload.scale.pool as f64 / (workload.bytes(workload.scale.pool) as f64 / 1e6);
    let counted = Pair { value: better.value * per_sample, limit: better.limit * per_sample };
    row(measure.clone(), counted, "samples/s", kind, Goal::AtLeast(400_000.0));
    row(format!("{measure}: extents used again"), typical(again), "extents", "extents begun", Goal::None);
    let stall = Pair { value: stall.percentile_of(0.999), limit: stall.mean() };
    row(format!("{measure}: a batch, p99.9"), stall, "us", "the mean batch", Goal::None);
    Ok(())
}

fn store(workload: &Workload, level: Durability, writers: usize) -> Outcome<Seen> {
    let directory = tempfile::tempdir()?;
    let run = Run::open(directory.path(), level)?;
    let samples = (workload.scale.span_bytes
        / LIVE_VERSIONS
        / (workload.bytes(workload.scale.pool) / workload.scale.pool))
        .next_multiple_of(BATCH * writers);
    let ids = workload::sample_ids(samples)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Three hands, as `forebay::Duties` has them.
        let tend = |work: fn(&Store) -> Result<(), forebay_store::Error>| {
            let (store, done) = (&run.store, &done);
            scope.spawn(move || -> Outcome<()> {
                while !done.load(Ordering::Relaxed) {
                    work(store)?;
                    std::thread::park_timeout(DUTY_INTERVAL);
                }
                Ok(())
            })
        };
        let hands = [
            tend(|store| store.tend().map(drop)),
            tend(|store| store.sync_if_due().map(drop)),
            tend(|store| store.checkpoint_if_due().map(drop)),
        ];
        let seen = run.versions(workload, &ids, writers);
        done.store(true, Ordering::Relaxed);
        for hand in hands {
            hand.join().map_err(|_| "housekeeping panicked")??;
        }
        seen
    })
}

struct Run {
    store: Store,
    table: Table,
    train: ConsumerHandle,
    extents: PathBuf,
}

impl Run {
    fn open(path: &Path, level: Durability) -> Outcome<Self> {
        let keep = Retention::default().versions(LIVE_VERSIONS as u64 - 2);
        let options = Options::default().durability(level).retention(keep).object_versions_kept(1);
        let store = Store::open(path.join("store"), options)?;
        let table = workload::solver(&store)?;
        let trainer = Consumer::trainer(["solver"]).ready(["response", "logprobs", "reward"]);
        let train = store.create_consumer("train", trainer.group(GroupBy::Input, GROUP))?;
        Ok(Run { store, table, train, extents: path.join("store/extents") })
    }

    /// Versions until no file has been made for a while, then those that count.
    fn versions(&self, workload: &Workload, ids: &[SampleId], writers: usize) -> Outcome<Seen> {
        let first = self.warm_up(workload, ids, writers)?;
        let begun = || -> Outcome<(u64, usize)> { Ok((self.store.stats().extents_recycled, self.files()?)) };
        let (mut time, mut batches, before) = (Duration::ZERO, Times::default(), begun()?);
        let warmed_up = self.table.counts().written; // how much that takes is a matter of time
        let mut version = first;
        while version < first + workload.scale.recycled_versions || time < workload.scale.row_time {
            let (spent, _) = self.write(workload, ids, (version, writers), &mut batches)?;
            time += spent;
            self.train(version)?;
            version += 1;
        }
        let (recycled, files) = begun()?;
        let (again, created) = ((recycled - before.0) as f64, files.saturating_sub(before.1) as f64);
        let samples = ids.len() * (version - first) as usize;
        let digest = self.table.counts().written - warmed_up;
        Ok(Seen {
            time,
            samples,
            again: Pair { value: again, limit: (again + created).max(1.0) },
            batches,
            digest,
        })
    }

    /// Writes versions until there are as many files as it takes, also while some wait for a sync. Gives the next version.
    fn warm_up(&self, workload: &Workload, ids: &[SampleId], writers: usize) -> Outcome<u64> {
        let (mut version, mut files, mut grown) = (0, 0, 0);
        while version < grown + STEADY_VERSIONS && version < WARM_VERSIONS_MAX {
            self.write(workload, ids, (version, writers), &mut Times::default())?;
            self.train(version)?;
            version += 1;
            if self.files()? > files {
                (files, grown) = (self.files()?, version);
            }
        }
        Ok(version)
    }

    /// How many files of values there are, free ones too.
    fn files(&self) -> Outcome<usize> {
        Ok(std::fs::read_dir(&self.extents)?.count())
    }

    fn write(
        &self,
        workload: &Workload,
        ids: &[SampleId],
        (version, writers): (u64, usize),
        batches: &mut Times,
    ) -> Outcome<(Duration, u64)> {
        let times = Mutex::new(std::mem::take(batches));
        let spent = on_threads(writers, |writer| {
            let mut mine = Times::default();
            for (number, ids) in ids.chunks(BATCH).enumerate().skip(writer).step_by(writers) {
                let samples =
                    ids.iter().enumerate().map(|(at, id)| (id, workload.sample(number * BATCH + at)));
                let (time, written) =
                    timed(|| workload::write_staged(&self.store, &self.table, version, samples));
                written?;
                mine.add(time);
            }
            times.lock().map_err(|_| "poisoned")?.join(mine);
            Ok(0)
        });
        *batches = times.into_inner()?;
        spent
    }

    /// A step over one group, which leaves the version behind.
    fn train(&self, version: u64) -> Outcome<()> {
        let step = self.store.begin_step(StepPlan::new().groups(&self.train, ["q0"]))?;
        let claim = step.next(&self.train, MicroBatch::of(GROUP as usize), Wait::No)?;
        claim.ok_or_else(|| format!("no group of version {version}"))?.accumulated()?;
        step.commit([("solver", vec![])])?;
        Ok(())
    }
}

/// Bare stores into a mapped file, round and round: with checksums and nobody who syncs, or without and with one.
fn rotating(workload: &Workload, writers: usize, samples: usize, checksum: bool) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let span = workload.scale.span_bytes / writers;
    let (mut maps, mut files) = (Vec::new(), Vec::new());
    for writer in 0..writers {
        let path = directory.path().join(writer.to_string());
        let mut map = limit::mapped(&path, span)?;
        map.fill(1); // so that every page is there
        maps.push(Mutex::new(map));
        files.push(File::open(path)?);
    }
    let work = |writer: usize| {
        let mut map = maps[writer].lock().map_err(|_| "poisoned")?;
        let rows = (0..samples / writers).map(|row| row * writers + writer);
        Ok(limit::copy(workload, rows, (&mut map, &mut 0), checksum))
    };
    if checksum {
        return Ok(on_threads(writers, work)?.0);
    }
    syncing(&files, || Ok(on_threads(writers, work)?.0))
}

/// Bare gathered writes to a file that is there already, round and round, with somebody who syncs.
fn rotating_writes(workload: &Workload, writers: usize, samples: usize) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let span = workload.scale.span_bytes / writers;
    let mut files = Vec::new();
    for writer in 0..writers {
        let path = directory.path().join(writer.to_string());
        limit::mapped(&path, span)?.fill(1); // so that every page is there
        files.push(File::options().write(true).open(path)?);
    }
    let batches = |writer: usize| (writer..samples / BATCH).step_by(writers);
    let work = |writer: usize| limit::gather(workload, batches(writer), &files[writer], span);
    syncing(&files, || Ok(on_threads(writers, work)?.0))
}

/// Does the work while the files are synced as often as the store syncs what nobody asked it to.
fn syncing(files: &[File], work: impl FnOnce() -> Outcome<Duration>) -> Outcome<Duration> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let syncer = scope.spawn(|| -> Outcome<()> {
            loop {
                std::thread::park_timeout(SYNC_INTERVAL);
                if done.load(Ordering::Relaxed) {
                    return Ok(());
                }
                files.iter().try_for_each(File::sync_data)?;
            }
        });
        let time = work();
        done.store(true, Ordering::Relaxed);
        syncer.thread().unpark();
        syncer.join().map_err(|_| "the syncer panicked")??;
        time
    })
}
