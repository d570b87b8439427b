//! What became of rows: calls that look and change nothing, for whoever may read, of the tables that their token is for.

use forebay_client::wire::proto::history_server::History as Protocol;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, from_error, malformed};
use forebay_client::{HistoryCalls, WhichRow};
use futures_util::{StreamExt, stream};
use tonic::{Request, Response};

use super::call::{READ, Reply, Service, blocking};
use super::streams::Answers;

/// Calls for who wants to know what became of rows.
#[derive(Clone)]
pub(super) struct HistoryService(pub(super) Service);

#[tonic::async_trait]
impl Protocol for HistoryService {
    type ReplayStream = Answers<TrainedBatch>;

    async fn show_row(&self, request: Request<ShowRowRequest>) -> Reply<ShowRowReply> {
        use show_row_request::Which;
        let call = self.0.enter(&request, READ)?;
        let ShowRowRequest { table, which } = request.into_inner();
        let show = || {
            call.caller.check_table(&table)?;
            let shown = match which.ok_or_else(|| malformed("a row without a name"))? {
                Which::Row(row) => self.0.store.show(&table, &WhichRow::Row(wire::to_row(&row)?))?,
                Which::Identity(Identity { policy_version, sample_id }) => {
                    self.0.store.show(&table, &WhichRow::Identity(policy_version, &sample_id.parse()?))?
                }
            };
            Ok(ShowRowReply { row: shown.map(wire::from_row_shown) })
        };
        // Looks at memory alone, so it may run here.
        show().map(Response::new).map_err(|error: forebay_client::Error| from_error(&error))
    }

    async fn replay(&self, request: Request<ReplayRequest>) -> Reply<Self::ReplayStream> {
        let call = self.0.enter(&request, READ)?;
        let (store, step) = (self.0.store.clone(), request.into_inner().step);
        let mut batches = blocking(move || HistoryCalls::replay(&store, step)).await?;
        batches.retain(|batch| call.caller.sees_table(&batch.table));
        self.0.answer(stream::iter(batches.into_iter().map(wire::from_trained).map(Ok)).boxed())
    }
}
