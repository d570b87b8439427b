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
use super::streams::{Answers, room_for};
use crate::access::Caller;
use crate::gathered::Gathered;

/// So many are looked at by the thread that has read who asks: each takes the state's lock and looks through a step's micro-batches.
const QUICK_ROWS_MAX: usize = 16;
/// How many bytes are told of all of them at most, if it is more than one: what is told of one may be long.
const SHOWN_BYTES: usize = 1 << 20;
/// What a row takes in memory beside its bytes on the wire: that there are two lists, with a place in each.
const ROW_BYTES: usize = 96;

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

/// The micro-batches of a step, of the tables that a caller may see, if there is room for them. How many rows a step has is known when they
/// are there.
fn replayed(
    store: &Store,
    step: u64,
    caller: &Caller,
    room: &Gathered,
) -> Result<Answers<TrainedBatch>, Error> {
    let mut batches = HistoryCalls::replay(store, step)?;
    batches.retain(|batch| caller.sees_table(&batch.table));
    let batches: Vec<TrainedBatch> = batches.into_iter().map(wire::from_trained).collect();
    let bytes_of = |batch: &TrainedBatch| batch.encoded_len() + batch.rows.len() * ROW_BYTES;
    let taken = room_for(batches.iter().map(bytes_of).sum::<usize>() as u64, room)?;
    let told = stream::iter(batches).map(move |batch| {
        let _until_the_last_is_gone = &taken;
        Ok(batch)
    });
    Ok(told.boxed())
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
        let (reader, caller) = (self.0.reader(&call), call.caller);
        let room = reader.answers.clone();
        self.0.answer(reader.read(move || replayed(&store, step, &caller, &room)).await?)
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::{Consumer, DataType, MicroBatch, Options, Schema, StepPlan, Wait};
    use futures_util::FutureExt;

    use super::*;
    use crate::access::{Access, Grant};
    use crate::token::Token;

    /// A store, and the number of its step that trained on one row of `solver`.
    fn trained() -> (tempfile::TempDir, Store, u64) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
        let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
        solver.insert(0, "q1_0_0", [("reward", 1.0.into())]).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        let number = step.number();
        step.commit([("solver", vec![])]).unwrap();
        (dir, store, number)
    }

    #[tokio::test]
    async fn what_is_told_of_a_step_has_room_until_it_was_taken_and_is_refused_without() {
        let ((_dir, store, step), room) = (trained(), Gathered::new(1)); // one answer at a time
        let replay = || replayed(&store, step, &Caller::trusted(), &room);
        let other = room.take(1).unwrap();
        assert_eq!(replay().err().map(|error| error.cause().to_owned()).as_deref(), Some("Answers"));
        drop(other);
        let mut told = replay().unwrap();
        assert!(room.take(1).is_none(), "it is in memory");
        assert_eq!(told.next().now_or_never().flatten().unwrap().unwrap().sample_ids, ["q1_0_0"]);
        assert!(told.next().now_or_never().flatten().is_none());
        drop(told);
        assert!(room.take(1).is_some());
    }

    #[test]
    fn a_step_is_told_of_the_tables_that_a_token_is_for() {
        let (_dir, store, step) = trained();
        for (table, count) in [("solver", 1), ("checker", 0)] {
            let mut access = Access::default();
            access.add(Grant::new("some", Token::new("s").unwrap()).tables([table]));
            let caller = access.caller("Bearer s").unwrap();
            let told = replayed(&store, step, &caller, &Gathered::new(1 << 20)).unwrap();
            assert_eq!(told.collect::<Vec<_>>().now_or_never().unwrap().len(), count, "{table}");
        }
    }
}
