//! Snapshots of a session: one instant of the tables that its caller may see, read batch by batch.

use std::collections::HashSet;
use std::time::Duration;

use forebay_client::wire::proto::{
    HoldSnapshotReply, HoldSnapshotRequest, ReadSnapshotRequest, SnapshotVersionsReply,
    SnapshotVersionsRequest, TakeSnapshotReply, TakeSnapshotRequest,
};
use forebay_client::wire::{self, from_error};
use forebay_client::{Error, SnapshotCalls, TakeSnapshot};
use forebay_store::Store;

use super::call::{Reply, Service};
use super::sending::{Part, Sending};
use super::sessions::check_owner;
use super::streams::{Answers, check_columns};
use crate::access::{Caller, Scope};

/// What a column of what is shown counts for among the answers that are remembered, in rows.
const ROWS_OF_COLUMN: usize = 16;

/// Who asks in SQL may do so here.
const SEE: &[Scope] = &[Scope::Read];

/// What a caller may see of what is to be taken. Refuses a table that it may not.
fn narrowed(take: TakeSnapshot, caller: &Caller, tables: Vec<String>) -> Result<TakeSnapshot, Error> {
    check_owner(take.named_owner().unwrap_or_default())?;
    if let Some(named) = take.named() {
        named.iter().try_for_each(|table| caller.check_table(table))?;
        return Ok(take);
    }
    if caller.sees_all_tables() {
        return Ok(take);
    }
    Ok(take.tables(tables.into_iter().filter(|table| caller.sees_table(table))))
}

/// What the answer counts for that tells what is shown: its tables, with all of their columns.
fn weight(store: &Store, take: &TakeSnapshot) -> usize {
    let named = take.named().map(|names| names.iter().collect::<HashSet<_>>());
    let mut shown = store.tables();
    shown.retain(|table| named.as_ref().is_none_or(|named| named.contains(table)));
    let columns = |name: String| store.table(&name).map_or(0, |table| table.schema().columns().count());
    shown.into_iter().map(|name| 1 + columns(name)).sum::<usize>() * ROWS_OF_COLUMN
}

impl Service {
    pub(super) async fn snapshot_taken(
        &self,
        request: tonic::Request<TakeSnapshotRequest>,
    ) -> Reply<TakeSnapshotReply> {
        let call = self.enter(&request, SEE)?;
        let take = narrowed(wire::to_take(request.into_inner()), &call.caller, self.store.tables());
        let take = take.map_err(|error| from_error(&error))?;
        let (session, of) = (call.session.clone(), call.session.clone());
        let (rows, reader) = (weight(&self.store, &take), self.reader(&call));
        let taken = call.holding(move || Ok(wire::from_taken(session.snapshots.take(&take)?)));
        // Of a store of many columns a few are as long as all others: they push no other answer out.
        let pending = of.taken.once(call.name, rows, move || async move { reader.read_on(taken).await })?;
        pending.await.map(tonic::Response::new)
    }

    pub(super) async fn snapshot_held(
        &self,
        request: tonic::Request<HoldSnapshotRequest>,
    ) -> Reply<HoldSnapshotReply> {
        let call = self.enter(&request, SEE)?;
        let HoldSnapshotRequest { snapshot, extend_ms } = request.into_inner();
        let session = call.session.clone();
        self.once(call, move |_| {
            let deadline = match extend_ms {
                Some(ms) => session.snapshots.extend(snapshot, Duration::from_millis(ms))?.0,
                None => session.snapshots.release(snapshot).map(|()| 0)?,
            };
            Ok(HoldSnapshotReply { deadline })
        })
        .await
    }

    pub(super) async fn snapshot_read(
        &self,
        request: tonic::Request<ReadSnapshotRequest>,
    ) -> Reply<Answers<Part>> {
        let call = self.enter(&request, SEE)?;
        let (snapshot, table, rows, from) = wire::to_read(request.into_inner());
        check_columns(rows.columns.as_deref().unwrap_or_default())
            .and_then(|()| call.caller.check_table(&table))
            .map_err(|error| from_error(&error))?;
        let reader = self.reader(&call);
        let (session, room) = (call.session, reader.answers.clone());
        let batch = reader.read(move || {
            let batch = session.snapshots.read(snapshot, &table, &rows, from)?;
            batch.map(|batch| Sending::with_room(batch, &room)).transpose()
        });
        let parts = batch.await?.map(|batch| batch.parts(reader.clone()));
        self.answer(parts.unwrap_or_else(|| Part::of_whole(Vec::new())))
    }

    pub(super) async fn snapshot_versions_of(
        &self,
        request: tonic::Request<SnapshotVersionsRequest>,
    ) -> Reply<SnapshotVersionsReply> {
        let call = self.enter(&request, SEE)?;
        let SnapshotVersionsRequest { snapshot, table } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let (reader, session) = (self.reader(&call), call.session);
        let versions = reader.read(move || session.snapshots.versions(snapshot, &table));
        versions.await.map(|versions| tonic::Response::new(wire::from_versions(versions)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::{DataType, Options, Schema};

    use super::*;

    #[test]
    fn what_is_told_of_a_snapshot_counts_by_the_columns_that_it_shows() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let columns = |count: u32| {
            (0..count).fold(Schema::new(), |schema, at| schema.data(&format!("c{at}"), DataType::Utf8))
        };
        store.create_table("narrow", Schema::new()).unwrap();
        store.create_table("wide", columns(50)).unwrap();
        let weight = |names: &[&str]| weight(&store, &TakeSnapshot::default().tables(names.iter().copied()));
        let (narrow, wide) = (weight(&["narrow"]), weight(&["wide"]));
        assert!(wide >= narrow + 50 * ROWS_OF_COLUMN, "{narrow}, {wide}");
        assert_eq!(weight(&["narrow"; 1000]), narrow, "each is told of once");
        assert_eq!(super::weight(&store, &TakeSnapshot::default()), narrow + wide);
    }
}
