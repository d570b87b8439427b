//! What a step was like, for whoever watches a training: one record of numbers a step.
//!
//! Micro-batches count when they are accumulated, so one that went back and came again counts once. Where every rank of a gang
//! gets all of a micro-batch, its rows and tokens count once, too; waiting and copying are what all ranks did together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use forebay::store::{Cell, Claim, DataType, Role, Schema};
use parking_lot::Mutex;

use crate::failure::Result;
use crate::handle::Open;

/// A value of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
}

/// What is counted of one step.
#[derive(Debug)]
pub(crate) struct Tally {
    began: Instant,
    tables: BTreeSet<String>,
    excluded_before: BTreeMap<String, u64>,
    copied_bytes: AtomicU64,
    waited_microseconds: AtomicU64,
    /// By table.
    sums: Mutex<BTreeMap<String, Sums>>,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    micro_batches: BTreeSet<(Arc<str>, u32)>,
    rows: u64,
    tokens: u64,
    staleness: u64,
    staleness_max: u64,
}

/// One micro-batch's part in its step's record, added when it is accumulated.
#[derive(Debug)]
pub(crate) struct Share {
    tally: Arc<Tally>,
    table: String,
    consumer: Arc<str>,
    sequence: u32,
    /// Whether other ranks have the same rows.
    is_copy: bool,
    rows: u64,
    tokens: u64,
    staleness: u64,
    staleness_max: u64,
}

impl Tally {
    /// Begins to count for a step of these consumers.
    pub(crate) fn begin(open: &Open, consumers: &BTreeSet<String>) -> Result<Self> {
        let declared = open.store.consumers().into_iter();
        let tables = declared.filter(|c| consumers.contains(&c.name)).map(|c| c.table).collect();
        let excluded_before = excluded(open, &tables)?;
        Ok(Tally {
            began: Instant::now(),
            tables,
            excluded_before,
            copied_bytes: AtomicU64::new(0),
            waited_microseconds: AtomicU64::new(0),
            sums: Mutex::default(),
        })
    }

    pub(crate) fn copied(&self, bytes: u64) {
        self.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.waited_microseconds.fetch_add(time, Ordering::Relaxed);
    }

    /// What had been accumulated for a table is gone.
    pub(crate) fn drop_cache(&self, table: &str) {
        self.sums.lock().remove(table);
    }

    /// What a micro-batch adds once it is accumulated. `counted`: the column whose lengths are tokens; without one, that with
    /// the role `input_ids`.
    pub(crate) fn share(
        self: &Arc<Self>,
        open: &Open,
        claim: &Claim,
        consumer: &Arc<str>,
        counted: Option<&str>,
        is_copy: bool,
    ) -> Result<Share> {
        let table = open.table(claim.table())?;
        let current = open.store.policy(table.schema().policy_name().unwrap_or(table.name()))?.version;
        let versions = claim.columns(["policy_version"])?;
        let versions = versions.column(0).as_primitive::<UInt64Type>();
        let behind = (0..versions.len()).map(|row| current.saturating_sub(versions.value(row)));
        Ok(Share {
            tally: self.clone(),
            table: claim.table().to_owned(),
            consumer: consumer.clone(),
            sequence: claim.sequence_in_step(),
            is_copy,
            rows: claim.len() as u64,
            tokens: tokens(claim, table.schema(), counted)?,
            staleness: behind.clone().sum(),
            staleness_max: behind.max().unwrap_or(0),
        })
    }

    /// The record so far.
    pub(crate) fn record(&self, open: &Open) -> Result<Vec<(String, Value)>> {
        let sums = self.sums.lock().values().fold(Sums::default(), Sums::plus);
        let seconds = |microseconds: u64| Value::Number(microseconds as f64 / 1e6);
        let mean = if sums.rows == 0 { 0.0 } else { sums.staleness as f64 / sums.rows as f64 };
        let mut record = vec![
            ("rows", Value::Count(sums.rows)),
            ("tokens", Value::Count(sums.tokens)),
            ("micro_batches", Value::Count(sums.micro_batches.len() as u64)),
            ("staleness_mean", Value::Number(mean)),
            ("staleness_max", Value::Count(sums.staleness_max)),
            ("seconds", Value::Number(self.began.elapsed().as_secs_f64())),
            ("seconds_waited", seconds(self.waited_microseconds.load(Ordering::Relaxed))),
            ("copied_bytes", Value::Count(self.copied_bytes.load(Ordering::Relaxed))),
        ];
        let excluded = excluded(open, &self.tables)?;
        let since = |reason: &String, rows: u64| {
            rows.saturating_sub(self.excluded_before.get(reason).copied().unwrap_or(0))
        };
        let excluded = excluded.into_iter().map(|(reason, rows)| {
            let rows = since(&reason, rows);
            (format!("excluded/{reason}"), rows)
        });
        let excluded: Vec<(String, u64)> = excluded.filter(|(_, rows)| *rows > 0).collect();
        record.push(("excluded", Value::Count(excluded.iter().map(|(_, rows)| rows).sum())));
        let named = record.into_iter().map(|(name, value)| (name.to_owned(), value));
        Ok(named.chain(excluded.into_iter().map(|(name, rows)| (name, Value::Count(rows)))).collect())
    }
}

impl Share {
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The gradient of the micro-batch is in the cache.
    pub(crate) fn add(&self) {
        let mut tables = self.tally.sums.lock();
        let sums = tables.entry(self.table.clone()).or_default();
        let is_new = sums.micro_batches.insert((self.consumer.clone(), self.sequence));
        if is_new || !self.is_copy {
            sums.rows += self.rows;
            sums.tokens += self.tokens;
            sums.staleness += self.staleness;
            sums.staleness_max = sums.staleness_max.max(self.staleness_max);
        }
    }
}

impl Sums {
    fn plus(mut self, other: &Sums) -> Self {
        self.micro_batches.extend(other.micro_batches.iter().cloned());
        self.rows += other.rows;
        self.tokens += other.tokens;
        self.staleness += other.staleness;
        self.staleness_max = self.staleness_max.max(other.staleness_max);
        self
    }
}

/// How many rows of tables were left out, by reason.
fn excluded(open: &Open, tables: &BTreeSet<String>) -> Result<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    for table in tables {
        for (reason, rows) in open.table(table)?.counts().excluded {
            *all.entry(reason).or_default() += rows;
        }
    }
    Ok(all)
}

/// How long the rows are together; 0 where no column says.
fn tokens(claim: &Claim, schema: &Schema, counted: Option<&str>) -> Result<u64> {
    let column = match counted {
        Some(name) => Some(&schema.data_columns()[schema.index_of(name)?]),
        None => schema.column_of(Role::InputIds),
    };
    let Some((column, DataType::List(element))) = column.map(|column| (column, &column.data_type)) else {
        return Ok(0);
    };
    let lengths = claim.cells(&column.name)?.into_iter().map(|cell| match cell {
        Cell::Bytes(bytes) => (bytes.len() / element.width_bytes()) as u64,
        _ => 0,
    });
    Ok(lengths.sum())
}
