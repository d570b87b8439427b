//! Calls on snapshots, as messages. A batch is one call: it is asked for again as a whole where the connection breaks, and none comes
//! before it is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_array::RecordBatch;
use forebay_store::{Timestamp, VersionRows};

use super::Remote;
use crate::error::Result;
use crate::snapshots::{ReadRows, SnapshotCalls, TakeSnapshot, TakenSnapshot};
use crate::wire::{self, milliseconds, proto};

impl Remote {
    fn hold_snapshot(&self, snapshot: u64, extend: Option<Duration>) -> Result<Timestamp> {
        let request = proto::HoldSnapshotRequest { snapshot, extend_ms: extend.map(milliseconds) };
        Ok(Timestamp(self.call(&request)?.deadline))
    }
}

impl SnapshotCalls for Remote {
    fn take(&self, take: &TakeSnapshot) -> Result<TakenSnapshot> {
        wire::to_taken(self.call(&wire::from_take(take))?)
    }

    fn read(&self, snapshot: u64, table: &str, rows: &ReadRows, from: u64) -> Result<Option<RecordBatch>> {
        let stream = self.assemble(wire::from_read(snapshot, table, rows, from))?;
        match stream.is_empty() {
            true => Ok(None),
            false => stream.into_batch().map(Some),
        }
    }

    fn versions(&self, snapshot: u64, table: &str) -> Result<BTreeMap<u64, VersionRows>> {
        let request = proto::SnapshotVersionsRequest { snapshot, table: table.to_owned() };
        Ok(wire::to_versions(self.call(&request)?))
    }

    fn extend(&self, snapshot: u64, time: Duration) -> Result<Timestamp> {
        self.hold_snapshot(snapshot, Some(time))
    }

    fn release(&self, snapshot: u64) -> Result<()> {
        self.hold_snapshot(snapshot, None).map(drop)
    }
}
