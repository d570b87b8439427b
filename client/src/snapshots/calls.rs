//! The seam between what callers hold of snapshots and where those are: plain calls, plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{ScanOrder, Schema, Timestamp, VersionRows};

use crate::error::Result;

/// What is to be shown, and for how long. Default: all tables, for a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing is taken before a client is asked"]
pub struct TakeSnapshot {
    pub(crate) tables: Option<Vec<String>>,
    pub(crate) time: Duration,
    pub(crate) owner: Option<String>,
}

impl Default for TakeSnapshot {
    fn default() -> Self {
        TakeSnapshot { tables: None, time: Duration::from_secs(60), owner: None }
    }
}

impl TakeSnapshot {
    /// Only these tables. Default: all, of a server those that the token is for.
    pub fn tables<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        TakeSnapshot { tables: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// For how long it is held if nobody extends it. Default: a minute.
    pub fn time(self, time: Duration) -> Self {
        TakeSnapshot { time, ..self }
    }

    /// Whom `system.pins` shows as the holder. Default: this client.
    pub fn owner(self, owner: &str) -> Self {
        TakeSnapshot { owner: Some(owner.to_owned()), ..self }
    }

    /// The tables that are named; none for all.
    pub fn named(&self) -> Option<&[String]> {
        self.tables.as_deref()
    }

    /// The holder that is named.
    pub fn named_owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// For how long.
    pub fn held_for(&self) -> Duration {
        self.time
    }
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenSnapshot {
    /// What it is called by who holds it.
    pub number: u64,
    /// How many records made what it shows.
    pub commit: u64,
    /// When it ends.
    pub deadline: Timestamp,
    /// Its tables, in the order of their creation.
    pub tables: Vec<TableShown>,
}

/// A table of a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct TableShown {
    /// Its name.
    pub name: String,
    /// The policy whose versions its rows carry.
    pub policy: String,
    /// The policy's version then.
    pub current_version: u64,
    /// How many rows it had, excluded and superseded ones too.
    pub rows: u64,
    /// Its declaration then.
    pub schema: Schema,
}

/// Which rows of a table are read, and what of them. Default: all, by sample id, with every column that is not
/// [lazy](forebay_store::Schema::lazy).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "nothing is read before a snapshot is asked"]
pub struct ReadRows {
    /// The columns, by name: meta, data or status; none for all that are not lazy.
    pub columns: Option<Vec<String>>,
    /// Only rows of this policy version.
    pub version: Option<u64>,
    /// In which order.
    pub order: ScanOrder,
    /// How many rows a batch has at most; none for 4,096. One has fewer where its values would have more than 16 MiB.
    pub batch_rows: Option<usize>,
}

impl ReadRows {
    /// Only these columns.
    pub fn columns<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        ReadRows { columns: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Only rows of that policy version.
    pub fn version(self, version: u64) -> Self {
        ReadRows { version: Some(version), ..self }
    }

    /// In that order.
    pub fn order(self, order: ScanOrder) -> Self {
        ReadRows { order, ..self }
    }

    /// So many rows a batch at most.
    pub fn batch_rows(self, rows: usize) -> Self {
        ReadRows { batch_rows: Some(rows), ..self }
    }
}

/// Calls on the snapshots of one holder. Each fails with `state`, `SnapshotOver`, once the snapshot has ended: with its deadline, by its
/// release, or with the session.
#[allow(missing_docs, reason = "each is as its namesake of `Snapshot`, or says what it is")]
pub trait SnapshotCalls: Send + Sync {
    fn take(&self, take: &TakeSnapshot) -> Result<TakenSnapshot>;
    /// The next rows of a table after the first `from`; none when there are no more. The first batch is there also without a row.
    fn read(&self, snapshot: u64, table: &str, rows: &ReadRows, from: u64) -> Result<Option<RecordBatch>>;
    /// The policy versions that rows of a table are of.
    fn versions(&self, snapshot: u64, table: &str) -> Result<BTreeMap<u64, VersionRows>>;
    fn extend(&self, snapshot: u64, time: Duration) -> Result<Timestamp>;
    fn release(&self, snapshot: u64) -> Result<()>;
}
