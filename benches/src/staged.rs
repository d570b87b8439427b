//! One writer, one claimer: samples from end to end.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_store::{Durability, MicroBatch, SampleId, Wait};

use crate::measure::{Pair, on_threads, typical};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, COLUMNS, Workload};
use crate::{Outcome, limit};

/// A claimer that has not been woken by now never will be.
const PATIENCE: Duration = Duration::from_secs(30);

/// Staged writes on one thread, claims with their columns on another, until the last sample has been claimed.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let samples = workload.scale.staged_samples;
    let ids = workload::sample_ids(samples)?;
    let (mut pairs, mut digest) = (Vec::new(), 0);
    for _ in 0..workload.scale.repetitions {
        let (time, seen) = store(workload, &ids)?;
        digest = seen;
        let bare = copies(workload, samples)?;
        pairs.push(Pair {
            value: samples as f64 / time.as_secs_f64(),
            limit: samples as f64 / bare.as_secs_f64(),
        });
    }
    let pair = typical(pairs);
    print(Row {
        measure: format!("one writer, one claimer, {samples} staged samples"),
        level: Durability::Logged,
        value: pair.value,
        unit: "samples/s",
        limit: pair.limit,
        limit_kind: "copy with crc32c into a warm file on one thread, memcpy out on another",
        goal: Goal::AtLeast(150_000.0),
        digest,
    });
    Ok(())
}

fn store(workload: &Workload, ids: &[SampleId]) -> Outcome<(Duration, u64)> {
    let directory = tempfile::tempdir()?;
    let store = workload::open(directory.path())?;
    let table = workload::solver(&store)?;
    let consumer = workload::score(&store)?;
    on_threads(2, |thread| {
        if thread == 0 {
            for (at, ids) in ids.chunks(BATCH).enumerate() {
                let samples = ids.iter().enumerate().map(|(i, id)| (id, workload.sample(at * BATCH + i)));
                workload::write_staged(&store, &table, 0, samples)?;
            }
            return Ok(0);
        }
        let (mut claimed, mut digest) = (0, 0_u64);
        while claimed < ids.len() {
            let claim = consumer.claim(MicroBatch::of(BATCH), "bench", Wait::For(PATIENCE))?;
            let claim = claim.ok_or("the claimer was not woken")?;
            let batch = claim.columns(COLUMNS)?;
            claimed += batch.num_rows();
            let trajectories = claim.sample_ids().iter().map(|id| u64::from(id.trajectory()));
            digest = digest.wrapping_add(trajectories.sum::<u64>());
            claim.finish(|_| Ok(()))?;
        }
        Ok(digest)
    })
}

fn copies(workload: &Workload, samples: usize) -> Outcome<Duration> {
    let directory = tempfile::tempdir()?;
    let mut map = limit::mapped(&directory.path().join("0"), workload.scale.span_bytes)?;
    map.fill(1); // so that every page is there
    let (map, (sender, receiver)) = (Mutex::new(map), channel::<usize>());
    let (sender, receiver) = (Mutex::new(Some(sender)), Mutex::new(receiver));
    let work = |thread: usize| {
        if thread == 0 {
            let mut map = map.lock().map_err(|_| "poisoned")?;
            let sender = sender.lock().map_err(|_| "poisoned")?.take().ok_or("no sender")?;
            let (mut digest, mut at) = (0_u64, 0);
            for batch in 0..samples / BATCH {
                let rows = batch * BATCH..(batch + 1) * BATCH;
                digest = digest.wrapping_add(limit::copy(workload, rows, (&mut map, &mut at), true));
                sender.send(batch)?;
            }
            return Ok(digest);
        }
        let receiver = receiver.lock().map_err(|_| "poisoned")?;
        let mut columns: [Vec<u8>; 3] = Default::default();
        while let Ok(batch) = receiver.recv() {
            columns.iter_mut().for_each(Vec::clear);
            for row in batch * BATCH..(batch + 1) * BATCH {
                let lists = workload.sample(row).lists();
                columns.iter_mut().zip(lists).for_each(|(column, list)| column.extend_from_slice(list));
            }
            std::hint::black_box(&columns);
        }
        Ok(0)
    };
    Ok(on_threads(2, work)?.0)
}
