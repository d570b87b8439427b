//! The rows: a store, and Parquet files with the same.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_benches::Random;
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
const PROMPT_TOKENS: usize = 512;
const POOL: usize = 4_096;
/// Rows a version.
const VERSION_ROWS: usize = 20_000;
/// Rows that come with each repetition.
const GROWN_ROWS: usize = 1_000;
/// Lists that no question reads. The copies for the other engines are without them, so that a million rows fit in memory
/// for those that hold them there; the store has them.
const NOT_COPIED: [&str; 2] = ["prompt_tokens", "logprobs"];

pub(crate) struct Data {
    store: Store,
    solver: Table,
    directory: TempDir,
    rows: usize,
    random: Random,
    pool: Vec<Lists>,
}

/// A session's first query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstQuery {
    pub(crate) time: Duration,
    /// Pages of files, the program's own among them, that had to be read from the disk for it.
    pub(crate) page_reads: u64,
}

fn first_query(store: &Store) -> Outcome<FirstQuery> {
    let (start, faults) = (Instant::now(), page_reads()?);
    let answer = Session::new(store)?.sql_blocking("SELECT count(*), max(policy_version) FROM solver")?;
    assert_eq!(answer.row_count(), 1);
    Ok(FirstQuery { time: start.elapsed(), page_reads: page_reads()? - faults })
}

/// The major faults of this process so far: `/proc/self/stat`, field 12.
fn page_reads() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, behind_name) = stat.rsplit_once(") ").ok_or("no name in /proc/self/stat")?;
    Ok(behind_name.split(' ').nth(9).ok_or("no faults in /proc/self/stat")?.parse()?)
}

/// The long values of a row. Rows take them in turn from [`POOL`] different ones; all else is a row's own.
struct Lists {
    prompt_tokens: Vec<i32>,
    response: Vec<i32>,
    logprobs: Vec<f32>,
}

impl Lists {
    fn new(random: &mut Random) -> Self {
        let length = random.response_tokens();
        Lists {
            prompt_tokens: random.tokens(PROMPT_TOKENS).collect(),
            response: random.tokens(length).collect(),
            logprobs: (0..length).map(|_| random.unit().ln() as f32).collect(),
        }
    }
}

fn schema() -> Schema {
    Schema::new()
        .data("prompt", DataType::Utf8)
        .data("prompt_tokens", DataType::list(Element::Int32))
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
        let mut random = Random::new(1);
        let pool = (0..POOL).map(|_| Lists::new(&mut random)).collect();
        let mut data = Data { store, solver, directory, rows: 0, random, pool };
        let start = Instant::now();
        data.fill(scale.rows)?;
        for first in (0..scale.rows / GROUP).step_by(BATCH) {
            let mut batch = data.store.batch();
            for input in first..(first + BATCH).min(scale.rows / GROUP) {
                let row = NewRow::of(0, SampleId::new(&format!("q{input}"), 0, 0)?);
                batch.insert(&checker, row, [("reward", data.random.unit().into())])?;
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

    /// How many rows the solver's table has.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Where the Parquet files lie, those of a table beginning with its name.
    pub(crate) fn files(&self) -> &Path {
        self.directory.path()
    }

    /// How long it takes from an open store to the answer of the first query of a session: of a store of one row, which reads
    /// what the disk still has of the program, then of this one.
    pub(crate) fn first_queries(&self) -> Outcome<[FirstQuery; 2]> {
        let directory = tempfile::tempdir()?;
        let small = Store::open(directory.path().join("store"), Options::default())?;
        small.create_table("solver", schema())?.insert(0, "q0_0_0", [])?;
        Ok([first_query(&small)?, first_query(&self.store)?])
    }

    /// A thousand more rows, and the file that has them.
    pub(crate) fn grow(&mut self, repetition: usize) -> Outcome<PathBuf> {
        let before = self.rows;
        self.fill(GROWN_ROWS)?;
        self.export("solver", before, &format!("solver-{}", repetition + 1))
    }

    /// Writes more rows.
    pub(crate) fn fill(&mut self, count: usize) -> Outcome<()> {
        let end = self.rows + count;
        while self.rows < end {
            let mut batch = self.store.batch();
            for _ in 0..BATCH.min(end - self.rows) {
                let row = self.rows;
                let version = (row / VERSION_ROWS) as u64;
                let id = SampleId::new(&format!("q{}", row / GROUP), 0, (row % GROUP) as u32)?;
                let lists = &self.pool[row % POOL];
                let prompt = format!(
                    "What is {} times {}? Think step by step, then say the number.",
                    self.random.bits(),
                    row
                );
                // One group in sixteen agrees.
                let reward = if (row / GROUP).is_multiple_of(16) { 1.0 } else { self.random.unit() };
                let cells: [(&str, Value<'_>); 5] = [
                    ("prompt", prompt.as_str().into()),
                    ("prompt_tokens", (&lists.prompt_tokens[..]).into()),
                    ("response", (&lists.response[..]).into()),
                    ("logprobs", (&lists.logprobs[..]).into()),
                    ("reward", reward.into()),
                ];
                // One row in thirty-two waits for its reward, half of these for their response too.
                let there = match row % 64 {
                    31 => 4,
                    63 => 2,
                    _ => 5,
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
        let copied = |name: &str| !NOT_COPIED.contains(&name);
        let copied: Vec<usize> =
            (0..schema.fields().len()).filter(|at| copied(schema.field(*at).name())).collect();
        let columns: Vec<ScanColumn> = copied.iter().copied().map(ScanColumn::Value).collect();
        let schema = Arc::new(schema.project(&copied)?);
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
