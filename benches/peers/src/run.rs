//! One peer at one level: how it is measured. `python/harness.py` does the same for the peers in Python.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::columns::Check;
use crate::measure::{Times, on_threads};
use crate::peer::{Level, Native, Peer, Taker, Writer};
use crate::report::Report;
use crate::workload::{BATCH, MICRO_BATCH, Workload};

/// How much is measured.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Plan {
    pub(crate) pool: usize,
    pub(crate) repetitions: usize,
    /// The most that a repetition writes.
    pub(crate) samples_max: usize,
    /// The time after which a repetition writes, or takes, no more.
    pub(crate) seconds: f64,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan { pool: 4_096, repetitions: 3, samples_max: 50_048, seconds: 1.5 };
    pub(crate) const QUICK: Plan = Plan { pool: 64, repetitions: 1, samples_max: 128, seconds: 0.2 };

    fn budget(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// What one repetition gave.
struct Repetition {
    ingest: f64,
    through: f64,
    bytes: f64,
}

/// Measures a peer. Rates are those of the repetition in the middle; times are of all repetitions together.
pub(crate) fn measure(native: &Native, level: Level, plan: Plan, workload: &Workload) -> Outcome<Report> {
    let (mut writes, mut takes, mut repetitions) = (Times::default(), Times::default(), Vec::new());
    for _ in 0..plan.repetitions {
        let directory = tempfile::tempdir()?;
        settle(directory.path())?;
        let peer = (native.open)(workload, directory.path(), level)?;
        let (ingest, rows) = ingest(&*peer, plan, &mut writes)?;
        drain(&*peer, workload, plan, rows, &mut takes)?;
        drop(peer);
        let bytes = disk_bytes(directory.path())? as f64 / rows as f64;
        drop(directory);

        let directory = tempfile::tempdir()?;
        settle(directory.path())?;
        let peer = (native.open)(workload, directory.path(), level)?;
        let through = through(&*peer, workload, plan)?;
        drop(peer);
        repetitions.push(Repetition { ingest, through, bytes });
    }
    let middle = |of: fn(&Repetition) -> f64| {
        let mut values: Vec<f64> = repetitions.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Ok(Report {
        peer: native.name.to_owned(),
        version: (native.version)()?,
        language: "Rust".to_owned(),
        level,
        ingest_per_second: middle(|r| r.ingest),
        write_p50_us: writes.percentile(50),
        write_p99_us: writes.percentile(99),
        through_per_second: middle(|r| r.through),
        take_p50_us: takes.percentile(50),
        take_p99_us: takes.percentile(99),
        disk_bytes_per_sample: middle(|r| r.bytes),
        note: (native.note)(level).to_owned(),
    })
}

/// Writes until there is enough or the time is over. Gives samples a second, and how many there were.
fn ingest(peer: &dyn Peer, plan: Plan, writes: &mut Times) -> Outcome<(f64, usize)> {
    let mut writer = peer.writer()?;
    let (start, mut rows) = (Instant::now(), 0);
    while rows < plan.samples_max && (rows == 0 || start.elapsed() < plan.budget()) {
        let before = Instant::now();
        writer.write(rows)?;
        writes.add(before.elapsed());
        rows += BATCH;
    }
    Ok((rows as f64 / start.elapsed().as_secs_f64(), rows))
}

/// Takes what is ready, 16 at a time, until all is taken or the time is over. Checking what came is not timed.
fn drain(peer: &dyn Peer, workload: &Workload, plan: Plan, rows: usize, takes: &mut Times) -> Outcome<()> {
    let mut taker = peer.taker()?;
    let mut check = Check::new(workload, plan.pool, rows);
    let (start, mut taken) = (Instant::now(), 0);
    while taken < rows && (taken == 0 || start.elapsed() < plan.budget()) {
        let (mut seen, mut checking) = (Ok(()), Duration::ZERO);
        let before = Instant::now();
        let count = taker.take(&mut |columns| {
            let before = Instant::now();
            seen = check.see(&columns);
            checking = before.elapsed();
        })?;
        takes.add(before.elapsed() - checking);
        seen?;
        if count != MICRO_BATCH {
            return Err(format!("{count} rows were given, and {} are ready", rows - taken).into());
        }
        taken += count;
    }
    Ok(())
}

/// One thread writes while another takes and reads, until there is enough or the time is over. Gives the samples a second
/// that came out.
fn through(peer: &dyn Peer, workload: &Workload, plan: Plan) -> Outcome<f64> {
    let (bell, start) = (Bell::default(), Instant::now());
    let (_, nanoseconds_a_sample) = on_threads(2, |thread| {
        let outcome = match thread {
            0 => peer.writer().and_then(|writer| write_all(writer, plan, &bell)).map(|()| 0),
            _ => peer.taker().and_then(|taker| {
                let check = Check::new(workload, plan.pool, plan.samples_max);
                take_all(taker, check, plan, (&bell, start))
            }),
        };
        bell.ring(outcome.is_err() || thread == 1); // the writer goes on as long as somebody takes
        outcome
    })?;
    Ok(1e9 / nanoseconds_a_sample as f64)
}

fn write_all(mut writer: Box<dyn Writer + '_>, plan: Plan, bell: &Bell) -> Outcome<()> {
    for first in (0..plan.samples_max).step_by(BATCH) {
        if bell.rung().1 {
            break;
        }
        writer.write(first)?;
        bell.ring(false);
    }
    Ok(())
}

/// Gives the nanoseconds from the start to the last take, over the rows.
fn take_all(
    mut taker: Box<dyn Taker + '_>,
    mut check: Check,
    plan: Plan,
    (bell, start): (&Bell, Instant),
) -> Outcome<u64> {
    let (mut taken, mut last) = (0, Duration::ZERO);
    while taken < plan.samples_max && (taken == 0 || last < plan.budget()) {
        let (rung, alone) = bell.rung();
        let mut seen = Ok(());
        let count = taker.take(&mut |columns| seen = check.see(&columns))?;
        seen?;
        if count > 0 {
            (taken, last) = (taken + count, start.elapsed());
        } else if alone {
            return Err("the writer has failed".into());
        } else {
            bell.wait(rung)?;
        }
    }
    Ok(last.as_nanos() as u64 / taken as u64)
}

/// What a program must bring along for stores that wake nobody: it tells its taker of each batch.
#[derive(Debug, Default)]
struct Bell {
    /// How often it rang, and whether one side has ended: the taker with what it wanted, the writer only by a failure.
    state: Mutex<(u64, bool)>,
    bell: Condvar,
}

impl Bell {
    fn ring(&self, ended: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (state.0 + 1, state.1 || ended);
        self.bell.notify_one();
    }

    fn rung(&self) -> (u64, bool) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has rung since.
    fn wait(&self, since: u64) -> Outcome<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(state, Duration::from_secs(30), |state| state.0 == since);
        let (_state, late) = waited.unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() { Err("nothing more became ready".into()) } else { Ok(()) }
    }
}

/// Waits until the disk has nothing left of what ran before.
fn settle(directory: &Path) -> Outcome<()> {
    let done = std::process::Command::new("sync").arg("--file-system").arg(directory).status()?;
    if done.success() { Ok(()) } else { Err(format!("sync gave {done}").into()) }
}

/// The blocks that the files under a directory hold, whatever their length.
fn disk_bytes(directory: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
