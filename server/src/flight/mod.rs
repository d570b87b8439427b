//! Arrow Flight SQL: the store for ADBC and JDBC drivers, notebooks and BI.
//!
//! # Threads
//! One thread, `forebay-flight`, owns a runtime of `WORKERS` threads, apart from that of HTTP: a slow or greedy query here
//! takes nothing from health and metrics there.
//!
//! # What is kept for clients
//! Prepared statements, bounded in number and time, of all callers and of one (`statements`). A statement's ticket carries the statement itself, and a
//! session is nothing, so clients may come and go without a word. A query ends when its client is gone, cancels it, or has
//! read for longer than it may.

mod actions;
mod facts;
mod keys;
mod metadata;
mod put;
mod sent;
mod service;
mod statements;
mod status;
mod ticket;
mod wire;

use std::io;
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::runtime::Runtime;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

use crate::connections::Connections;
use crate::grpc::Tally;
use crate::grpc::room::MessageRoom;
use crate::queries::Answering;
use crate::readers::Readers;
use crate::server::Stopper;
use crate::tls::Tls;

const WORKERS: usize = 2;
/// The largest message that is taken from a client, in bytes: statements and their values.
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// How many of the largest messages of one caller are in memory at the same time, and half of how many of all. It is room of readers alone:
/// who may only look cannot keep out those who write.
const LONGEST_AT_ONCE: u64 = 16;
/// How much of a message may be here before there is room for it, in bytes, so that one that waits leaves its connection to others.
const AHEAD_BYTES_MAX: u32 = 32 << 10;
/// How many calls go on at the same time on one connection; a driver asks one thing after the other.
const CALLS_PER_CONNECTION_MAX: u32 = 128;
/// How often a silent client is asked whether it is there; one that is not lets go of its queries.
const ALIVE_EVERY: Duration = Duration::from_secs(20);
/// How long streams go on after the word to stop.
const GRACE: Duration = Duration::from_secs(5);

/// How what is sent has to come, and answers have to be taken.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// How long a client may take for a piece of either.
    pub(crate) piece_time_max: Duration,
    /// How long a message that is not short waits for room in memory.
    pub(crate) room_time_max: Duration,
    /// Counts answers that were let go of.
    pub(crate) tally: Tally,
}

/// Where clients come in.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) connections: Connections,
    /// What goes through it is encrypted with that.
    pub(crate) tls: Option<Tls>,
}

/// Serves until it is told to stop.
pub(crate) fn start(
    door: Door,
    answering: Answering,
    readers: Readers,
    pace: Pace,
    stopper: Stopper,
) -> io::Result<JoinHandle<()>> {
    let facts = facts::Facts::new().map_err(io::Error::other)?;
    let room = MessageRoom::of(REQUEST_BYTES_MAX as u64, LONGEST_AT_ONCE, pace.room_time_max);
    let service = service::Service::new(answering, readers.clone(), pace.clone(), facts);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("forebay-flight-worker")
        .enable_all()
        .build()?;
    let Door { listener, connections, tls } = door;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let server = Server::builder()
        .http2_keepalive_interval(Some(ALIVE_EVERY))
        .initial_stream_window_size(Some(AHEAD_BYTES_MAX))
        .initial_connection_window_size(Some(AHEAD_BYTES_MAX * (CALLS_PER_CONNECTION_MAX + 1)))
        .max_concurrent_streams(Some(CALLS_PER_CONNECTION_MAX));
    let server = match &tls {
        None => server,
        Some(tls) => server.tls_config(tls.of_tonic()).map_err(io::Error::other)?,
    };
    let service = FlightServiceServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
    let service = sent::Sent::new(service, room, pace);
    let serve = move || serve(runtime, server, listener, &connections, (service, readers), &stopper);
    std::thread::Builder::new().name("forebay-flight".to_owned()).spawn(serve)
}

fn serve(
    runtime: Runtime,
    mut server: Server,
    listener: tokio::net::TcpListener,
    connections: &Connections,
    (service, readers): (sent::Sent<FlightServiceServer<service::Service>>, Readers),
    stopper: &Stopper,
) {
    // Nothing that is sent is read before it is known whose it is: a call looks at the token when its whole message has come.
    let service = InterceptedService::new(service, move |request| service::shown(&readers, request));
    let serving =
        server.add_service(service).serve_with_incoming_shutdown(connections.of(listener), stopper.told());
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serving => ended,
            () = async { stopper.told().await; tokio::time::sleep(GRACE).await } => Ok(()),
        }
    });
    if let Err(error) = ended {
        tracing::error!(%error, "the Flight server ended");
    }
    runtime.shutdown_background(); // what still runs belongs to clients that were given time
}
