//! Snapshots of a session: one instant of the tables that its caller may see, read batch by batch.

use std::time::Duration;

use forebay_client::wire::proto::{
    ArrowPiece, HoldSnapshotReply, HoldSnapshotRequest, ReadSnapshotRequest, SnapshotVersionsReply,
    SnapshotVersionsRequest, TakeSnapshotReply, TakeSnapshotRequest,
};
use forebay_client::wire::{self, from_error};
use forebay_client::{Error, SnapshotCalls, TakeSnapshot};

use super::call::{Call, Reply, Service, blocking};
use super::sending::Sending;
use super::sessions::check_owner;
use super::streams::{self, Answers, check_columns};
use crate::access::{Caller, Scope};

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

impl Service {
    pub(super) async fn snapshot_taken(
        &self,
        request: tonic::Request<TakeSnapshotRequest>,
    ) -> Reply<TakeSnapshotReply> {
        let call = self.enter(&request, SEE)?;
        let take = narrowed(wire::to_take(request.into_inner()), &call.caller, self.store.tables());
        let take = take.map_err(|error| from_error(&error))?;
        let session = call.session.clone();
        self.once(call, move |_| Ok(wire::from_taken(session.snapshots.take(&take)?))).await
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
    ) -> Reply<Answers<ArrowPiece>> {
        let call = self.enter(&request, SEE)?;
        let (snapshot, table, rows, from) = wire::to_read(request.into_inner());
        check_columns(rows.columns.as_deref().unwrap_or_default())
            .and_then(|()| call.caller.check_table(&table))
            .map_err(|error| from_error(&error))?;
        let Call { session, .. } = call;
        let room = self.answers.clone();
        let batch = blocking(move || {
            let batch = session.snapshots.read(snapshot, &table, &rows, from)?;
            batch.map(|batch| Sending::with_room(batch, &room)).transpose()
        });
        let pieces = batch.await?.map(Sending::pieces);
        self.answer(pieces.unwrap_or_else(|| streams::pieces(Vec::new())))
    }

    pub(super) async fn snapshot_versions_of(
        &self,
        request: tonic::Request<SnapshotVersionsRequest>,
    ) -> Reply<SnapshotVersionsReply> {
        let call = self.enter(&request, SEE)?;
        let SnapshotVersionsRequest { snapshot, table } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let Call { session, .. } = call;
        let versions = blocking(move || session.snapshots.versions(snapshot, &table));
        versions.await.map(|versions| tonic::Response::new(wire::from_versions(versions)))
    }
}
