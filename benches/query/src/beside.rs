//! What a continuous scan takes from a writer.
//!
//! The same samples are written again and again: beside nothing, beside a thread that asks one question after the other
//! of the table that is written, and beside threads that read as many bytes a second of plain memory: one that sleeps
//! until the next bytes are due, and one that keeps its core busy until then, as a question does. All take turns, so that a
//! busy machine slows each of them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_benches::{Goal, Row};
use forebay_query::{Options, Session};
use forebay_store::Store;

use crate::data::Data;
use crate::{Outcome, Scale};

const QUESTION: &str = "SELECT count(*), max(policy_version), avg(reward) FROM solver";
/// What the question reads of a row: its status (16 bytes) and its reward (4); of one in five its meta record (72) too, where
/// a chunk of rows has more than one version.
const READ_BYTES: u64 = 16 + 4 + 72 / 5;
/// Samples a turn, at most: 200 MB of them.
const SAMPLES_MAX: usize = 20_480;
const TURNS: usize = 7;

/// What the measure is called.
pub(crate) const NAME: &str = "writing beside a continuous scan";

/// Samples a second beside each neighbour: the median of all turns.
struct Speeds {
    alone: f64,
    scan: f64,
    memory: f64,
    busy: f64,
}

/// What a reader of plain memory does until the next bytes are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Sleep,
    Compute,
}

pub(crate) fn measure(scale: &Scale, data: &mut Data, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let samples = SAMPLES_MAX.min(scale.rows);
    let Speeds { alone, scan, memory, busy } = speeds(data, samples)?;
    let row = |limit, what, goal| {
        let name = format!("{NAME} of their table, one partition, {samples} samples");
        Row::new(name, (scan, "samples/s"), (limit, what), goal)
    };
    print(row(memory, "beside a bare scan of memory of the same bandwidth", Goal::RatioAtLeast(0.95)));
    print(row(busy, "beside the same that computes in between", Goal::None));
    print(row(alone, "beside nothing", Goal::None));
    Ok(())
}

fn speeds(data: &mut Data, samples: usize) -> Outcome<Speeds> {
    let (mut alone, mut scan, mut memory, mut busy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        alone.push(beside(data, samples, |_| Ok(()))?.0);
        let store = data.store().clone();
        let (speed, rows_a_second) = beside(data, samples, |neighbour| questions(&store, neighbour))?;
        scan.push(speed);
        let bytes_a_second = rows_a_second * READ_BYTES as f64;
        let bytes = data.rows() * READ_BYTES as usize;
        for (rest, speeds) in [(Rest::Sleep, &mut memory), (Rest::Compute, &mut busy)] {
            let read = |neighbour: &Neighbour| plain_memory(bytes, bytes_a_second, rest, neighbour);
            speeds.push(beside(data, samples, read)?.0);
        }
    }
    let [alone, scan, memory, busy] = [alone, scan, memory, busy].map(median);
    Ok(Speeds { alone, scan, memory, busy })
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_unstable_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

/// What the writer and its neighbour know of each other.
#[derive(Default)]
struct Neighbour {
    begun: AtomicBool,
    over: AtomicBool,
    rows: AtomicU64,
}

/// Writes beside a neighbour: samples a second, and the rows that the neighbour has read a second meanwhile.
fn beside(
    data: &mut Data,
    samples: usize,
    neighbour: impl FnOnce(&Neighbour) -> Outcome<()> + Send,
) -> Outcome<(f64, f64)> {
    let shared = Neighbour::default();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let outcome = neighbour(&shared);
            shared.begun.store(true, Ordering::Release); // also of one that failed, or has nothing to do
            outcome
        });
        while !shared.begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let (start, before) = (Instant::now(), shared.rows.load(Ordering::Relaxed));
        let written = data.fill(samples);
        let (seconds, rows) = (start.elapsed().as_secs_f64(), shared.rows.load(Ordering::Relaxed) - before);
        shared.over.store(true, Ordering::Release);
        thread.join().map_err(|_| "a neighbour panicked")??;
        written?;
        Ok((samples as f64 / seconds, rows as f64 / seconds))
    })
}

fn questions(store: &Store, neighbour: &Neighbour) -> Outcome<()> {
    let session = Session::with_options(store, &Options::default().partitions(1))?;
    while !neighbour.over.load(Ordering::Acquire) {
        let rows = store.snapshot().table("solver")?.row_count();
        black_box(session.sql_blocking(QUESTION)?);
        neighbour.rows.fetch_add(rows as u64, Ordering::Relaxed);
        neighbour.begun.store(true, Ordering::Release);
    }
    Ok(())
}

/// Reads memory piece by piece, and rests after each piece until its time is over.
fn plain_memory(bytes: usize, bytes_a_second: f64, rest: Rest, neighbour: &Neighbour) -> Outcome<()> {
    const PIECE: usize = 1 << 20;
    let memory = vec![1_u64; bytes.max(8 * PIECE) / 8];
    neighbour.begun.store(true, Ordering::Release);
    let (start, mut read) = (Instant::now(), 0.0);
    for piece in memory.chunks(PIECE / 8).cycle() {
        if neighbour.over.load(Ordering::Acquire) {
            break;
        }
        black_box(piece.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
        read += size_of_val(piece) as f64;
        let due = Duration::from_secs_f64(read / bytes_a_second.max(1.0));
        match rest {
            Rest::Sleep => thread::sleep(due.saturating_sub(start.elapsed())),
            Rest::Compute => while start.elapsed() < due && !neighbour.over.load(Ordering::Acquire) {},
        }
    }
    Ok(())
}
