//! What an operator asks of a store, wherever that is.

use std::collections::BTreeMap;

use forebay_store::{
    ConsumerInfo, ConsumerKind, Options, Row, Stats, Store, VerifyProgress, VerifyReport, verify,
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

/// Calls for an operator. Over a wire they need the scope `admin`, and a token of all tables (but for `evict`).
#[allow(missing_docs, reason = "each is as its namesake of `Admin`")]
pub trait AdminCalls: Send + Sync {
    fn overview(&self) -> Result<Overview>;
    fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()>;
    fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport>;
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

    /// Leaves rows out for good, all or none, with the reason that people will see.
    pub fn evict(&self, table: &str, rows: &[Row], reason: &str) -> Result<()> {
        self.0.connection.admin().evict(table, rows, reason)
    }

    /// Reads every byte that the store stands on, as [`forebay_store::verify`], beside whoever works with it.
    pub fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
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

    fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
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
    let Stats { extents, extent_bytes, memory_bytes, free_extent_bytes, extents_recycled, .. } = *stats;
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
    ];
    all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
