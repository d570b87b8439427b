//! What became of rows: calls that look and change nothing, for whoever may read, of the tables that their token is for.

use forebay_client::HistoryCalls;
use forebay_client::wire::proto::history_server::History as Protocol;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, from_error, malformed};
use forebay_store::Store;
use futures_util::{StreamExt, stream};
use prost::Message;
use tonic::{Request, Response};

use super::call::{READ, Reply, Service, blocking};
use super::streams::Answers;

/// How many rows are shown at once at most.
const SHOWN_ROWS_MAX: usize = 256;
/// From here on no further row is shown: what is told of one may be long.
const SHOWN_BYTES: usize = 1 << 20;

/// The first of the rows that are named, as many as are shown at once.
fn first_shown(store: &Store, table: &str, names: &[u8]) -> forebay_client::Result<Vec<RowShown>> {
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for row in wire::rows_in(names).take(SHOWN_ROWS_MAX) {
        let row = HistoryCalls::show(store, table, &[row?])?;
        shown.extend(row.into_iter().map(wire::from_row_shown).inspect(|row| bytes += row.encoded_len()));
        if bytes >= SHOWN_BYTES {
            break;
        }
    }
    Ok(shown)
}

/// Calls for who wants to know what became of rows.
#[derive(Clone)]
pub(super) struct HistoryService(pub(super) Service);

#[tonic::async_trait]
impl Protocol for HistoryService {
    type ReplayStream = Answers<TrainedBatch>;

    async fn show_rows(&self, request: Request<ShowRowsRequest>) -> Reply<ShowRowsReply> {
        use show_rows_request::Which;
        let call = self.0.enter(&request, READ)?;
        let ShowRowsRequest { table, which } = request.into_inner();
        let show = || {
            call.caller.check_table(&table)?;
            let rows = match which.ok_or_else(|| malformed("a row without a name"))? {
                Which::Rows(names) => first_shown(&self.0.store, &table, &names)?,
                Which::Identity(Identity { policy_version, sample_id }) => {
                    let found =
                        HistoryCalls::get(&self.0.store, &table, policy_version, &sample_id.parse()?)?;
                    found.map(wire::from_row_shown).into_iter().collect()
                }
            };
            Ok(ShowRowsReply { rows })
        };
        // Looks at memory alone and at few rows, so it may run here.
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
