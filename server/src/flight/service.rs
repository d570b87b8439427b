//! The calls of Flight, each turned into what it asks for.
//!
//! Every call but the handshake shows the token first. Commands come as opaque bytes of a client, so each is decoded here
//! and nowhere else; what is no command of ours is answered with a status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{
    Any, Command, CommandPreparedStatementQuery, DoPutPreparedStatementResult, ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_schema::SchemaRef;
use forebay_query::{Error, Prepared, QueryThreads, RowStream, Session};
use futures_util::{StreamExt, stream};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::facts::Facts;
use super::statements::Statements;
use super::{Pace, actions, metadata, put, status, ticket, wire};
use crate::access::Caller;
use crate::connections::Known;
use crate::grpc::held_back::Occupied;
use crate::grpc::pace::{Clock, taken_at_a_pace};
use crate::grpc::room::Shares;
use crate::handle::Handle;
use crate::queries::{Answering, Queries};
use crate::readers::Readers;

/// How many streams of rows run at the same time, and how many of them of one caller; others wait for their turn.
const STREAMS_AT_ONCE: u32 = 16;
const STREAMS_OF_CALLER: u32 = 12;
/// How many statements are given values at the same time, and how many of them by one caller: what has come of these is in memory.
const PUTS_AT_ONCE: u32 = 32;
const PUTS_OF_CALLER: u32 = 16;
/// How long one waits for its turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// What all calls share.
pub(crate) struct Service {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    pub(crate) queries: Queries,
    readers: Readers,
    facts: Facts,
    turns: Shares,
    puts: Shares,
    pace: Pace,
    threads: Arc<QueryThreads>,
}

type Stream<T> = stream::BoxStream<'static, Result<T, Status>>;

impl Service {
    pub(crate) fn new(answering: Answering, readers: Readers, pace: Pace, facts: Facts) -> Self {
        let Answering { session, threads, queries } = answering;
        let turns = Shares::of_all(STREAMS_OF_CALLER, STREAMS_AT_ONCE, TURN_WAIT_MAX);
        let puts = Shares::of_all(PUTS_OF_CALLER, PUTS_AT_ONCE, TURN_WAIT_MAX);
        Service {
            session,
            statements: Statements::new(),
            queries,
            readers,
            facts,
            turns,
            puts,
            pace,
            threads,
        }
    }

    /// Who asks; refused where they may not read.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let caller = self.readers.caller(authorization(request.metadata()));
        let caller = caller.map_err(|error| status::of_reader(&error))?;
        let_in(request);
        Ok(caller)
    }

    /// The header by which a client shows that it knows the password.
    fn admit(&self, metadata: &MetadataMap) -> Result<String, Status> {
        let header = authorization(metadata);
        self.readers.admit(header).map_err(|error| refused(header, &error))
    }

    /// The columns of what a command asks for, and the command that asks for the rows.
    async fn describe(
        &self,
        caller: &Caller,
        command: Command,
        room: Occupied,
    ) -> Result<(SchemaRef, Any), Status> {
        match command {
            Command::CommandStatementQuery(query) => {
                let rows =
                    self.asked(caller, &query.query, room).await.map_err(|error| status::of(&error))?;
                Ok((wire::schema(rows.schema()), ticket::new(&query.query).as_any()))
            }
            Command::CommandPreparedStatementQuery(query) => {
                let (prepared, values) = self.prepared(&of(caller, &query))?;
                let schema = match &values {
                    None => prepared.schema().clone(),
                    // Its types may depend on the values.
                    Some(_) => {
                        let rows = self.asked_again(prepared, values).await;
                        let rows = rows.map_err(|error| status::of(&error))?;
                        rows.schema().clone()
                    }
                };
                Ok((wire::schema(&schema), query.as_any()))
            }
            command => {
                let ticket = command.clone().into_any();
                let name = command.type_url().to_owned();
                let session = caller.session(&self.session);
                match metadata::answer(&session, &self.facts, command).await? {
                    Some(batch) => Ok((batch.schema(), ticket)),
                    None => Err(Status::unimplemented(format!("this server has no {name}"))),
                }
            }
        }
    }

    fn prepared(&self, handle: &Handle) -> Result<(Prepared, Option<RecordBatch>), Status> {
        let found = self.statements.get(handle, Instant::now());
        found.ok_or_else(|| {
            Status::not_found("the prepared statement is not there (any more); prepare it again")
        })
    }

    /// The rows of a statement, planned where queries compute. That goes on for a while when the call is over, and keeps the room.
    async fn asked(&self, caller: &Caller, sql: &str, room: Occupied) -> Result<RowStream, Error> {
        let (session, sql) = (caller.session(&self.session), sql.to_owned());
        let stream = async move {
            let rows = session.stream(&sql).await;
            drop((sql, room)); // both were in here
            rows
        };
        self.threads.run(stream).await
    }

    /// The same of one that was prepared.
    async fn asked_again(&self, prepared: Prepared, values: Option<RecordBatch>) -> Result<RowStream, Error> {
        self.threads.run(async move { prepared.stream(values.as_ref()).await }).await
    }

    /// A statement that is to be asked often. Its message's room is kept as by [`Service::asked`].
    pub(crate) async fn prepare(
        &self,
        caller: &Caller,
        sql: String,
        room: Occupied,
    ) -> Result<Prepared, Error> {
        let session = caller.session(&self.session);
        let prepare = async move {
            let prepared = session.prepare(&sql).await;
            drop((sql, room)); // both were in here
            prepared
        };
        self.threads.run(prepare).await
    }

    /// Runs a query when it is its turn.
    async fn run(
        &self,
        handle: Handle,
        start: impl Future<Output = Result<RowStream, Error>>,
    ) -> Result<wire::Messages, Status> {
        let caller = handle.owner().name.clone();
        let query = Arc::new(self.queries.begin("flight", Some(handle)));
        let Some(turn) = self.turns.turn(&caller).await else {
            query.failed("capacity");
            let busy = format!(
                "{STREAMS_AT_ONCE} queries run already, or {STREAMS_OF_CALLER} of {caller:?}, and none ended in {TURN_WAIT_MAX:?}; try later"
            );
            return Err(Status::resource_exhausted(busy));
        };
        match start.await {
            Ok(rows) => {
                let rows = rows.driven_by(&self.threads, (turn, query.clone()));
                Ok(self.taken(wire::rows(rows, query)))
            }
            Err(error) => {
                query.failed(error.kind().as_str());
                Err(status::of(&error))
            }
        }
    }
}

impl Service {
    /// An answer, which its reader has to take at a pace.
    fn taken<T: Send + 'static>(&self, messages: Stream<T>) -> Stream<T> {
        let Pace { piece_time_max, tally, .. } = self.pace.clone();
        taken_at_a_pace(messages, piece_time_max, tally)
    }

    /// Gives a prepared statement the values that come behind the first message, once there is a turn for it.
    async fn put(
        &self,
        handle: &Handle,
        first: FlightData,
        rest: Streaming<FlightData>,
        clock: Option<Clock>,
    ) -> Result<(), Status> {
        self.prepared(handle)?;
        let caller = &handle.owner().name;
        let _turn = self.puts.turn(caller).await.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{PUTS_AT_ONCE} statements are given values already, or {PUTS_OF_CALLER} by {caller:?}, and none had all of them in \
                 {TURN_WAIT_MAX:?}; try later"
            ))
        })?;
        clock.into_iter().for_each(|clock| clock.restart()); // nothing was read meanwhile
        let values = put::values(first, rest).await?;
        self.statements.bind(handle, values, Instant::now());
        Ok(())
    }
}

/// The connection of that request may stay.
fn let_in<T>(request: &Request<T>) {
    Known::of_tcp(request.extensions()).iter().for_each(Known::let_in);
}

/// The room of the message that the request is of.
fn room_of<T>(request: &Request<T>) -> Occupied {
    request.extensions().get::<Occupied>().cloned().unwrap_or_default()
}

/// The handle of a prepared statement, as that caller gives it.
fn of(caller: &Caller, query: &CommandPreparedStatementQuery) -> Handle {
    Handle::new(&query.prepared_statement_handle, caller)
}

/// Refuses a call that shows no token, as bearer or as a password, before its message is read, and says of others to what follows who asks.
pub(super) fn shown(readers: &Readers, mut request: Request<()>) -> Result<Request<()>, Status> {
    let header = authorization(request.metadata());
    let caller = readers.admit(header).and_then(|bearer| readers.caller(&bearer));
    let caller = caller.map_err(|error| refused(header, &error))?;
    request.extensions_mut().insert(Arc::new(caller));
    Ok(request)
}

/// What who shows that header is told, which is no token of one who may read, or none.
fn refused(header: &str, error: &forebay_client::Error) -> Status {
    let is_password = header.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic "));
    if is_password && error.cause() != "Forbidden" {
        return Status::unauthenticated(
            "the password is no token that the server knows; any user name will do",
        );
    }
    status::of_reader(error)
}

fn authorization(metadata: &MetadataMap) -> &str {
    metadata.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn command(bytes: &[u8]) -> Result<Command, Status> {
    let unknown = |error: &dyn std::fmt::Display| Status::invalid_argument(format!("not a command: {error}"));
    let any = Any::decode(bytes).map_err(|error| unknown(&error))?;
    Command::try_from(any).map_err(|error| unknown(&error))
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Stream<HandshakeResponse>;
    type ListFlightsStream = Stream<FlightInfo>;
    type DoGetStream = wire::Messages;
    type DoPutStream = Stream<PutResult>;
    type DoActionStream = Stream<arrow_flight::Result>;
    type ListActionsStream = Stream<ActionType>;
    type DoExchangeStream = Stream<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let header = self.admit(request.metadata())?;
        let_in(&request);
        let answer = HandshakeResponse { protocol_version: 0, payload: Vec::new().into() };
        let mut response = Response::new(stream::iter([Ok(answer)]).boxed());
        response.metadata_mut().insert("authorization", header.parse().map_err(status::internal)?);
        Ok(response)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let (caller, room) = (self.caller(&request)?, room_of(&request));
        let asked = request.into_inner().cmd;
        let (schema, ticket) = self.describe(&caller, command(&asked)?, room).await?;
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.encode_to_vec()));
        let info = FlightInfo::new().try_with_schema(&schema).map_err(status::internal)?;
        Ok(Response::new(info.with_descriptor(FlightDescriptor::new_cmd(asked)).with_endpoint(endpoint)))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let (caller, room) = (self.caller(&request)?, room_of(&request));
        let (schema, _) = self.describe(&caller, command(&request.get_ref().cmd)?, room).await?;
        let schema = SchemaAsIpc::new(&schema, &Default::default()).try_into().map_err(status::internal)?;
        Ok(Response::new(schema))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let caller = self.caller(&request)?;
        let messages = match command(&request.get_ref().ticket)? {
            Command::TicketStatementQuery(ticket) => {
                let (number, sql) = ticket::read(&ticket)?;
                self.run(Handle::new(number, &caller), self.asked(&caller, sql, room_of(&request))).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                let handle = of(&caller, &query);
                let (prepared, values) = self.prepared(&handle)?;
                self.run(handle, self.asked_again(prepared, values)).await?
            }
            command => {
                let name = command.type_url().to_owned();
                let session = caller.session(&self.session);
                let answer = metadata::answer(&session, &self.facts, command).await?;
                let unknown = || Status::unimplemented(format!("this server has no {name}"));
                self.taken(wire::batch(answer.ok_or_else(unknown)?))
            }
        };
        Ok(Response::new(messages))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let (caller, clock) = (self.caller(&request)?, request.extensions().get::<Clock>().cloned());
        let room = room_of(&request);
        let mut messages = request.into_inner();
        let mut first = messages.message().await?.unwrap_or_default();
        let Some(descriptor) = first.flight_descriptor.take() else {
            return Err(Status::invalid_argument("the first message says what the rows are for; it did not"));
        };
        let asked = command(&descriptor.cmd)?;
        drop(descriptor); // the room of its message is given to the next
        let answer = match asked {
            Command::CommandPreparedStatementQuery(query) => {
                self.put(&of(&caller, &query), first, messages, clock).await?;
                let prepared_statement_handle = Some(query.prepared_statement_handle);
                DoPutPreparedStatementResult { prepared_statement_handle }
            }
            Command::CommandStatementUpdate(update) => {
                let refused = self.prepare(&caller, update.query, room).await.err();
                return Err(refused.map_or_else(put::no_update, |error| status::of(&error)));
            }
            Command::CommandPreparedStatementUpdate(_) => return Err(put::no_update()),
            Command::CommandStatementIngest(_) => return Err(put::no_ingest()),
            command => {
                return Err(Status::unimplemented(format!("this server has no {}", command.type_url())));
            }
        };
        let answer = PutResult { app_metadata: answer.encode_to_vec().into() };
        Ok(Response::new(stream::iter([Ok(answer)]).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let (caller, room) = (self.caller(&request)?, room_of(&request));
        let answer = actions::act(self, &caller, request.into_inner(), room).await?;
        let answer = answer.map(|body| Ok(arrow_flight::Result { body: body.into() }));
        Ok(Response::new(self.taken(stream::iter(answer).boxed())))
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.caller(&request)?;
        Ok(Response::new(stream::iter(actions::list().map(Ok)).boxed()))
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        self.caller(&request)?;
        Err(Status::unimplemented("nothing is listed; ask for tables with CommandGetTables"))
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        self.caller(&request)?;
        Err(Status::unimplemented("queries are not polled; ask with GetFlightInfo"))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.caller(&request)?;
        Err(Status::unimplemented("nothing is exchanged; ask with DoGet"))
    }
}
