//! Which rows are there and what became of them: calls that look and change nothing, for whoever may read, of the tables that their token
//! is for.

use forebay_client::wire::proto::history_server::History as Protocol;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, FOUND_ROWS_MAX, SHOWN_ROWS_MAX, from_error, malformed};
use forebay_client::{Error, HistoryCalls};
use forebay_store::{Kind, Row, Store};
use futures_util::{StreamExt, stream};
use prost::Message;
use tonic::{Request, Response};

use super::call::{READ, Reply, Service};
use super::streams::Answers;

/// So many are looked at by the thread that has read who asks: each takes the state's lock and looks through a step's micro-batches.
const QUICK_ROWS_MAX: usize = 16;
/// How many bytes are told of all of them at most, if it is more than one: what is told of one may be long.
const SHOWN_BYTES: usize = 1 << 20;

/// The first of the rows that are named, as many as are shown at once.
fn first_shown(store: &Store, table: &str, names: &[u8]) -> forebay_client::Result<Vec<RowShown>> {
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for row in wire::rows_in(names).take(SHOWN_ROWS_MAX) {
        for row in HistoryCalls::show(store, table, &[row?])?.into_iter().map(wire::from_row_shown) {
            bytes += row.encoded_len();
            if bytes > SHOWN_BYTES && !shown.is_empty() {
                return Ok(shown);
            }
            shown.push(row);
        }
    }
    Ok(shown)
}

/// The live attempt of each row, where there is one.
fn found(store: &Store, table: &str, identities: &[Identity]) -> Result<FindReply, Error> {
    let count = identities.len();
    if count > FOUND_ROWS_MAX {
        let message = format!(
            "one call finds {FOUND_ROWS_MAX} rows, and {count} are asked for; ask for them in several"
        );
        return Err(Error::new(Kind::Input, "TooMany", message));
    }
    let table = store.table(table)?;
    let find = |Identity { policy_version, sample_id }: &Identity| -> Result<Option<Row>, Error> {
        Ok(table.find(*policy_version, &sample_id.parse()?))
    };
    identities.iter().map(find).collect::<Result<_, _>>().map(wire::from_found)
}

impl Service {
    pub(super) async fn rows_found(&self, request: Request<FindRequest>) -> Reply<FindReply> {
        let call = self.enter(&request, READ)?;
        let FindRequest { table, identities } = request.into_inner();
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let (store, is_quick) = (self.store.clone(), identities.len() <= QUICK_ROWS_MAX);
        let find = call.holding(move || found(&store, &table, &identities));
        let found = match is_quick {
            true => find().map_err(|error| from_error(&error)),
            false => self.reader(&call).read(find).await,
        };
        found.map(Response::new)
    }
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
        call.caller.check_table(&table).map_err(|error| from_error(&error))?;
        let is_quick =
            !matches!(&which, Some(Which::Rows(names)) if wire::rows_in(names).len() > QUICK_ROWS_MAX);
        let store = self.0.store.clone();
        let show = call.holding(move || {
            let rows = match which.ok_or_else(|| malformed("a row without a name"))? {
                Which::Rows(names) => first_shown(&store, &table, &names)?,
                Which::Identity(Identity { policy_version, sample_id }) => {
                    let found = HistoryCalls::get(&store, &table, policy_version, &sample_id.parse()?)?;
                    found.map(wire::from_row_shown).into_iter().collect()
                }
            };
            Ok(ShowRowsReply { rows })
        });
        let shown = match is_quick {
            true => show().map_err(|error| from_error(&error)),
            false => self.0.reader(&call).read(show).await,
        };
        shown.map(Response::new)
    }

    async fn replay(&self, request: Request<ReplayRequest>) -> Reply<Self::ReplayStream> {
        let call = self.0.enter(&request, READ)?;
        let (store, step) = (self.0.store.clone(), request.into_inner().step);
        let mut batches = self.0.reader(&call).read(move || HistoryCalls::replay(&store, step)).await?;
        batches.retain(|batch| call.caller.sees_table(&batch.table));
        self.0.answer(stream::iter(batches.into_iter().map(wire::from_trained).map(Ok)).boxed())
    }
}
