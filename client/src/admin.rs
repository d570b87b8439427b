//! What an operator asks of a store, wherever that is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use arrow_array::RecordBatch;
use forebay_store::{
    BackupOptions, BackupProgress, BackupReport, BudgetChange, Budgets, CompactReport, ConsumerInfo,
    ConsumerKind, Options, Peek, Retention, Row, Stats, Store, VerifyProgress, VerifyReport, verify,
};

use crate::changes::Changes;
use crate::client::Client;
use crate::error::Result;

/// How a store was opened, what it has done and holds, and how much is ready for each consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Each setting by the name of its method of [`Options`]; none for a limit that is not set. The budgets are among them.
    pub settings: BTreeMap<String, Option<String>>,
    /// Each counter by the name of its field of [`Stats`].
    pub stats: BTreeMap<String, u64>,
    /// Each consumer, once for each of its tables.
    pub depths: Vec<Depth>,
}

/// How much there is for a consumer in one of its tables: as [`ConsumerInfo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The consumer's name.
    pub consumer: String,
    /// What it does with its claims.
    pub kind: ConsumerKind,
    /// The table.
    pub table: String,
    /// Rows that can be claimed now.
    pub ready_rows: u64,
    /// Rows that have all they need and are of a version that the policy has yet to reach.
    pub future_rows: u64,
    /// Rows that were handed out and are neither done nor given back.
    pub processing_rows: u64,
    /// The version of the table's policy.
    pub current_version: u64,
    /// How many members a group has that it takes; none where it takes rows one by one.
    pub group_members: Option<u32>,
}

/// Who is told how far something is, and says whether it goes on.
pub type Watch<'a, P> = &'a mut dyn FnMut(P) -> ControlFlow<()>;

/// Calls for an operator. Over a wire they need the scope `admin`, and a token of all tables (but for `evict` and `peek`).
#[allow(missing_docs, reason = "each is as its namesake of `Admin`")]
pub trait AdminCalls: Send + Sync {
    fn overview(&self) -> Result<Overview>;
    fn peek(&self, table: &str, peek: &Peek) -> Result<RecordBatch>;
    fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()>;
    fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets>;
    /// Without a rule it only says which holds.
    fn change_retention(&self, rule: Option<Retention>) -> Result<Retention>;
    fn compact(&self) -> Result<CompactReport>;
    fn backup(
        &self,
        to: &Path,
        options: BackupOptions,
        progress: Watch<'_, BackupProgress>,
    ) -> Result<BackupReport>;
    fn verify(&self, progress: Watch<'_, VerifyProgress>) -> Result<VerifyReport>;
}

/// What an operator does with a store: see [`Client::admin`].
#[derive(Clone, Debug)]
pub struct Admin(pub(crate) Client);

#[allow(
    clippy::missing_errors_doc,
    reason = "said once: as the store's own; `input` for who is not allowed, `retry` without a server"
)]
impl Admin {
    /// How the store was opened, what it has done and holds, and how much is ready for each consumer.
    pub fn overview(&self) -> Result<Overview> {
        self.0.connection.admin().overview()
    }

    /// A few rows of a table, whoever holds them: nothing is claimed.
    pub fn peek(&self, table: &str, peek: &Peek) -> Result<RecordBatch> {
        self.0.connection.admin().peek(table, peek)
    }

    /// Leaves rows out for good, all or none, with the reason that people will see.
    pub fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()> {
        self.0.connection.admin().evict(table, rows, reason)
    }

    /// How much the store may take.
    pub fn budgets(&self) -> Result<Budgets> {
        self.change_budgets(&BudgetChange::new())
    }

    /// Changes how much it may take, until it is closed: see [`Store::change_budgets`]. Gives what holds then.
    pub fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets> {
        self.0.connection.admin().change_budgets(change)
    }

    /// Which rows go by themselves.
    pub fn retention(&self) -> Result<Retention> {
        self.0.connection.admin().change_retention(None)
    }

    /// Puts another rule in place of the one that holds, until the store is closed: see [`Store::change_retention`].
    pub fn change_retention(&self, rule: Retention) -> Result<()> {
        self.0.connection.admin().change_retention(Some(rule)).map(drop)
    }

    /// Makes the store as small as it can be now: see [`Store::compact`]. It may take as long as it takes; over a wire the call fails
    /// when nothing is heard of it for [`call_time_max`](crate::ConnectOptions::call_time_max). Once begun it goes on to its end,
    /// whoever waits for it. A server compacts, copies and checks one at a time; another is told `Busy`.
    pub fn compact(&self) -> Result<CompactReport> {
        self.0.connection.admin().compact()
    }

    /// Copies the store, as it is at one position of its log, to a directory that is empty or not there, of the machine that has the
    /// store: see [`Store::backup_watched`]. A server copies to where its operator allows it alone (`forebay serve --backup-dir`,
    /// `Builder::backup_folder`): `to` is a path relative to that directory, or beneath it. A copy whose client has gone is given up
    /// soon; one whose connection broke is found again under the name of the call.
    pub fn backup(
        &self,
        to: impl AsRef<Path>,
        options: BackupOptions,
        progress: Watch<'_, BackupProgress>,
    ) -> Result<BackupReport> {
        self.0.connection.admin().backup(to.as_ref(), options, progress)
    }

    /// Reads every byte that the store stands on, as [`forebay_store::verify`], beside whoever works with it. Over a wire it may take
    /// as long as it takes, as a compaction; a server stops it soon when its client has gone.
    pub fn verify(&self, progress: Watch<'_, VerifyProgress>) -> Result<VerifyReport> {
        self.0.connection.admin().verify(progress)
    }
}

/// The calls of a store of this process.
impl AdminCalls for Store {
    fn overview(&self) -> Result<Overview> {
        let settings = self.settings().into_iter().map(|(name, value)| (name.to_owned(), value));
        let depths = self.consumers().into_iter().map(Depth::from).collect();
        Ok(Overview { settings: settings.collect(), stats: counters(&self.stats()), depths })
    }

    fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()> {
        self.check_rows(rows)?;
        let mut changes = Changes::new();
        rows.iter().for_each(|row| _ = changes.exclude(table, *row, reason));
        changes.apply(self).map(drop)
    }

    fn peek(&self, table: &str, peek: &Peek) -> Result<RecordBatch> {
        Ok(Store::peek(self, table, peek)?)
    }

    fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets> {
        match *change == BudgetChange::new() {
            true => Ok(self.budgets()), // of a store that is read only, too
            false => Ok(Store::change_budgets(self, change)?),
        }
    }

    fn change_retention(&self, rule: Option<Retention>) -> Result<Retention> {
        rule.map_or(Ok(()), |rule| Store::change_retention(self, rule))?;
        Ok(self.retention())
    }

    fn compact(&self) -> Result<CompactReport> {
        Ok(Store::compact(self)?)
    }

    fn backup(
        &self,
        to: &Path,
        options: BackupOptions,
        progress: Watch<'_, BackupProgress>,
    ) -> Result<BackupReport> {
        Ok(self.backup_watched(to, options, progress)?)
    }

    fn verify(&self, progress: Watch<'_, VerifyProgress>) -> Result<VerifyReport> {
        Ok(verify(self.path(), &Options::default(), progress)?)
    }
}

impl From<ConsumerInfo> for Depth {
    fn from(info: ConsumerInfo) -> Self {
        let is_trainer = info.kind == ConsumerKind::Trainer.as_str();
        Depth {
            consumer: info.name,
            kind: if is_trainer { ConsumerKind::Trainer } else { ConsumerKind::Task },
            table: info.table,
            ready_rows: info.ready_rows,
            future_rows: info.future_rows,
            processing_rows: info.processing_rows,
            current_version: info.current_version,
            group_members: info.group_members,
        }
    }
}

fn counters(stats: &Stats) -> BTreeMap<String, u64> {
    let Stats { commits, log_bytes, syncs, durable_commits, value_bytes_written, value_reads, .. } = *stats;
    let Stats { extents, extent_bytes, memory_bytes, free_extent_bytes, .. } = *stats;
    let Stats { extents_recycled, extents_never_synced, duties_failed, .. } = *stats;
    let all = [
        ("commits", commits),
        ("log_bytes", log_bytes),
        ("syncs", syncs),
        ("durable_commits", durable_commits),
        ("value_bytes_written", value_bytes_written),
        ("value_reads", value_reads),
        ("extents", extents),
        ("extent_bytes", extent_bytes),
        ("memory_bytes", memory_bytes),
        ("free_extent_bytes", free_extent_bytes),
        ("extents_recycled", extents_recycled),
        ("extents_never_synced", extents_never_synced),
        ("duties_failed", duties_failed),
    ];
    all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
