//! Samples on their way in, three stages each.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use forebay_store::{Consumer, Durability, GroupBy, SampleId};

use crate::measure::{Pair, Times, on_threads, timed, typical};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, GROUP, Workload};
use crate::{Outcome, limit};

/// One and two writers, at the levels that wait for no disk.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    at_level(workload, Durability::Memory, print)?;
    at_level(workload, Durability::Logged, print)
}

fn at_level(workload: &Workload, level: Durability, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let samples = workload.scale.ingest_samples;
    let ids = workload::sample_ids(samples)?;
    let megabytes = workload.bytes(samples) as f64 / 1e6;
    for writers in [1, 2] {
        let (mut warm, mut stores, mut writes, mut digest) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let (mut spent, mut stall) = (Duration::ZERO, Times::default());
        while stores.len() < workload.scale.repetitions || spent < workload.scale.row_time {
            let (time, seen) = store(workload, &ids, (level, writers), &mut stall)?;
            (spent, digest) = (spent + time, seen);
            let rate = |time: Duration| megabytes / time.as_secs_f64();
            let pair = |limit| Pair { value: rate(time), limit: rate(limit) };
            warm.push(pair(rotating(workload, writers)?));
            stores.push(pair(fresh_stores(workload, writers)?));
            writes.push(pair(fresh_writes(workload, writers)?));
        }
        let better = stores.iter().zip(&writes).map(|(a, b)| Pair { limit: a.limit.max(b.limit), ..*a });
        let better = typical(better.collect());
        let who = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
        let measure = format!("ingest of {samples} samples, {}, {who}", workload.scale.live_words());
        let mut row = |what: &str, pair: Pair, unit, limit_kind, goal| {
            let (measure, Pair { value, limit }) = (format!("{measure}{what}"), pair);
            print(Row { measure, level, value, unit, limit, limit_kind, goal, digest });
        };
        let (of_warm, of_new) = match level {
            Durability::Memory => (Goal::RatioAtLeast(0.7), Goal::None),
            _ => (Goal::None, Goal::RatioAtLeast(0.8)),
        };
        row(
            "",
            typical(warm),
            "MB/s",
            "copy with crc32c into a warm file of as much, round and round",
            of_warm,
        );
        row("", typical(stores), "MB/s", "bare stores into new mapped files", Goal::None);
        row("", typical(writes), "MB/s", "bare gathered writes to new files", Goal::None);
        let (kind, per_sample) =
            ("the better of bare mapped stores and gathered writes, new files", samples as f64 / megabytes);
        row("", better, "MB/s", kind, of_new);
        let counted = Pair { value: better.value * per_sample, limit: better.limit * per_sample };
        row("", counted, "samples/s", kind, Goal::AtLeast(400_000.0));
        let stall = Pair { value: stall.percentile_of(0.999), limit: stall.mean() };
        row(": a batch, p99.9", stall, "us", "the mean batch", Goal::None);
    }
    Ok(())
}

/// The batches of one of the writers.
fn batches(workload: &Workload, writer: usize, writers: usize) -> StepBy<Range<usize>> {
    (writer..workload.scale.ingest_samples / BATCH).step_by(writers)
}

fn rows_of(workload: &Workload, writer: usize, writers: usize) -> impl Iterator<Item = usize> {
    batches(workload, writer, writers).flat_map(|batch| batch * BATCH..(batch + 1) * BATCH)
}

/// A run's own table and trainer, so that readiness and groups are kept while rows come in.
fn store(
    workload: &Workload,
    ids: &[SampleId],
    (level, writers): (Durability, usize),
    stall: &mut Times,
) -> Outcome<(Duration, u64)> {
    let directory = tempfile::tempdir()?;
    let store = workload::open_at(directory.path(), level)?;
    let table = workload::solver(&store)?;
    let trainer = Consumer::trainer(["solver"]).ready(["response", "logprobs", "reward"]);
    store.create_consumer("train", trainer.group(GroupBy::Input, GROUP))?;
    let times = Mutex::new(std::mem::take(stall));
    let (time, _) = on_threads(writers, |writer| {
        let mut mine = Times::default();
        for batch in batches(workload, writer, writers) {
            let rows = batch * BATCH..(batch + 1) * BATCH;
            let samples = rows.map(|row| (&ids[row], workload.sample(row)));
            let (time, written) = timed(|| workload::write_staged(&store, &table, 0, samples));
            written?;
            mine.add(time);
        }
        times.lock().map_err(|_| "poisoned")?.join(mine);
        Ok(0)
    })?;
    *stall = times.into_inner()?;
    Ok((time, table.counts().written.wrapping_mul(store.stats().value_bytes_written)))
}

fn rotating(workload: &Workload, writers: usize) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let span = workload.scale.span_bytes / writers;
    let mut maps = Vec::new();
    for writer in 0..writers {
        let mut map = limit::mapped(&directory.path().join(writer.to_string()), span)?;
        map.fill(1); // so that every page is there
        maps.push(Mutex::new(map));
    }
    let work = |writer: usize| {
        let mut map = maps[writer].lock().map_err(|_| "poisoned")?;
        Ok(limit::copy(workload, rows_of(workload, writer, writers), (&mut map, &mut 0), true))
    };
    Ok(on_threads(writers, work)?.0)
}

/// Bytes that a file needs to hold what one writer writes.
fn room(workload: &Workload, writer: usize, writers: usize) -> usize {
    let padded =
        |row| workload.sample(row).lists().iter().map(|list| list.len().next_multiple_of(64)).sum::<usize>();
    rows_of(workload, writer, writers).map(padded).sum()
}

fn fresh_stores(workload: &Workload, writers: usize) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let rooms: Vec<usize> = (0..writers).map(|writer| room(workload, writer, writers)).collect();
    let kept = Mutex::new(Vec::new());
    let work = |writer: usize| {
        let mut map = limit::mapped(&directory.path().join(writer.to_string()), rooms[writer])?;
        let digest = limit::copy(workload, rows_of(workload, writer, writers), (&mut map, &mut 0), false);
        kept.lock().map_err(|_| "poisoned")?.push(map); // unmapped after the clock has stopped
        Ok(digest)
    };
    Ok(on_threads(writers, work)?.0)
}

fn fresh_writes(workload: &Workload, writers: usize) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let rooms: Vec<usize> = (0..writers).map(|writer| room(workload, writer, writers)).collect();
    let work = |writer: usize| {
        let path = directory.path().join(writer.to_string());
        limit::gather(
            workload,
            batches(workload, writer, writers),
            &limit::reserved(&path, rooms[writer])?,
            rooms[writer],
        )
    };
    Ok(on_threads(writers, work)?.0)
}
