//! What a step was like, for whoever watches a training: one record of numbers a step.
//!
//! Micro-batches count when they are accumulated, so one that went back and came again counts once. Where every rank of a gang
//! gets all of a micro-batch, its rows and tokens count once, too; waiting and copying are what all ranks did together.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay::client::{CellValue, Claim, Declared};
use forebay::store::{ConsumerKind, DataType, Role, Schema, TableCounts};
use parking_lot::Mutex;

use crate::failure::Result;
use crate::handle::Open;
use crate::history::Epoch;

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
    tables: BTreeMap<String, Watched>,
    excluded_before: BTreeMap<String, u64>,
    copied_bytes: AtomicU64,
    waited_microseconds: AtomicU64,
    /// What is accumulated, by table.
    sums: Mutex<BTreeMap<String, Accumulated>>,
}

/// A table of the step, as it was when the step began. No policy moves while a step is open.
#[derive(Debug)]
struct Watched {
    schema: Schema,
    version: u64,
}

/// Micro-batches by their claims, all ranks' parts of one together.
type Accumulated = BTreeMap<Epoch, Sums>;

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
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
    epoch: Epoch,
    /// Whether other ranks have the same rows.
    is_copy: bool,
    rows: u64,
    counted: Option<Counted>,
    staleness: u64,
    staleness_max: u64,
}

/// The column whose lengths are tokens. It is read when somebody looks at it, or when the micro-batch is accumulated.
#[derive(Debug)]
struct Counted {
    column: String,
    width_bytes: usize,
    tokens: OnceLock<u64>,
}

impl Counted {
    fn count(&self, cells: &[CellValue]) -> u64 {
        let length = |cell: &CellValue| match cell {
            CellValue::Bytes(bytes) => (bytes.len() / self.width_bytes) as u64,
            _ => 0,
        };
        *self.tokens.get_or_init(|| cells.iter().map(length).sum())
    }
}

impl Tally {
    /// Begins to count for a step of these consumers, or of any trainers.
    pub(crate) fn begin(open: &Open, consumers: Option<&BTreeSet<String>>) -> Result<Self> {
        let declared = open.client.consumers()?.into_iter();
        let is_one = |told: &Declared| match consumers {
            Some(consumers) => consumers.contains(&told.name),
            None => told.kind == ConsumerKind::Trainer,
        };
        let named = declared.filter(is_one).flat_map(|told| told.tables);
        let (mut tables, mut excluded_before) = (BTreeMap::new(), BTreeMap::new());
        for name in named.collect::<BTreeSet<_>>() {
            let (schema, counts) = open.client.connection().table(&name)?;
            let version = open.client.policy(schema.policy_name().unwrap_or(&name))?.version;
            add_excluded(&mut excluded_before, counts);
            tables.insert(name, Watched { schema, version });
        }
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

    /// The gradients of these claims are gone.
    pub(crate) fn return_lost(&self, claims: &[Epoch]) {
        let mut tables = self.sums.lock();
        tables.values_mut().for_each(|sums| sums.retain(|epoch, _| !claims.contains(epoch)));
    }

    /// What a micro-batch adds once it is accumulated. `counted`: the column whose lengths are tokens; without one, that with
    /// the role `input_ids`.
    pub(crate) fn share(
        self: &Arc<Self>,
        claim: &Claim,
        counted: Option<&str>,
        is_copy: bool,
    ) -> Result<Share> {
        let table = self.tables.get(claim.table());
        let current = table.map_or(0, |table| table.version);
        let behind = claim.rows().iter().map(|row| current.saturating_sub(row.policy_version()));
        Ok(Share {
            tally: self.clone(),
            table: claim.table().to_owned(),
            epoch: (claim.epoch().0, claim.epoch().1),
            is_copy,
            rows: claim.len() as u64,
            counted: table.map(|table| counted_column(&table.schema, counted)).transpose()?.flatten(),
            staleness: behind.clone().sum(),
            staleness_max: behind.max().unwrap_or(0),
        })
    }

    /// What is accumulated by now, and in how many micro-batches.
    fn accumulated(&self) -> (Sums, u64) {
        let tables = self.sums.lock();
        let sums = tables.values().flat_map(Accumulated::values);
        (sums.clone().fold(Sums::default(), Sums::plus), sums.count() as u64)
    }

    /// The record so far.
    pub(crate) fn record(&self, open: &Open) -> Result<Vec<(String, Value)>> {
        let (sums, micro_batches) = self.accumulated();
        let seconds = |microseconds: u64| Value::Number(microseconds as f64 / 1e6);
        let mean = if sums.rows == 0 { 0.0 } else { sums.staleness as f64 / sums.rows as f64 };
        let mut record = vec![
            ("rows", Value::Count(sums.rows)),
            ("tokens", Value::Count(sums.tokens)),
            ("micro_batches", Value::Count(micro_batches)),
            ("staleness_mean", Value::Number(mean)),
            ("staleness_max", Value::Count(sums.staleness_max)),
            ("seconds", Value::Number(self.began.elapsed().as_secs_f64())),
            ("seconds_waited", seconds(self.waited_microseconds.load(Ordering::Relaxed))),
            ("copied_bytes", Value::Count(self.copied_bytes.load(Ordering::Relaxed))),
        ];
        let mut excluded = BTreeMap::new();
        for table in self.tables.keys() {
            add_excluded(&mut excluded, open.table(table).counts()?);
        }
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

    /// Somebody looks at a column.
    pub(crate) fn see(&self, column: &str, cells: &[CellValue]) {
        if let Some(counted) = self.counted.as_ref().filter(|counted| counted.column == column) {
            counted.count(cells);
        }
    }

    /// Reads the counted column, if nobody has looked at it: while the claim is there.
    pub(crate) fn read(&self, claim: &Claim) -> Result<()> {
        if let Some(counted) = self.counted.as_ref().filter(|counted| counted.tokens.get().is_none()) {
            counted.count(&claim.cells([counted.column.as_str()])?.concat());
        }
        Ok(())
    }

    fn tokens(&self) -> u64 {
        self.counted.as_ref().and_then(|counted| counted.tokens.get()).copied().unwrap_or(0)
    }

    /// The gradient of the micro-batch is in the cache.
    pub(crate) fn add(&self) {
        let part = Sums {
            rows: self.rows,
            tokens: self.tokens(),
            staleness: self.staleness,
            staleness_max: self.staleness_max,
        };
        let mut tables = self.tally.sums.lock();
        let sums = tables.entry(self.table.clone()).or_default().entry(self.epoch);
        match sums {
            Entry::Vacant(first) => _ = first.insert(part),
            Entry::Occupied(_) if self.is_copy => {}
            Entry::Occupied(mut others) => _ = others.insert(others.get().plus(&part)),
        }
    }
}

impl Sums {
    fn plus(mut self, other: &Sums) -> Self {
        self.rows += other.rows;
        self.tokens += other.tokens;
        self.staleness += other.staleness;
        self.staleness_max = self.staleness_max.max(other.staleness_max);
        self
    }
}

/// Adds how many rows of a table were left out, by reason.
fn add_excluded(all: &mut BTreeMap<String, u64>, counts: TableCounts) {
    for (reason, rows) in counts.excluded {
        *all.entry(reason.to_string()).or_default() += rows;
    }
}

/// The column whose lengths are tokens; none where no column says.
fn counted_column(schema: &Schema, named: Option<&str>) -> Result<Option<Counted>> {
    let column = match named {
        Some(name) => Some(&schema.data_columns()[schema.index_of(name)?]),
        None => schema.column_of(Role::InputIds),
    };
    let list = column.and_then(|column| match column.data_type {
        DataType::List(element) => Some((column.name.clone(), element.width_bytes())),
        _ => None,
    });
    let counted = |(column, width_bytes)| Counted { column, width_bytes, tokens: OnceLock::new() };
    Ok(list.map(counted))
}
