//! What a continuous scan takes from a writer.
//!
//! The same samples are written again and again: beside nothing, beside a thread that asks one question after the other
//! of the table that is written, and beside threads that read as many bytes a second of plain memory: one that sleeps
//! until the next bytes are due, and one that keeps its core busy until then, as a question does.
//!
//! All take short turns, and each round of them is compared with itself: a shared machine writes at half its speed and at
//! the whole from one second to the next, which sets medians of neighbours a fifth apart, and ratios within a round
//! little. A row is the round with the median ratio.
//!
//! What a question reads a second is measured from the first that begins with the writer to the last that does, so that it
//! is more than nothing, however quick the writer is. Who rests is woken when the writer is done.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay_benches::{Goal, Pair, Row, typical};
use forebay_query::{Options, Session};
use forebay_store::Store;

use crate::data::Data;
use crate::{Outcome, Scale};

const QUESTION: &str = "SELECT count(*), max(policy_version), avg(reward) FROM solver";
/// What the question reads of a row: its status (16 bytes) and its reward (4); of one in five its meta record (72) too, where
/// a chunk of rows has more than one version.
const READ_BYTES: u64 = 16 + 4 + 72 / 5;
/// Samples a turn, at most: 25 MB of them, a question or two.
const SAMPLES_MAX: usize = 2_560;
/// A multiple of the number of neighbours, so that each is as often the first.
const ROUNDS: usize = 64;

/// What the measure is called.
pub(crate) const NAME: &str = "writing beside a continuous scan";

/// Who is beside the writer; in the order of [`ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Scan,
    /// A reader of plain memory that sleeps until the next bytes are due.
    Memory,
    /// One that computes until then.
    BusyMemory,
}

const ALL: [Beside; 4] = [Beside::Nothing, Beside::Scan, Beside::Memory, Beside::BusyMemory];

pub(crate) fn measure(scale: &Scale, data: &mut Data, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let samples = SAMPLES_MAX.min(scale.rows);
    let rounds = rounds(data, samples)?;
    let row = |other: Beside, what, goal| {
        let pair = |round: &[f64; ALL.len()]| Pair {
            value: round[Beside::Scan as usize],
            limit: round[other as usize],
        };
        let Pair { value, limit } = typical(rounds.iter().map(pair).collect());
        let name =
            format!("{NAME} of their table, one partition, {samples} samples, median of {ROUNDS} rounds");
        Row::new(name, (value, "samples/s"), (limit, what), goal)
    };
    print(row(
        Beside::Memory,
        "beside a bare scan of memory of the same bandwidth",
        Goal::RatioAtLeast(0.95),
    ));
    print(row(Beside::BusyMemory, "beside the same that computes in between", Goal::None));
    print(row(Beside::Nothing, "beside nothing", Goal::None));
    Ok(())
}

/// Samples a second beside each neighbour, in the order of [`ALL`], round by round.
fn rounds(data: &mut Data, samples: usize) -> Outcome<Vec<[f64; ALL.len()]>> {
    let mut bytes_a_second = 0.0;
    for beside in [Beside::Nothing, Beside::Scan] {
        turn(data, samples, beside, &mut bytes_a_second)?; // memory that is first touched costs the most
    }
    let mut rounds = Vec::new();
    for first in 0..ROUNDS {
        let mut round = [0.0; ALL.len()];
        for at in 0..ALL.len() {
            let who = ALL[(first + at) % ALL.len()];
            round[who as usize] = turn(data, samples, who, &mut bytes_a_second)?;
        }
        rounds.push(round);
    }
    Ok(rounds)
}

/// Samples a second beside one neighbour. A scan leaves how many bytes a second it read, for the readers of memory after it.
fn turn(data: &mut Data, samples: usize, who: Beside, bytes_a_second: &mut f64) -> Outcome<f64> {
    let (store, bytes) = (data.store().clone(), data.rows() * READ_BYTES as usize);
    let rate = *bytes_a_second;
    let (speed, rows_a_second) = beside(data, samples, |neighbour| match who {
        Beside::Nothing => Ok(0.0),
        Beside::Scan => questions(&store, neighbour),
        Beside::Memory | Beside::BusyMemory => {
            plain_memory(bytes, rate, who, neighbour);
            Ok(0.0)
        }
    })?;
    if who == Beside::Scan {
        *bytes_a_second = rows_a_second * READ_BYTES as f64;
    }
    Ok(speed)
}

/// What the writer and its neighbour know of each other.
#[derive(Default)]
struct Neighbour {
    begun: AtomicBool,
    over: AtomicBool,
}

impl Neighbour {
    fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// Writes beside a neighbour: samples a second, and what the neighbour tells of itself.
fn beside(
    data: &mut Data,
    samples: usize,
    neighbour: impl FnOnce(&Neighbour) -> Outcome<f64> + Send,
) -> Outcome<(f64, f64)> {
    let shared = Neighbour::default();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let outcome = neighbour(&shared);
            shared.begin(); // also of one that failed, or has nothing to do
            outcome
        });
        while !shared.begun.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let start = Instant::now();
        let written = data.fill(samples);
        let seconds = start.elapsed().as_secs_f64();
        shared.over.store(true, Ordering::Release);
        thread.thread().unpark();
        let told = thread.join().map_err(|_| "a neighbour panicked")??;
        written?;
        Ok((samples as f64 / seconds, told))
    })
}

/// Asks until the writer is done, and at least once beside it: rows a second.
fn questions(store: &Store, neighbour: &Neighbour) -> Outcome<f64> {
    let session = Session::with_options(store, &Options::default().partitions(1))?;
    let ask = || -> Outcome<usize> {
        let rows = store.snapshot().table("solver")?.row_count();
        black_box(session.sql_blocking(QUESTION)?);
        Ok(rows)
    };
    ask()?;
    neighbour.begin();
    let (start, mut rows) = (Instant::now(), 0);
    loop {
        rows += ask()?;
        if neighbour.is_over() {
            return Ok(rows as f64 / start.elapsed().as_secs_f64());
        }
    }
}

/// Reads memory piece by piece, and rests after each piece until its time is over.
fn plain_memory(bytes: usize, bytes_a_second: f64, who: Beside, neighbour: &Neighbour) {
    const PIECE: usize = 1 << 20;
    let memory = vec![1_u64; bytes.max(8 * PIECE) / 8];
    neighbour.begin();
    let (start, mut read) = (Instant::now(), 0.0);
    for piece in memory.chunks(PIECE / 8).cycle() {
        if neighbour.is_over() {
            break;
        }
        black_box(piece.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word)));
        read += size_of_val(piece) as f64;
        rest(start + Duration::from_secs_f64(read / bytes_a_second.max(1.0)), who, neighbour);
    }
}

/// Returns at that moment, or when the writer is done.
fn rest(until: Instant, who: Beside, neighbour: &Neighbour) {
    while !neighbour.is_over() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        } else if who == Beside::Memory {
            thread::park_timeout(left);
        } else {
            std::hint::spin_loop();
        }
    }
}
