//! The actions of Flight SQL that a store which is only read can do.

use std::time::Instant;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, Command, ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo,
    IpcMessage, SchemaAsIpc,
};
use arrow_schema::{ArrowError, Schema};
use prost::Message;
use tonic::Status;

use super::service::Service;
use super::{status, ticket, wire};
use crate::access::Caller;
use crate::grpc::held_back::Occupied;
use crate::handle::Handle;

const CREATE: &str = "CreatePreparedStatement";
const CLOSE: &str = "ClosePreparedStatement";
const CANCEL: &str = "CancelFlightInfo";
const CANCEL_QUERY: &str = "CancelQuery";
const CLOSE_SESSION: &str = "CloseSession";

/// `CloseSessionResult { status: CLOSED }`: the library has no type for it.
const SESSION_CLOSED: [u8; 2] = [1 << 3, 1];
/// `ActionCancelQueryResult.CANCEL_RESULT_CANCELLED`.
const QUERY_CANCELLED: i32 = 1;

/// What can be done, with a word on each.
pub(crate) fn list() -> std::array::IntoIter<ActionType, 5> {
    let action = |(name, description): (&str, &str)| ActionType {
        r#type: name.to_owned(),
        description: description.to_owned(),
    };
    [
        (CREATE, "Reads a statement that is asked again and again, with other values each time"),
        (CLOSE, "Forgets a prepared statement"),
        (CANCEL, "Ends the running query of a FlightInfo"),
        (CANCEL_QUERY, "Ends the running query of a FlightInfo; the older form of CancelFlightInfo"),
        (CLOSE_SESSION, "Says goodbye; a session holds nothing"),
    ]
    .map(action)
    .into_iter()
}

/// Does it; the body of the answer, where it has one.
pub(crate) async fn act(
    service: &Service,
    caller: &Caller,
    action: Action,
    room: Occupied,
) -> Result<Option<Vec<u8>>, Status> {
    match action.r#type.as_str() {
        CREATE => create(service, caller, unpacked(&action.body)?, room).await.map(Some),
        CLOSE => {
            let request: ActionClosePreparedStatementRequest = unpacked(&action.body)?;
            service.statements.close(&Handle::new(&request.prepared_statement_handle, caller));
            Ok(None)
        }
        CANCEL => {
            let request = CancelFlightInfoRequest::decode(&*action.body).map_err(malformed)?;
            cancel(service, caller, request.info.unwrap_or_default())?;
            Ok(Some(CancelFlightInfoResult::new(CancelStatus::Cancelled).encode_to_vec()))
        }
        CANCEL_QUERY => {
            let request: ActionCancelQueryRequest = unpacked(&action.body)?;
            cancel(service, caller, FlightInfo::decode(request.info).map_err(malformed)?)?;
            Ok(Some(ActionCancelQueryResult { result: QUERY_CANCELLED }.as_any().encode_to_vec()))
        }
        CLOSE_SESSION => Ok(Some(SESSION_CLOSED.to_vec())),
        other => Err(Status::unimplemented(format!("this server has no action {other:?}"))),
    }
}

async fn create(
    service: &Service,
    caller: &Caller,
    request: ActionCreatePreparedStatementRequest,
    room: Occupied,
) -> Result<Vec<u8>, Status> {
    let prepared = service.prepare(caller, request.query, room).await.map_err(|error| status::of(&error))?;
    let dataset_schema = ipc(&wire::schema(prepared.schema())).map_err(status::internal)?;
    let parameter_schema = ipc(&wire::schema(prepared.parameters())).map_err(status::internal)?;
    let bytes = prepared.bytes();
    let handle = service.statements.keep(prepared, bytes, caller, Instant::now());
    let prepared_statement_handle = handle.bytes().to_vec().into();
    let result =
        ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema };
    Ok(result.as_any().encode_to_vec())
}

fn ipc(schema: &Schema) -> Result<bytes::Bytes, ArrowError> {
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &Default::default()).try_into()?;
    Ok(bytes)
}

/// Ends the query of that caller that the ticket of an info stands for.
fn cancel(service: &Service, caller: &Caller, info: FlightInfo) -> Result<(), Status> {
    let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.as_ref());
    let ticket = ticket.ok_or_else(|| Status::invalid_argument("the FlightInfo has no ticket"))?;
    let any = Any::decode(&*ticket.ticket).map_err(malformed)?;
    let end = |handle: &[u8]| service.queries.end(&Handle::new(handle, caller));
    let ended = match Command::try_from(any).map_err(malformed)? {
        Command::TicketStatementQuery(ticket) => end(ticket::read(&ticket)?.0),
        Command::CommandPreparedStatementQuery(query) => end(&query.prepared_statement_handle),
        _ => false,
    };
    match ended {
        true => Ok(()),
        false => Err(Status::not_found("the query does not run (any more)")),
    }
}

fn unpacked<T: ProstMessageExt>(body: &[u8]) -> Result<T, Status> {
    let any = Any::decode(body).map_err(malformed)?;
    let message = any.unpack().map_err(malformed)?;
    message.ok_or_else(|| Status::invalid_argument("the action's body is of another action"))
}

fn malformed(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("the action cannot be read: {error}"))
}
