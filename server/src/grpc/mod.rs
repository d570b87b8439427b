//! The store over gRPC: everything that a process can do that has it open, for processes that have not.
//!
//! The protocol is `client/proto/forebay/v1/store.proto`; what it says is turned into plain data by `forebay_client::wire`,
//! and what is done is done by the [`Holder`](forebay_client::Holder) of a client's session, as it is for an embedded client.
//!
//! # Threads
//! One thread, `forebay-grpc`, owns a runtime of [`WORKERS`] threads, apart from those of HTTP and Flight. Whoever waits for rows
//! costs no thread, and queries compute on those of the whole server (`server`). What may wait for a disk or for room runs on threads for that ([`BLOCKING_MAX`] at most), of which
//! writers may take a third (`turns`), so that writers who wait for room never keep out the claims that make it, readers a third (`reading`), and
//! objects that are looked for a part. What is left is for all else: ends of claims, steps, ends of sessions. These wait for no reader.
//!
//! # What is kept for clients
//! A session each (`sessions`): claims, steps, and the answers to its latest calls (`replies`), those of changes apart from all
//! others. All are bounded, and end with the session.

mod admin;
mod bulk;
mod call;
mod changing;
mod flow;
mod granting;
pub(crate) mod held_back;
mod history;
mod listing;
mod loans;
mod objects;
mod observed;
mod once;
pub(crate) mod pace;
mod packed;
mod put;
mod quick;
mod reading;
mod replies;
pub(crate) mod room;
mod sending;
mod service;
mod sessions;
mod slab_door;
mod slabs;
mod snapshots;
pub(crate) mod streams;
mod subscriptions;
pub(crate) mod taken;
mod tally;
mod turns;
mod uncopied;
mod waits;
mod work;

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::wire::proto::admin_server::AdminServer;
use forebay_client::wire::proto::flow_server::FlowServer;
use forebay_client::wire::proto::history_server::HistoryServer;
use forebay_client::wire::proto::objects_server::ObjectsServer;
use forebay_client::wire::proto::store_server::StoreServer;
use forebay_client::wire::{FLOW_BYTES_MAX, FRAMED_PIECE_BYTES, MESSAGE_BYTES_MAX};
use forebay_store::Store;
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::access::Access;
use crate::connections::{ConnectionLimits, Connections};
use crate::copies::Copies;
use crate::queries::Answering;
use crate::server::Stopper;
use crate::tls::Tls;
use admin::AdminService;
use bulk::BulkService;
use flow::FlowService;
use history::HistoryService;
use objects::ObjectService;
use observed::Observed;
pub(crate) use tally::{BOUNDS_US, Counts, Tally};
use uncopied::Uncopied;

const WORKERS: usize = 2;
/// The most threads for what may wait: whoever has a part of them leaves a twelfth to all else, which are short calls, or few.
const BLOCKING_MAX: usize = 96;
/// How much a stream may carry before it is read.
const WINDOW_BYTES: u32 = 4 << 20;
/// How much of it comes at once.
const FRAME_BYTES: u32 = FRAMED_PIECE_BYTES as u32;
/// How long calls go on after the word to stop.
const GRACE: Duration = Duration::from_secs(5);

/// How gRPC is served: plain data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) copies: Copies,
}

/// What clients may take, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// How long a session whose client is gone is kept.
    pub(crate) grace: Duration,
    /// How often a silent client is asked whether it is there, and how long it has to answer.
    pub(crate) alive_time_max: Duration,
    pub(crate) connections: ConnectionLimits,
    pub(crate) sessions_max: usize,
    pub(crate) calls_per_connection_max: u32,
    pub(crate) message_bytes_max: usize,
    /// What a write in frames may bring.
    pub(crate) bulk_bytes_max: u64,
    /// How long such a write, or a message, waits for room, and a read or a query for its turn.
    pub(crate) room_time_max: Duration,
    /// How long a piece of a message may take to come, and a piece of an answer to be taken.
    pub(crate) piece_time_max: Duration,
    /// Of all clients together.
    pub(crate) slab_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            grace: Duration::from_secs(10),
            alive_time_max: Duration::from_secs(20),
            connections: ConnectionLimits {
                most: 20_000,
                most_of_host: None,
                first_call_time_max: Duration::from_secs(10),
                idle_time_max: None, // clients are asked whether they are there
            },
            sessions_max: 20_000,
            calls_per_connection_max: 1024,
            message_bytes_max: MESSAGE_BYTES_MAX,
            bulk_bytes_max: 4 * MESSAGE_BYTES_MAX as u64,
            room_time_max: Duration::from_secs(5),
            piece_time_max: Duration::from_secs(30),
            slab_bytes_max: 1 << 30,
        }
    }
}

/// A socket in the file system, with its path, which is removed at the end.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
}

/// One for calls, and one for slabs where that could be made.
#[derive(Debug)]
pub(crate) struct UnixSockets {
    pub(crate) calls: UnixSocket,
    pub(crate) slabs: Option<UnixSocket>,
}

/// Where gRPC is served.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) unix: Option<UnixSockets>,
    /// What goes over TCP is encrypted with that.
    pub(crate) tls: Option<Tls>,
    pub(crate) connections: Connections,
}

/// Serves until it is told to stop.
pub(crate) fn start(
    listeners: Listeners,
    mut settings: Settings,
    store: Store,
    answering: Answering,
    tally: &Tally,
    stopper: Stopper,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_MAX)
        .thread_name("forebay-grpc-worker")
        .enable_all()
        .build()?;
    let (connections, tls) = (listeners.connections, listeners.tls);
    if listeners.unix.as_ref().is_none_or(|sockets| sockets.slabs.is_none()) {
        settings.limits.slab_bytes_max = 0; // there is no way to hand them out
    }
    let access = Arc::new(std::mem::take(&mut settings.access));
    let Answering { session: queryable, threads, queries } = answering;
    let service =
        call::Service::new(settings, store, queryable, threads, queries, tally.clone(), stopper.clone());
    let mut serving = Vec::new();
    {
        let _inside = runtime.enter();
        runtime.spawn(sessions::sweep(service.sessions.clone()));
        if let Some(UnixSockets { calls, slabs }) = listeners.unix {
            let door = slabs.map(|slabs| slab_door::open(slabs, service.sessions.clone())).transpose()?;
            let incoming = connections.of(tokio::net::UnixListener::from_std(calls.listener)?);
            let served = router(None, service.clone(), access.clone())?
                .serve_with_incoming_shutdown(incoming, stopper.told());
            serving.push(tokio::spawn(async move {
                let ended = served.await;
                drop(door);
                let _ = std::fs::remove_file(calls.path); // a socket that nobody listens on
                ended
            }));
        }
        if let Some(listener) = listeners.tcp {
            let incoming = connections.of(tokio::net::TcpListener::from_std(listener)?);
            let router = router(tls.as_ref(), service.clone(), access)?;
            serving.push(tokio::spawn(router.serve_with_incoming_shutdown(incoming, stopper.told())));
        }
    }
    let serve = move || serve(runtime, serving, &service, &stopper);
    std::thread::Builder::new().name("forebay-grpc".to_owned()).spawn(serve)
}

fn router(tls: Option<&Tls>, service: call::Service, access: Arc<Access>) -> io::Result<Router> {
    let (limits, shared) = (service.limits.clone(), service.clone());
    let objects = ObjectsServer::new(ObjectService(service.clone()))
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(limits.message_bytes_max)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = AdminServer::new(AdminService(service.clone()))
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(limits.message_bytes_max)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let admin = Observed::new(admin, &access, &shared);
    let history = HistoryServer::new(HistoryService(service.clone()))
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(limits.message_bytes_max)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let history = Observed::new(history, &access, &shared);
    let flow = FlowServer::new(FlowService(service.clone()))
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(limits.message_bytes_max.min(FLOW_BYTES_MAX)) // packed or not
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let flow = Observed::new(flow, &access, &shared);
    let bulk = Observed::new(BulkService(service.clone()), &access, &shared);
    let calls = StoreServer::new(service.clone())
        // Only for a client that asks for it. What a message is unpacked to is bounded as the others are.
        .accept_compressed(CompressionEncoding::Zstd)
        .send_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(limits.message_bytes_max)
        .max_encoding_message_size(MESSAGE_BYTES_MAX + (1 << 20)); // what is measured is the payload
    let objects = Observed::new(objects, &access, &shared);
    let service = Observed::new(Uncopied::new(calls, service), &access, &shared);
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(limits.alive_time_max))
        .http2_keepalive_timeout(Some(limits.alive_time_max))
        .max_concurrent_streams(Some(limits.calls_per_connection_max))
        .initial_stream_window_size(Some(WINDOW_BYTES))
        .initial_connection_window_size(Some(4 * WINDOW_BYTES))
        .max_frame_size(Some(FRAME_BYTES))
        .tcp_nodelay(true);
    if let Some(tls) = tls {
        server = server.tls_config(tls.of_tonic()).map_err(io::Error::other)?;
    }
    let server = server.add_service(service).add_service(bulk).add_service(admin);
    Ok(server.add_service(objects).add_service(history).add_service(flow))
}

type Serving = Vec<tokio::task::JoinHandle<Result<(), tonic::transport::Error>>>;

fn serve(runtime: Runtime, serving: Serving, service: &call::Service, stopper: &Stopper) {
    let all = async {
        for one in serving {
            if let Ok(Err(error)) = one.await {
                tracing::error!(%error, "the gRPC server ended");
            }
        }
    };
    runtime.block_on(async {
        tokio::select! {
            () = all => {}
            () = async { stopper.told().await; tokio::time::sleep(GRACE).await } => {}
        }
    });
    service.sessions.close_all();
    // The thread of a session's end is none of the runtime's. There are no further ends.
    let _ = runtime.block_on(async { tokio::time::timeout(GRACE, service.sessions.none_ends()).await });
    // Whoever waits for the server's end may want to open the store again, so every handle on it has to be gone by then.
    runtime.shutdown_timeout(GRACE);
}
