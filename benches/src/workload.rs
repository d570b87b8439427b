//! What is written and read: samples of about 10 KB, in three stages, in batches of 64.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use forebay_store::{
    Consumer, ConsumerHandle, DataType, Durability, Element, NewRow, Options, Row, SampleId, Schema, Store,
    Table, Value,
};

use crate::{Outcome, Random};

/// Where every random number comes from.
pub(crate) const SEED: u64 = 0x000F_07EB_A135;
/// Tokens of a prompt, 4 bytes each.
pub(crate) const PROMPT_TOKENS: usize = 512;
/// Rows of one write batch, in each of its three stages.
pub(crate) const BATCH: usize = 64;
/// Trajectories of one input.
pub(crate) const GROUP: u32 = 8;
/// Rows of one claim.
pub(crate) const MICRO_BATCH: usize = 16;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// How often a row of throughput is measured; the one with the median ratio is printed.
    pub(crate) repetitions: usize,
    /// How long rows of ingest are measured at least.
    pub(crate) row_time: Duration,
    /// Different samples; what is written walks over them again and again.
    pub(crate) pool: usize,
    /// What is live at once where samples come and go, and the file that limits go round in.
    pub(crate) span_bytes: usize,
    pub(crate) ingest_samples: usize,
    /// Versions that are written into used extents.
    pub(crate) recycled_versions: u64,
    /// Samples that a limit writes round and round while it is synced: enough for several syncs.
    pub(crate) rotated_samples: usize,
    pub(crate) claims: usize,
    pub(crate) claim_rows: [usize; 2],
    pub(crate) step_groups: usize,
    pub(crate) wakes: usize,
    pub(crate) staged_samples: usize,
    pub(crate) snapshot_rows: usize,
    pub(crate) snapshots: usize,
    /// Rows of a version that is deleted, and how often two are.
    pub(crate) retired_rows: usize,
    pub(crate) retired_versions: usize,
    pub(crate) reopen_rows: [usize; 2],
    pub(crate) synced_batches: usize,
    pub(crate) synced_threads: usize,
    /// Writes of each of those threads.
    pub(crate) synced_writes: usize,
    /// Rows of each of ten tables.
    pub(crate) large_rows: usize,
    /// Records that are replayed after the checkpoint.
    pub(crate) large_records: usize,
}

impl Scale {
    /// The sizes that are reported.
    pub const FULL: Scale = Scale {
        repetitions: 5,
        row_time: Duration::ZERO,
        pool: 4_096,
        span_bytes: 1 << 30,
        ingest_samples: 100_032,
        recycled_versions: 16,
        rotated_samples: 2_000_000,
        claims: 600,
        claim_rows: [10_000, 10_000_000],
        step_groups: 512,
        wakes: 1_000,
        staged_samples: 50_048,
        snapshot_rows: 100_000,
        snapshots: 1_000,
        retired_rows: 26_000,
        retired_versions: 16,
        reopen_rows: [50_000, 1_000_000],
        synced_batches: 300,
        synced_threads: 64,
        synced_writes: 100,
        large_rows: 1_000_000,
        large_records: 240_000,
    };

    /// Every row, tiny: shows that nothing has rotted, and says nothing of speed.
    pub const QUICK: Scale = Scale {
        repetitions: 1,
        row_time: Duration::ZERO,
        pool: 64,
        span_bytes: 1 << 20,
        ingest_samples: 128,
        recycled_versions: 2,
        rotated_samples: 128,
        claims: 4,
        claim_rows: [64, 128],
        step_groups: 8,
        wakes: 3,
        staged_samples: 128,
        snapshot_rows: 128,
        snapshots: 3,
        retired_rows: 64,
        retired_versions: 2,
        reopen_rows: [64, 128],
        synced_batches: 4,
        synced_threads: 4,
        synced_writes: 3,
        large_rows: 128,
        large_records: 10,
    };

    /// With so many bytes of samples live at once, and as many in a store that is new.
    pub fn live(mut self, bytes: usize) -> Self {
        let samples = self.ingest_samples as f64 * bytes as f64 / self.span_bytes as f64;
        self.ingest_samples = (samples as usize).next_multiple_of(2 * BATCH);
        self.span_bytes = bytes;
        self
    }

    /// With rows of ingest that are measured for this long at least: one repetition after the other.
    pub fn row_time(mut self, time: Duration) -> Self {
        self.row_time = time;
        self
    }

    /// What is live, for a measure's name.
    pub(crate) fn live_words(&self) -> String {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.iter().find(|(shift, _)| self.span_bytes >> shift << shift == self.span_bytes);
        let (shift, unit) = unit.copied().unwrap_or((0, "bytes"));
        format!("{} {unit} live", self.span_bytes >> shift)
    }
}

/// A number of bytes as people write it: `8GiB`, `512MiB`, or plain.
///
/// # Errors
/// When it is none.
pub fn bytes(text: &str) -> Result<usize, String> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    let bytes = number.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is no number of bytes; write 512MiB or 8GiB"))
}

/// One sample: the bytes of its three lists, and its reward.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) prompt: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) logprobs: Vec<u8>,
    pub(crate) reward: f32,
}

impl Sample {
    /// The lists, in the order in which they are written.
    pub(crate) fn lists(&self) -> [&[u8]; 3] {
        [&self.prompt, &self.response, &self.logprobs]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lists().iter().map(|list| list.len()).sum::<usize>() + size_of::<f32>()
    }

    pub(crate) fn prompt(&self) -> (&'static str, Value<'_>) {
        ("prompt", Value::Numbers(Element::Int32, Cow::Borrowed(&self.prompt)))
    }

    pub(crate) fn response(&self) -> [(&'static str, Value<'_>); 2] {
        [
            ("response", Value::Numbers(Element::Int32, Cow::Borrowed(&self.response))),
            ("logprobs", Value::Numbers(Element::Float32, Cow::Borrowed(&self.logprobs))),
        ]
    }

    pub(crate) fn reward(&self) -> (&'static str, Value<'static>) {
        ("reward", self.reward.into())
    }
}

/// The samples that all rows share.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) scale: Scale,
    pool: Vec<Sample>,
}

impl Workload {
    pub(crate) fn new(scale: Scale) -> Self {
        let mut random = Random::new(SEED);
        Workload { scale, pool: (0..scale.pool).map(|_| sample(&mut random)).collect() }
    }

    /// The sample of a row.
    pub(crate) fn sample(&self, row: usize) -> &Sample {
        &self.pool[row % self.pool.len()]
    }

    /// The bytes of so many rows.
    pub(crate) fn bytes(&self, rows: usize) -> usize {
        (0..rows).map(|row| self.sample(row).bytes()).sum()
    }
}

/// The names of rows, made before the clock starts: they are the caller's.
pub(crate) fn sample_ids(rows: usize) -> Outcome<Vec<SampleId>> {
    let id = |row: usize| {
        let (input, trajectory) = (row / GROUP as usize, row as u32 % GROUP);
        Ok(SampleId::new(&format!("q{input}"), 0, trajectory)?)
    };
    (0..rows).map(id).collect()
}

pub(crate) fn open(path: &Path) -> Outcome<Store> {
    open_at(path, Durability::Logged)
}

pub(crate) fn open_at(path: &Path, level: Durability) -> Outcome<Store> {
    open_with(path, Options::default().durability(level))
}

pub(crate) fn open_with(path: &Path, options: Options) -> Outcome<Store> {
    Ok(Store::open(path.join("store"), options)?)
}

/// The table of the workload.
pub(crate) fn solver(store: &Store) -> Outcome<Table> {
    let schema = Schema::new()
        .data("prompt", DataType::List(Element::Int32))
        .data("response", DataType::List(Element::Int32))
        .data("logprobs", DataType::List(Element::Float32))
        .data("reward", DataType::Float32);
    Ok(store.create_table("solver", schema)?)
}

/// What a claim's holder reads.
pub(crate) const COLUMNS: [&str; 5] = ["sample_id", "prompt", "response", "logprobs", "reward"];

/// A task that takes rows one by one, once all of their cells are there.
pub(crate) fn score(store: &Store) -> Outcome<ConsumerHandle> {
    let task = Consumer::task(["solver"]).ready(["prompt", "response", "logprobs", "reward"]);
    Ok(store.create_consumer("score", task)?)
}

/// Writes samples in three stages of one batch each: prompts, responses with log-probabilities, rewards.
pub(crate) fn write_staged<'a>(
    store: &Store,
    table: &Table,
    version: u64,
    samples: impl Iterator<Item = (&'a SampleId, &'a Sample)> + Clone,
) -> Outcome<Vec<Row>> {
    let rows = write_unscored(store, table, version, samples.clone())?;
    let mut batch = store.batch();
    for (&row, (_, sample)) in rows.iter().zip(samples) {
        batch.write(table, row, [sample.reward()])?;
    }
    batch.commit()?;
    Ok(rows)
}

/// The first two stages.
pub(crate) fn write_unscored<'a>(
    store: &Store,
    table: &Table,
    version: u64,
    samples: impl Iterator<Item = (&'a SampleId, &'a Sample)> + Clone,
) -> Outcome<Vec<Row>> {
    let mut batch = store.batch();
    for (id, sample) in samples.clone() {
        batch.insert(table, NewRow::of(version, id.clone()), [sample.prompt()])?;
    }
    let rows = batch.commit()?;
    let mut batch = store.batch();
    for (&row, (_, sample)) in rows.iter().zip(samples) {
        batch.write(table, row, sample.response())?;
    }
    batch.commit()?;
    Ok(rows)
}

fn bytes_of(tokens: impl Iterator<Item = i32>) -> Vec<u8> {
    tokens.flat_map(i32::to_le_bytes).collect()
}

fn sample(random: &mut Random) -> Sample {
    let length = random.response_tokens();
    let prompt = bytes_of(random.tokens(PROMPT_TOKENS));
    let response = bytes_of(random.tokens(length));
    let logprobs = (0..length).flat_map(|_| (random.unit().ln() as f32).to_le_bytes()).collect();
    Sample { prompt, response, logprobs, reward: (random.bits() % 2) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_people_write_them() {
        assert_eq!((bytes("8GiB"), bytes("512MiB"), bytes("17")), (Ok(8 << 30), Ok(512 << 20), Ok(17)));
        for wrong in ["", "0", "GiB", "1.5GiB", "8 GiB", "-1", "99999999999GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_larger_span_has_as_many_more_samples() {
        let scale = Scale::FULL.live(8 << 30);
        assert_eq!((scale.live_words().as_str(), scale.ingest_samples), ("8 GiB live", 800_256));
        assert_eq!(Scale::QUICK.live_words(), "1 MiB live");
    }

    #[test]
    fn samples_are_of_about_ten_kilobytes_and_always_the_same() {
        let workload = Workload::new(Scale { pool: 512, ..Scale::QUICK });
        let mean = workload.bytes(512) / 512;
        assert!((9_000..11_300).contains(&mean), "{mean}");
        assert!((0..512).all(|row| workload.sample(row).response.len() <= 4 * Random::RESPONSE_TOKENS_MAX));
        let again = Workload::new(Scale::QUICK);
        assert_eq!(workload.sample(63).logprobs, again.sample(63).logprobs);
    }
}
