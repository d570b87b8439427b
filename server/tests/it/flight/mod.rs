//! Arrow Flight SQL, by the library's own client.

mod drivers;
mod ended;
mod hostile;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, Float64Array, RecordBatch, StringArray};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, Any, CommandGetCrossReference, CommandGetDbSchemas,
    CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandStatementIngest,
    CommandStatementQuery, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, FlightData, FlightDescriptor, FlightInfo, Ticket,
};
use arrow_schema::{DataType, Field, Schema};
use forebay_server::{Builder, Server, Token};
use forebay_store::{DataType as StoreType, Element};
use futures_util::{StreamExt, TryStreamExt};
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::client::{Served, loopback, samples_at, send};

pub(crate) type Client = FlightSqlServiceClient<Channel>;

/// Serves, and asks with a client that is connected.
fn with<F: Future>(builder: Builder, ask: impl FnOnce(Arc<Served>, Client) -> F) -> F::Output {
    with_served(Served::new(builder.flight(loopback())), ask)
}

/// Asks what is served already, Flight SQL too.
pub(crate) fn with_served<F: Future>(
    served: Served,
    ask: impl FnOnce(Arc<Served>, Client) -> F,
) -> F::Output {
    let served = Arc::new(served);
    // A thread for the connection: it goes on while the test waits for something else.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::new(channel(&served).await);
        ask(served, client).await
    })
}

pub(crate) async fn channel(served: &Served) -> Channel {
    let address = served.server.flight_address().unwrap();
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// All rows of an info as one batch, in the schema that the info promised.
pub(crate) async fn rows(client: &mut Client, info: FlightInfo) -> Result<RecordBatch, Status> {
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let promised = Arc::new(info.try_decode_schema().unwrap());
    let stream = client.do_get(ticket).await.map_err(status)?;
    let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(Status::from)?;
    Ok(arrow::compute::concat_batches(&promised, &batches).unwrap())
}

pub(crate) async fn ask(client: &mut Client, sql: &str) -> Result<RecordBatch, Status> {
    let info = client.execute(sql.to_owned(), None).await.map_err(status)?;
    rows(client, info).await
}

/// The status that the client's error carries.
fn status(error: impl Into<arrow_flight::error::FlightError>) -> Status {
    match error.into() {
        arrow_flight::error::FlightError::Tonic(status) => *status,
        other => panic!("{other}"),
    }
}

pub(crate) fn texts(batch: &RecordBatch, column: usize) -> Vec<String> {
    batch.column(column).as_string::<i32>().iter().map(|text| text.unwrap_or("NULL").to_owned()).collect()
}

/// The handle of a statement that was prepared by hand.
pub(crate) async fn prepared_handle(client: &mut Client, sql: &str) -> Vec<u8> {
    use arrow_flight::sql::{ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult};
    let request = ActionCreatePreparedStatementRequest { query: sql.to_owned(), transaction_id: None };
    let body = request.as_any().encode_to_vec().into();
    let action = Action { r#type: "CreatePreparedStatement".to_owned(), body };
    let mut answer = client.do_action(Request::new(action)).await.unwrap();
    let answer = answer.message().await.unwrap().unwrap();
    let result = Any::decode(&*answer.body).unwrap().unpack::<ActionCreatePreparedStatementResult>();
    result.unwrap().unwrap().prepared_statement_handle.to_vec()
}
