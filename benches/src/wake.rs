//! From the last cell written to the claim in the hands of a thread that waits for it.
//!
//! A wake-up on the core of the thread that wakes is a switch between two threads; on another core it wakes the core first, which
//! takes ten times as long on a virtual machine. Which of the two a measurement has is the kernel's choice. So both sides of the
//! comparison have their threads on two cores; what comes of it where the kernel chooses stands beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use forebay_store::{ConsumerHandle, Durability, MicroBatch, SampleId, Store, Table, Wait};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Outcome;
use crate::limit::Bell;
use crate::measure::Times;
use crate::row::{Goal, Row};
use crate::workload::{self, Workload};

/// Long enough for the other thread to be asleep.
const PAUSE: Duration = Duration::from_micros(300);
/// A claimer that has not been woken by now never will be.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the thread waits, and where.
#[derive(Clone, Copy)]
struct Case {
    how: &'static str,
    limit_kind: &'static str,
    goals: [Goal; 2],
    polls: bool,
    /// Each thread on a core of its own.
    apart: bool,
}

const CASES: [Case; 3] = [
    Case {
        how: "a waiting thread",
        limit_kind: "a bare wake-up by condition variable, across cores",
        goals: [Goal::RatioAtMost(1.5), Goal::RatioAtMost(3.0)],
        polls: false,
        apart: true,
    },
    Case {
        how: "a waiting thread, cores as the kernel chooses",
        limit_kind: "a bare wake-up by condition variable, cores as the kernel chooses",
        goals: [Goal::None, Goal::None],
        polls: false,
        apart: false,
    },
    Case {
        how: "a polling thread",
        limit_kind: "an atomic store seen by a spinning thread",
        goals: [Goal::AtMost(5.0), Goal::None],
        polls: true,
        apart: false,
    },
];

/// For a thread that sleeps, and for one that polls. Where there is one core, nothing wakes across two.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let is_alone = cores()?.len() < 2;
    for case in CASES.into_iter().filter(|case| !(case.apart && is_alone)) {
        let (mut wakes, mut bare, digest) = measure(workload, case)?;
        for (percent, goal) in [50, 99].into_iter().zip(case.goals) {
            print(Row {
                measure: format!("last cell to claim, {}, p{percent}", case.how),
                level: Durability::Logged,
                value: wakes.percentile(percent),
                unit: "us",
                limit: bare.percentile(percent),
                limit_kind: case.limit_kind,
                goal,
                digest,
            });
        }
    }
    Ok(())
}

/// Claims and bare wake-ups take turns. The clock starts before the write, so the write is part of the time.
fn measure(workload: &Workload, case: Case) -> Outcome<(Times, Times, u64)> {
    let directory = tempfile::tempdir()?;
    let store = workload::open(directory.path())?;
    let table = workload::solver(&store)?;
    let consumer = workload::score(&store)?;
    let ids = workload::sample_ids(workload.scale.wakes)?;
    let (bell, flag, (sender, receiver)) = (Bell::default(), AtomicU64::new(0), channel());
    let origin = Instant::now();
    std::thread::scope(|scope| {
        let (rounds, ring) = (ids.len(), Ring { bell: &bell, flag: &flag, polls: case.polls, origin });
        let claimer = scope.spawn(move || {
            stay(case, 1)?;
            claim(&consumer, rounds, ring, &sender)
        });
        let (store, table, ids) = (&store, &table, &ids);
        let writer = scope.spawn(move || {
            stay(case, 0)?;
            write(workload, store, table, ids, ring, &receiver)
        });
        let written = writer.join().map_err(|_| "the writer panicked")?;
        let claimed = claimer.join().map_err(|_| "the claimer panicked")?;
        let (wakes, bare) = written?;
        Ok((wakes, bare, claimed?))
    })
}

/// The cores that the process may use.
fn cores() -> Outcome<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Has the calling thread stay on one of the cores, where threads are to be on cores of their own.
fn stay(case: Case, number: usize) -> Outcome<()> {
    if case.apart {
        let mut own = CpuSet::new();
        own.set(cores()?[number]);
        sched_setaffinity(None, &own)?;
    }
    Ok(())
}

/// The limit's two sides.
#[derive(Clone, Copy)]
struct Ring<'a> {
    bell: &'a Bell,
    flag: &'a AtomicU64,
    polls: bool,
    origin: Instant,
}

impl Ring<'_> {
    fn ring(self) {
        if self.polls {
            self.flag.store(self.origin.elapsed().as_nanos() as u64, Ordering::Release);
        } else {
            self.bell.ring();
        }
    }

    fn wait(self) -> Duration {
        if !self.polls {
            return self.bell.wait().elapsed();
        }
        loop {
            let rung = self.flag.swap(0, Ordering::Acquire);
            if rung != 0 {
                return self.origin.elapsed().saturating_sub(Duration::from_nanos(rung));
            }
            std::hint::spin_loop();
        }
    }
}

/// What the claiming thread says: when it had the claim, or how long the bare wake-up took.
enum Said {
    Claimed(Instant),
    Woken(Duration),
}

fn claim(consumer: &ConsumerHandle, rounds: usize, ring: Ring<'_>, say: &Sender<Said>) -> Outcome<u64> {
    let mut digest = 0_u64;
    for _ in 0..rounds {
        let claim = loop {
            let wait = if ring.polls { Wait::No } else { Wait::For(PATIENCE) };
            match consumer.claim(MicroBatch::of(1), "bench", wait)? {
                Some(claim) => break claim,
                None if !ring.polls => return Err("the claimer was not woken".into()),
                None if ring.origin.elapsed() > 10 * PATIENCE => return Err("nothing became ready".into()),
                None => {}
            }
        };
        let at = Instant::now();
        digest += u64::from(claim.sample_ids()[0].trajectory()) + 1;
        claim.finish(|_| Ok(()))?;
        say.send(Said::Claimed(at))?;
        let woken = ring.wait();
        say.send(Said::Woken(woken))?;
    }
    Ok(digest)
}

fn write(
    workload: &Workload,
    store: &Store,
    table: &Table,
    ids: &[SampleId],
    ring: Ring<'_>,
    heard: &Receiver<Said>,
) -> Outcome<(Times, Times)> {
    let (mut wakes, mut bare) = (Times::default(), Times::default());
    for (at, id) in ids.iter().enumerate() {
        let sample = workload.sample(at);
        let rows = workload::write_unscored(store, table, 0, std::iter::once((id, sample)))?;
        std::thread::sleep(PAUSE);
        let start = Instant::now();
        table.write(rows[0], [sample.reward()])?;
        for _ in 0..2 {
            match heard.recv()? {
                Said::Claimed(at) => {
                    wakes.add(at.saturating_duration_since(start));
                    std::thread::sleep(PAUSE);
                    ring.ring();
                }
                Said::Woken(time) => bare.add(time),
            }
        }
    }
    Ok((wakes, bare))
}
