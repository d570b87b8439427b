//! Small writes of many threads that are on stable storage before they are acknowledged.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};

use forebay_store::{DataType, Durability, NewRow, SampleId, Schema};

use crate::Outcome;
use crate::measure::{Times, on_threads, timed};
use crate::row::{Goal, Row};
use crate::workload::{self, Workload};

/// Bytes of a record, as bare commits write them.
const RECORD: [u8; 128] = [7; 128];

/// Many threads, each of which inserts a row with a text of 40 bytes and waits for it.
pub(crate) fn rows(workload: &Workload, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (threads, writes) = (workload.scale.synced_threads, workload.scale.synced_writes);
    let directory = tempfile::tempdir()?;
    let store = workload::open_at(directory.path(), Durability::Synced)?;
    let table = store.create_table("solver", Schema::new().data("text", DataType::Utf8))?;
    let bare_sync = bare_sync(directory.path(), writes)?;
    let shared = Shared::new(&directory.path().join("bare.shared"))?;
    let mut bare = each(threads, writes, |_, _| shared.commit())?;
    let before = store.stats().syncs;
    let mut times = each(threads, writes, |thread, write| {
        let id = SampleId::new(&format!("t{thread}"), write as u32, 0)?;
        let text = "a text that takes forty bytes, no more...";
        table.insert_row(NewRow::of(0, id), [("text", text.into())])?;
        Ok(())
    })?;
    let syncs = store.stats().syncs - before;
    let digest = table.counts().written;
    let mut row = |measure: &str, (value, limit): (f64, f64), unit, limit_kind, goal| {
        let measure = format!("small writes of {threads} threads, {measure}");
        print(Row { measure, level: Durability::Synced, value, unit, limit, limit_kind, goal, digest });
    };
    let acknowledged = ((threads * writes) as f64 / syncs.max(1) as f64, threads as f64);
    row("acknowledged a sync", acknowledged, "writes", "every thread in every sync", Goal::AtLeast(20.0));
    let p99 = times.percentile(99);
    row("p99", (p99, bare_sync), "us", "one bare append and sync, p50", Goal::RatioAtMost(3.0));
    let kind = "as many threads that share bare appends and syncs";
    row("p99", (p99, bare.percentile(99)), "us", kind, Goal::None);
    row("p50", (times.percentile(50), bare.percentile(50)), "us", kind, Goal::None);
    Ok(())
}

/// How long each write of each thread takes.
fn each(threads: usize, writes: usize, write: impl Fn(usize, usize) -> Outcome<()> + Sync) -> Outcome<Times> {
    let times = Mutex::new(Times::default());
    on_threads(threads, |thread| {
        let mut mine = Times::default();
        for number in 0..writes {
            let (time, done) = timed(|| write(thread, number));
            done?;
            mine.add(time);
        }
        times.lock().map_err(|_| "poisoned")?.join(mine);
        Ok(0)
    })?;
    Ok(times.into_inner()?)
}

/// The median time of an append and its sync, in microseconds.
fn bare_sync(directory: &Path, times: usize) -> Outcome<f64> {
    let mut file = File::create(directory.join("bare.sync"))?;
    let mut bare = Times::default();
    for _ in 0..times {
        let (time, done) = timed(|| file.write_all(&RECORD).and_then(|()| file.sync_data()));
        done?;
        bare.add(time);
    }
    Ok(bare.percentile(50))
}

/// What a commit that many share is without an engine: a file, and whoever comes when nobody syncs does it for all who wait.
struct Shared {
    file: File,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    appended: u64,
    durable: u64,
    is_syncing: bool,
}

impl Shared {
    fn new(path: &Path) -> Outcome<Self> {
        Ok(Shared { file: File::create(path)?, queue: Mutex::default(), changed: Condvar::new() })
    }

    fn commit(&self) -> Outcome<()> {
        let mut queue = self.queue.lock().map_err(|_| "poisoned")?;
        (&self.file).write_all(&RECORD)?;
        queue.appended += 1;
        let mine = queue.appended;
        while queue.durable < mine {
            if queue.is_syncing {
                queue = self.changed.wait(queue).map_err(|_| "poisoned")?;
                continue;
            }
            queue.is_syncing = true;
            let through = queue.appended;
            drop(queue);
            let synced = self.file.sync_data();
            queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.is_syncing = false;
            self.changed.notify_all();
            synced?;
            queue.durable = through;
        }
        Ok(())
    }
}
