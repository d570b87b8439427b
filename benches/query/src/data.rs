//! The rows: a store, and Parquet files with the same.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_query::Session;
use forebay_store::{
    DataType, Element, NewRow, Options, SampleId, ScanColumn, Schema, Store, Table, Value, compact,
};
use parquet::arrow::ArrowWriter;
use tempfile::TempDir;

use crate::{Outcome, Scale};

/// Trajectories of an input.
const GROUP: usize = 8;
const BATCH: usize = 256;
/// Rows a version.
const VERSION_ROWS: usize = 20_000;
/// Rows that come with each repetition.
const GROWN_ROWS: usize = 1_000;

pub(crate) struct Data {
    store: Store,
    solver: Table,
    directory: TempDir,
    rows: usize,
    dice: Dice,
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Lognormal with mean 1,024, at most 8,192 (Box and Muller, 1958).
    fn length(&mut self) -> usize {
        let normal =
            (-2.0 * self.uniform().max(1e-12).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        const SIGMA: f64 = 0.6;
        let mean: f64 = 1024.0;
        ((mean.ln() - SIGMA * SIGMA / 2.0 + SIGMA * normal).exp() as usize).clamp(1, 8192)
    }
}

fn schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .data("logprobs", DataType::list(Element::Float32))
        .data("reward", DataType::Float32)
}

impl Data {
    pub(crate) fn new(scale: &Scale, tell: &mut dyn FnMut(String)) -> Outcome<Self> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path().join("store"), Options::default())?;
        let solver = store.create_table("solver", schema())?;
        let checker = store.create_table("checker", Schema::new().data("reward", DataType::Float32))?;
        let mut data = Data { store, solver, directory, rows: 0, dice: Dice(1) };
        let start = Instant::now();
        data.fill(scale.rows)?;
        for first in (0..scale.rows / GROUP).step_by(BATCH) {
            let mut batch = data.store.batch();
            for input in first..(first + BATCH).min(scale.rows / GROUP) {
                let row = NewRow::of(0, SampleId::new(&format!("q{input}"), 0, 0)?);
                batch.insert(&checker, row, [("reward", data.dice.uniform().into())])?;
            }
            batch.commit()?;
        }
        data.store.sync()?;
        tell(format!("{} rows in {:.1?}", scale.rows, start.elapsed()));
        let start = Instant::now();
        data.export("solver", 0, "solver-0")?;
        data.export("checker", 0, "checker-0")?;
        tell(format!("the same as Parquet in {:.1?}", start.elapsed()));
        Ok(data)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Where the Parquet files lie, those of a table beginning with its name.
    pub(crate) fn files(&self) -> &Path {
        self.directory.path()
    }

    /// How long it takes from an open store to the answer of the first query.
    pub(crate) fn first_query(&self) -> Outcome<Duration> {
        let start = Instant::now();
        let answer =
            Session::new(&self.store)?.sql_blocking("SELECT count(*), max(policy_version) FROM solver")?;
        assert_eq!(answer.row_count(), 1);
        Ok(start.elapsed())
    }

    /// A thousand more rows, and the file that has them.
    pub(crate) fn grow(&mut self, repetition: usize) -> Outcome<PathBuf> {
        let before = self.rows;
        self.fill(GROWN_ROWS)?;
        self.export("solver", before, &format!("solver-{}", repetition + 1))
    }

    fn fill(&mut self, count: usize) -> Outcome<()> {
        let end = self.rows + count;
        while self.rows < end {
            let mut batch = self.store.batch();
            for _ in 0..BATCH.min(end - self.rows) {
                let row = self.rows;
                let version = (row / VERSION_ROWS) as u64;
                let id = SampleId::new(&format!("q{}", row / GROUP), 0, (row % GROUP) as u32)?;
                let length = self.dice.length();
                let tokens: Vec<i32> = (0..length).map(|_| (self.dice.next() % 32_000) as i32).collect();
                let logprobs: Vec<f32> = (0..length).map(|_| -(self.dice.uniform() as f32)).collect();
                let prompt = format!(
                    "What is {} times {}? Think step by step, then say the number.",
                    self.dice.next(),
                    row
                );
                // One group in sixteen agrees.
                let reward = if (row / GROUP).is_multiple_of(16) { 1.0 } else { self.dice.uniform() };
                let cells: [(&str, Value<'_>); 4] = [
                    ("prompt", prompt.as_str().into()),
                    ("response", (&tokens[..]).into()),
                    ("logprobs", (&logprobs[..]).into()),
                    ("reward", reward.into()),
                ];
                // One row in thirty-two waits for its reward, half of these for their response too.
                let there = match row % 64 {
                    31 => 3,
                    63 => 1,
                    _ => 4,
                };
                batch.insert(&self.solver, NewRow::of(version, id), cells.into_iter().take(there))?;
                self.rows += 1;
            }
            batch.commit()?;
        }
        Ok(())
    }

    /// Writes the rows of a table from one on into a file.
    fn export(&self, table: &str, from: usize, name: &str) -> Outcome<PathBuf> {
        let path = self.files().join(format!("{name}.parquet"));
        let snapshot = self.store.snapshot();
        let table = snapshot.table(table)?;
        let schema = table.arrow_schema();
        let columns: Vec<ScanColumn> = (0..schema.fields().len()).map(ScanColumn::Value).collect();
        let mut writer = ArrowWriter::try_new(File::create(&path)?, schema, None)?;
        for part in table.parts() {
            let rows: Vec<u32> =
                table.rows_of(&part).into_iter().filter(|row| *row as usize >= from).collect();
            for rows in rows.chunks(512) {
                writer.write(&compact(&table.read(rows, &columns)?)?)?;
            }
        }
        writer.close()?;
        Ok(path)
    }
}
