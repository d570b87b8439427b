//! Writes that are on stable storage before they are acknowledged.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use forebay_store::{DataType, Durability, NewRow, SampleId, Schema};

use crate::Outcome;
use crate::limit;
use crate::measure::{Pair, Times, on_threads, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, BATCH, Workload};

/// Bytes of a record beside its values, as a bare commit writes them to its log.
const RECORD_BYTES: usize = 96 * BATCH;

/// Batches of 64 samples, then small writes of many threads.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    batches(workload, print)?;
    small(workload, print)
}

/// One writer; the responses of 64 samples a commit. A bare commit of the same bytes takes turns with it.
fn batches(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let store = workload::open_at(directory.path(), Durability::Synced)?;
    let table = workload::solver(&store)?;
    let samples = workload.scale.synced_batches * BATCH;
    let ids = workload::sample_ids(samples)?;
    let mut bare = Bare::new(directory.path(), 3 * workload.bytes(samples) / 2)?;
    let (mut engine, mut two, mut one) = (Times::default(), Times::default(), Times::default());
    for (number, ids) in ids.chunks(BATCH).enumerate() {
        let sample = |at: usize| workload.sample(number * BATCH + at);
        let mut batch = store.batch();
        let (time, done) = timed(|| -> Outcome<()> {
            for (at, id) in ids.iter().enumerate() {
                let ([response, logprobs], reward) = (sample(at).response(), sample(at).reward());
                let cells = [sample(at).prompt(), response, logprobs, reward];
                batch.insert(&table, NewRow::of(0, id.clone()), cells)?;
            }
            batch.commit()?;
            Ok(())
        });
        done?;
        engine.add(time);
        let values: Vec<&[u8]> = (0..ids.len()).flat_map(|at| sample(at).lists()).collect();
        two.add(bare.commit(&values, true)?);
        one.add(bare.commit(&values, false)?);
    }
    let digest = table.counts().written;
    let rate = |times: &Times| BATCH as f64 / times.mean() * 1e6;
    let goals = [
        (&two, "a bare commit to two files: values, sync, log, sync", Goal::RatioAtLeast(0.9)),
        (&one, "a bare commit to one file: values and log, sync", Goal::None),
    ];
    for (limit, limit_kind, goal) in goals {
        print(Row {
            measure: format!("ingest in synced batches of {BATCH}, 1 writer"),
            level: Durability::Synced,
            value: rate(&engine),
            unit: "samples/s",
            limit: rate(limit),
            limit_kind,
            goal,
            digest,
        });
    }
    Ok(())
}

/// What a commit is without an engine: two new files with their space reserved.
struct Bare {
    values: File,
    log: File,
    values_at: u64,
}

impl Bare {
    fn new(directory: &Path, bytes: usize) -> Outcome<Self> {
        let values = limit::reserved(&directory.join("bare.values"), 3 * bytes)?;
        let log = File::create(directory.join("bare.log"))?;
        Ok(Bare { values, log, values_at: 0 })
    }

    fn commit(&mut self, values: &[&[u8]], two_files: bool) -> Outcome<std::time::Duration> {
        let gathered = values.concat();
        let record = vec![7; RECORD_BYTES];
        let (time, done) = timed(|| -> Outcome<()> {
            if two_files {
                self.values.write_all_at(&gathered, self.values_at)?;
                self.values.sync_data()?;
            } else {
                self.log.write_all(&gathered)?;
            }
            self.log.write_all(&record)?;
            self.log.sync_data()?;
            Ok(())
        });
        done?;
        self.values_at += gathered.len() as u64;
        Ok(time)
    }
}

/// Many threads, each of which inserts a row with a text of 40 bytes and waits for it.
fn small(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (threads, writes) = (workload.scale.synced_threads, workload.scale.synced_writes);
    let directory = tempfile::tempdir()?;
    let store = workload::open_at(directory.path(), Durability::Synced)?;
    let schema = Schema::new().data("text", DataType::Utf8);
    let table = store.create_table("solver", schema)?;
    let bare = bare_sync(directory.path(), writes)?;
    let before = store.stats().syncs;
    let times = std::sync::Mutex::new(Times::default());
    on_threads(threads, |thread| {
        let mut mine = Times::default();
        for write in 0..writes {
            let id = SampleId::new(&format!("t{thread}"), write as u32, 0)?;
            let (time, done) = timed(|| {
                let text = "a text that takes forty bytes, no more...";
                table.insert_row(NewRow::of(0, id), [("text", text.into())])
            });
            done?;
            mine.add(time);
        }
        times.lock().map_err(|_| "poisoned")?.join(mine);
        Ok(0)
    })?;
    let syncs = store.stats().syncs - before;
    let mut times = times.into_inner().map_err(|_| "poisoned")?;
    let digest = table.counts().written;
    let mut row = |measure: &str, pair: Pair, unit, limit_kind, goal| {
        let measure = format!("small writes of {threads} threads, {measure}");
        let (level, Pair { value, limit }) = (Durability::Synced, pair);
        print(Row { measure, level, value, unit, limit, limit_kind, goal, digest });
    };
    let shared = Pair { value: (threads * writes) as f64 / syncs.max(1) as f64, limit: threads as f64 };
    row("acknowledged a sync", shared, "writes", "every thread in every sync", Goal::AtLeast(20.0));
    let p99 = Pair { value: times.percentile(99), limit: bare };
    row("p99", p99, "us", "one bare append and sync, p50", Goal::RatioAtMost(3.0));
    Ok(())
}

/// The median time of an append of 128 bytes and its sync, in microseconds.
fn bare_sync(directory: &Path, times: usize) -> Outcome<f64> {
    let mut file = File::create(directory.join("bare.sync"))?;
    let mut bare = Times::default();
    for _ in 0..times {
        let (time, done) = timed(|| file.write_all(&[7; 128]).and_then(|()| file.sync_data()));
        done?;
        bare.add(time);
    }
    Ok(bare.percentile(50))
}
