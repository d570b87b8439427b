//! What callers hold of a snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{Schema, Timestamp, VersionRows};

use super::calls::{ReadRows, TableShown, TakeSnapshot, TakenSnapshot};
use crate::client::Client;
use crate::error::{Error, Result};

/// One instant of all tables, or of some. It may be read again and again, while others write. While it is held, the space of values that
/// it shows is not used again (`system.pins`). It ends with its deadline, which can be [moved](Snapshot::extend), at the latest with the
/// store's greatest age of snapshots (an hour where that is not set), and when it is dropped.
#[derive(Debug)]
#[must_use = "a snapshot that is dropped is over"]
pub struct Snapshot {
    held: Arc<Held>,
    taken: TakenSnapshot,
}

/// What its tables share.
#[derive(Debug)]
struct Held {
    client: Client,
    number: u64,
    deadline: Mutex<Timestamp>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = self.client.connection.snapshots().release(self.number) {
            tracing::debug!(number = self.number, %error, "a snapshot was not released; its deadline or the session ends it");
        }
    }
}

impl Snapshot {
    pub(crate) fn take(client: &Client, take: &TakeSnapshot) -> Result<Self> {
        let taken = client.connection.snapshots().take(take)?;
        let deadline = Mutex::new(taken.deadline);
        let held = Arc::new(Held { client: client.clone(), number: taken.number, deadline });
        Ok(Snapshot { held, taken })
    }

    /// How many records made what it shows: of two snapshots the one with more is the later.
    pub fn commit(&self) -> u64 {
        self.taken.commit
    }

    /// When it ends, as far as is known here.
    pub fn deadline(&self) -> Timestamp {
        *self.held.deadline.lock().unwrap_or_else(PoisonError::into_inner) // a number
    }

    /// Its tables, in the order of their creation.
    pub fn tables(&self) -> impl Iterator<Item = SnapshotTable> + '_ {
        self.taken.tables.iter().map(|shown| SnapshotTable { held: self.held.clone(), shown: shown.clone() })
    }

    /// The table of that name.
    ///
    /// # Errors
    /// `input` for one that it does not show.
    pub fn table(&self, name: &str) -> Result<SnapshotTable> {
        self.tables().find(|table| table.name() == name).ok_or_else(|| {
            let all: Vec<&str> = self.taken.tables.iter().map(|table| table.name.as_str()).collect();
            let message = format!("the snapshot shows no table {name:?}; it shows {}", all.join(", "));
            Error::input("Unknown", message)
        })
    }

    /// Holds it for `time` from now on, and no shorter than it is held already, up to its greatest age. Gives the new deadline.
    ///
    /// # Errors
    /// `state` when it is over.
    pub fn extend(&self, time: Duration) -> Result<Timestamp> {
        let deadline = self.held.client.connection.snapshots().extend(self.held.number, time)?;
        *self.held.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        Ok(deadline)
    }
}

/// A table of a snapshot. It is part of the snapshot, which is held for as long as one of its tables is.
#[derive(Clone, Debug)]
pub struct SnapshotTable {
    held: Arc<Held>,
    shown: TableShown,
}

impl SnapshotTable {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.shown.name
    }

    /// The policy whose versions its rows carry.
    pub fn policy(&self) -> &str {
        &self.shown.policy
    }

    /// The policy's version at the instant of the snapshot.
    pub fn current_version(&self) -> u64 {
        self.shown.current_version
    }

    /// Its declaration at that instant.
    pub fn schema(&self) -> &Schema {
        &self.shown.schema
    }

    /// How many rows it has, excluded and superseded ones too.
    pub fn row_count(&self) -> u64 {
        self.shown.rows
    }

    /// The policy versions that its rows are of, with how many there are, in order.
    ///
    /// # Errors
    /// `state` when the snapshot is over; `retry` when the server cannot be reached.
    pub fn versions(&self) -> Result<BTreeMap<u64, VersionRows>> {
        self.held.client.connection.snapshots().versions(self.held.number, self.name())
    }

    /// Its rows, batch by batch, each read when it is asked for. The same question gives the same batches; where there is no row, one without.
    ///
    /// Each batch may fail: with `state` when the snapshot is over, `input` for a column that is not there, `retry` when the server cannot be
    /// reached. The same batch may be asked for again then.
    pub fn read(&self, rows: ReadRows) -> SnapshotBatches {
        SnapshotBatches { of: self.clone(), rows, from: 0, is_over: false }
    }
}

/// Rows of a table of a snapshot, batch by batch: see [`SnapshotTable::read`].
#[derive(Debug)]
pub struct SnapshotBatches {
    of: SnapshotTable,
    rows: ReadRows,
    /// How many rows were given.
    from: u64,
    is_over: bool,
}

impl Iterator for SnapshotBatches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let SnapshotTable { held, shown } = &self.of;
        let calls = held.client.connection.snapshots();
        let batch = calls.read(held.number, &shown.name, &self.rows, self.from).transpose();
        match &batch {
            Some(Ok(batch)) => {
                self.from += batch.num_rows() as u64;
                self.is_over = batch.num_rows() == 0;
            }
            Some(Err(_)) => {}
            None => self.is_over = true,
        }
        batch
    }
}
