//! Batches that are on stable storage before they are acknowledged.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use forebay_store::{Durability, NewRow, SampleId, Store, Table};

use crate::Outcome;
use crate::limit;
use crate::measure::{Times, on_threads, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, Sample, Workload};

/// Bytes of a record beside its values, as a bare commit writes them to its log.
const RECORD_BYTES: usize = 96 * BATCH;
/// Batches of a writer between those of its limits.
const TURN_BATCHES: usize = 10;

/// Batches of 64 samples: whole ones and staged ones, of one writer and of two.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    Way::ALL.into_iter().try_for_each(|way| batches(workload, way, print))
}

/// How samples are written.
#[derive(Clone, Copy)]
struct Way {
    /// One commit with everything, or the three of other rows.
    staged: bool,
    writers: usize,
}

impl Way {
    const ALL: [Way; 4] = [
        Way { staged: false, writers: 1 },
        Way { staged: false, writers: 2 },
        Way { staged: true, writers: 1 },
        Way { staged: true, writers: 2 },
    ];

    fn name(self) -> String {
        let stages = if self.staged { ", three stages" } else { "" };
        let who = if self.writers == 1 { "1 writer".to_owned() } else { format!("{} writers", self.writers) };
        format!("ingest in synced batches of {BATCH}{stages}, {who}")
    }

    /// The lists that each of its commits brings.
    fn commits<'a>(self, samples: &[&'a Sample]) -> Vec<Vec<&'a [u8]>> {
        let lists =
            |range: Range<usize>| samples.iter().flat_map(|s| s.lists()[range.clone()].to_vec()).collect();
        if self.staged { vec![lists(0..1), lists(1..3), Vec::new()] } else { vec![lists(0..3)] }
    }
}

/// Times of batches, and of the bare commits beside them.
#[derive(Default)]
struct Measured {
    engine: Times,
    two_files: Times,
    one_file: Times,
}

impl Measured {
    fn bare(&mut self, two_files: bool) -> &mut Times {
        if two_files { &mut self.two_files } else { &mut self.one_file }
    }
}

fn samples_of(workload: &Workload, batch: usize) -> Vec<&Sample> {
    (batch * BATCH..(batch + 1) * BATCH).map(|row| workload.sample(row)).collect()
}

/// Batches of 64 samples. Bare commits of the same bytes take turns with them, in as many threads, each with files of its own.
fn batches(workload: &Workload, way: Way, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let store = workload::open_at(directory.path(), Durability::Synced)?;
    let table = workload::solver(&store)?;
    let samples = workload.scale.synced_batches * BATCH;
    let ids = workload::sample_ids(samples)?;
    let bytes = 3 * workload.bytes(samples) / 2;
    let bare = |writer| Ok(Mutex::new(Bare::new(directory.path(), writer, bytes)?));
    let bare = (0..way.writers).map(bare).collect::<Outcome<Vec<_>>>()?;
    let all = Mutex::new(Measured::default());
    for (turn, ids) in ids.chunks(TURN_BATCHES * way.writers * BATCH).enumerate() {
        let first = turn * TURN_BATCHES * way.writers;
        let mine = |writer: usize| {
            let batches = ids.chunks(BATCH).enumerate().skip(writer).step_by(way.writers);
            batches.map(move |(at, ids)| (ids, samples_of(workload, first + at)))
        };
        on_threads(way.writers, |writer| {
            for (ids, samples) in mine(writer) {
                let samples = ids.iter().zip(samples);
                let (time, done) = timed(|| write(&store, &table, way, samples));
                done?;
                all.lock().map_err(|_| "poisoned")?.engine.add(time);
            }
            Ok(0)
        })?;
        for two_files in [true, false] {
            on_threads(way.writers, |writer| {
                let mut bare = bare[writer].lock().map_err(|_| "poisoned")?;
                for (_, samples) in mine(writer) {
                    let time = bare.commits(&way.commits(&samples), two_files)?;
                    all.lock().map_err(|_| "poisoned")?.bare(two_files).add(time);
                }
                Ok(0)
            })?;
        }
    }
    let (measured, digest) = (all.into_inner()?, table.counts().written);
    let rate = |times: &Times| (way.writers * BATCH) as f64 / times.mean() * 1e6;
    let limits = [
        (&measured.two_files, "bare commits to two files: values, sync, log, sync", Goal::RatioAtLeast(0.9)),
        (&measured.one_file, "bare commits to one file: values and log, sync", Goal::None),
    ];
    for (limit, limit_kind, goal) in limits {
        let (value, limit) = (rate(&measured.engine), rate(limit));
        let (measure, level, unit) = (way.name(), Durability::Synced, "samples/s");
        print(Row { measure, level, value, unit, limit, limit_kind, goal, digest });
    }
    Ok(())
}

fn write<'a>(
    store: &Store,
    table: &Table,
    way: Way,
    samples: impl Iterator<Item = (&'a SampleId, &'a Sample)> + Clone,
) -> Outcome<()> {
    if way.staged {
        workload::write_staged(store, table, 0, samples)?;
        return Ok(());
    }
    let mut batch = store.batch();
    for (id, sample) in samples {
        let [response, logprobs] = sample.response();
        let cells = [sample.prompt(), response, logprobs, sample.reward()];
        batch.insert(table, NewRow::of(0, id.clone()), cells)?;
    }
    batch.commit()?;
    Ok(())
}

/// What a commit is without an engine: two new files with their space reserved.
struct Bare {
    values: File,
    log: File,
    values_at: u64,
}

impl Bare {
    fn new(directory: &Path, writer: usize, bytes: usize) -> Outcome<Self> {
        let values = limit::reserved(&directory.join(format!("bare.values.{writer}")), 3 * bytes)?;
        let log = File::create(directory.join(format!("bare.log.{writer}")))?;
        Ok(Bare { values, log, values_at: 0 })
    }

    /// One commit after the other.
    fn commits(&mut self, commits: &[Vec<&[u8]>], two_files: bool) -> Outcome<Duration> {
        let gathered: Vec<Vec<u8>> = commits.iter().map(|values| values.concat()).collect();
        let (time, done) = timed(|| gathered.iter().try_for_each(|values| self.commit(values, two_files)));
        done?;
        Ok(time)
    }

    fn commit(&mut self, values: &[u8], two_files: bool) -> Outcome<()> {
        if !two_files {
            self.log.write_all(values)?;
        } else if !values.is_empty() {
            self.values.write_all_at(values, self.values_at)?;
            self.values.sync_data()?;
            self.values_at += values.len() as u64;
        }
        self.log.write_all(&[7; RECORD_BYTES])?;
        self.log.sync_data()?;
        Ok(())
    }
}
