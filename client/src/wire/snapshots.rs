//! Snapshots: what is taken, and what is read of them.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_store::{ScanOrder, Timestamp, VersionRows};

use super::schema::{from_schema, to_schema};
use super::{malformed, milliseconds, proto};
use crate::error::Result;
use crate::snapshots::{ReadRows, TableShown, TakeSnapshot, TakenSnapshot};

/// What is to be taken, on the wire.
pub fn from_take(take: &TakeSnapshot) -> proto::TakeSnapshotRequest {
    let TakeSnapshot { tables, time, owner } = take.clone();
    proto::TakeSnapshotRequest {
        only_tables: tables.is_some(),
        tables: tables.unwrap_or_default(),
        time_ms: milliseconds(time),
        owner,
    }
}

/// What is meant to be taken.
pub fn to_take(wire: proto::TakeSnapshotRequest) -> TakeSnapshot {
    let proto::TakeSnapshotRequest { only_tables, tables, time_ms, owner } = wire;
    TakeSnapshot { tables: only_tables.then_some(tables), time: Duration::from_millis(time_ms), owner }
}

/// A snapshot on the wire.
pub fn from_taken(taken: TakenSnapshot) -> proto::TakeSnapshotReply {
    let table = |table: TableShown| proto::SnapshotTable {
        name: table.name,
        policy: table.policy,
        current_version: table.current_version,
        rows: table.rows,
        schema: Some(from_schema(&table.schema)),
    };
    proto::TakeSnapshotReply {
        snapshot: taken.number,
        commit: taken.commit,
        deadline: taken.deadline.0,
        tables: taken.tables.into_iter().map(table).collect(),
    }
}

/// The snapshot that was taken.
///
/// # Errors
/// `input` for a table without a schema.
pub fn to_taken(wire: proto::TakeSnapshotReply) -> Result<TakenSnapshot> {
    let table = |table: proto::SnapshotTable| {
        let schema = table.schema.ok_or_else(|| malformed("a table without a schema"))?;
        Ok(TableShown {
            name: table.name,
            policy: table.policy,
            current_version: table.current_version,
            rows: table.rows,
            schema: to_schema(schema)?,
        })
    };
    Ok(TakenSnapshot {
        number: wire.snapshot,
        commit: wire.commit,
        deadline: Timestamp(wire.deadline),
        tables: wire.tables.into_iter().map(table).collect::<Result<_>>()?,
    })
}

/// What is read, on the wire.
pub fn from_read(snapshot: u64, table: &str, rows: &ReadRows, from: u64) -> proto::ReadSnapshotRequest {
    let ReadRows { columns, version, order, batch_rows } = rows.clone();
    proto::ReadSnapshotRequest {
        snapshot,
        table: table.to_owned(),
        only_columns: columns.is_some(),
        columns: columns.unwrap_or_default(),
        version,
        by_arrival: order == ScanOrder::Arrival,
        batch_rows: batch_rows.map(|rows| u32::try_from(rows).unwrap_or(u32::MAX)), // bounded either way
        from,
    }
}

/// What is meant to be read: of which snapshot and table, and after how many rows.
pub fn to_read(wire: proto::ReadSnapshotRequest) -> (u64, String, ReadRows, u64) {
    let proto::ReadSnapshotRequest {
        snapshot,
        table,
        only_columns,
        columns,
        version,
        by_arrival,
        batch_rows,
        from,
    } = wire;
    let order = if by_arrival { ScanOrder::Arrival } else { ScanOrder::SampleId };
    let (columns, batch_rows) = (only_columns.then_some(columns), batch_rows.map(|rows| rows as usize));
    (snapshot, table, ReadRows { columns, version, order, batch_rows }, from)
}

/// The versions of a table's rows, on the wire.
pub fn from_versions(versions: BTreeMap<u64, VersionRows>) -> proto::SnapshotVersionsReply {
    let each = versions.into_iter().map(|(version, VersionRows { rows, open })| proto::SnapshotVersion {
        version,
        rows,
        open,
    });
    proto::SnapshotVersionsReply { versions: each.collect() }
}

/// The versions of a table's rows.
pub fn to_versions(wire: proto::SnapshotVersionsReply) -> BTreeMap<u64, VersionRows> {
    let each = wire
        .versions
        .into_iter()
        .map(|proto::SnapshotVersion { version, rows, open }| (version, VersionRows { rows, open }));
    each.collect()
}

#[cfg(test)]
mod tests {
    use forebay_store::{DataType, Schema};

    use super::*;

    #[test]
    fn what_is_taken_and_read_comes_back_as_it_went() {
        let none: [&str; 0] = [];
        for take in [
            TakeSnapshot::default(),
            TakeSnapshot::default().tables(none).time(Duration::from_millis(7)).owner("eval"),
            TakeSnapshot::default().tables(["a", "b"]),
        ] {
            assert_eq!(to_take(from_take(&take)), take);
        }
        for rows in [
            ReadRows::default(),
            ReadRows::default().columns(none).version(3).order(ScanOrder::Arrival).batch_rows(9),
            ReadRows::default().columns(["reward"]),
        ] {
            assert_eq!(to_read(from_read(1, "solver", &rows, 5)), (1, "solver".to_owned(), rows, 5));
        }
        let table = TableShown {
            name: "solver".to_owned(),
            policy: "p".to_owned(),
            current_version: 4,
            rows: 2,
            schema: Schema::new().data("reward", DataType::Float32),
        };
        let taken = TakenSnapshot { number: 1, commit: 9, deadline: Timestamp(77), tables: vec![table] };
        assert_eq!(to_taken(from_taken(taken.clone())).unwrap(), taken);
        let versions = BTreeMap::from([(0, VersionRows { rows: 3, open: 1 }), (2, VersionRows::default())]);
        assert_eq!(to_versions(from_versions(versions.clone())), versions);
    }
}
