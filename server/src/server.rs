//! The running server.
//!
//! # Threads
//! Flight SQL and gRPC have a thread and a runtime of their own each (`flight`, `grpc`). For HTTP, and to keep up with a writer, one
//! thread, `forebay-server`, owns a runtime of `WORKERS` threads and waits in it for the word to stop; where there is neither, it is
//! not there. Queries compute on `QUERY_THREADS` other threads, however they came, so that whoever reads sockets, keeps the time and
//! answers for health is never held up by one. Dropping a connection ends its query; its turn is over when the computing is.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_query::{QueryThreads, Session};
use forebay_store::Store;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::builder::Builder;
use crate::connections::{Connections, Handles, HttpListener, Known};
use crate::error::{Error, Result};
use crate::flight;
use crate::grpc;
use crate::queries::Answering;
use crate::routes::{self, App};

const WORKERS: usize = 3;
/// How often is taken in what another process has written, whether or not somebody asks.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// The threads that queries compute on. Those over HTTP are answered when they are computed, so more would gain nothing there.
pub(crate) const QUERY_THREADS: usize = 2;
/// How long requests go on after the word to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Serves a store over HTTP, and wherever else its [`Builder`] says, until it is shut down or dropped.
///
/// ```
/// use std::io::{Read, Write};
/// use forebay_server::Server;
/// use forebay_store::{Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// let server = Server::bind(store, "127.0.0.1:0".parse()?)?; // port 0: any free one
/// let address = server.address().expect("it answers over HTTP");
///
/// let mut stream = std::net::TcpStream::connect(address)?;
/// write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
/// let mut reply = String::new();
/// stream.read_to_string(&mut reply)?;
/// assert!(reply.starts_with("HTTP/1.1 200"));
/// server.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    address: Option<SocketAddr>,
    flight_address: Option<SocketAddr>,
    grpc_address: Option<SocketAddr>,
    stopper: Stopper,
    threads: Vec<JoinHandle<()>>,
}

/// An address that is listened on.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) listener: TcpListener,
}

/// Everywhere where a server listens.
pub(crate) struct Everywhere {
    pub(crate) http: Option<Listening>,
    pub(crate) flight: Option<Listening>,
    pub(crate) grpc: Option<Listening>,
    pub(crate) socket: Option<grpc::UnixSockets>,
}

/// Ends a server from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Takes no further connections; requests under way are still answered. Returns at once:
    /// [`Server::wait`] tells when it is done.
    pub fn stop(&self) {
        self.0.send_replace(true); // who waits later is told at once
    }

    /// Waits for the word to stop.
    pub(crate) fn told(&self) -> impl Future<Output = ()> + Send + 'static {
        let (mut told, kept) = (self.0.subscribe(), self.0.clone());
        async move {
            let _stopped = told.wait_for(|stop| *stop).await; // the sender is kept, so this does not fail
            drop(kept);
        }
    }
}

impl Server {
    /// Serves with the defaults of [`Builder`].
    ///
    /// # Errors
    /// As for [`Builder::bind`].
    pub fn bind(store: Store, address: SocketAddr) -> Result<Self> {
        Self::builder().bind(store, address)
    }

    /// Sets up a server.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(
        settings: Builder,
        store: Store,
        session: Session,
        listening: Everywhere,
    ) -> Result<Self> {
        let start = || -> io::Result<Self> {
            let Everywhere { http, flight, grpc, socket } = listening;
            let runtime = (http.is_some() || settings.refresh).then(runtime).transpose()?;
            let stopper = Stopper(Arc::new(watch::Sender::new(false)));
            let (stop, mut threads) = (stopper.clone(), Vec::new());
            let address_of =
                |listening: &Option<Listening>| listening.as_ref().map(|listening| listening.address);
            let [address, flight_address, grpc_address] = [&http, &flight, &grpc].map(address_of);
            let streams = session.with_statement_time_max(Some(settings.stream_time_max));
            let (token, readers) = (settings.token.clone(), settings.readers);
            if let Some(runtime) = runtime.as_ref().filter(|_| settings.refresh) {
                runtime.spawn(keep_up(store.clone()));
            }
            let handles = Handles::left_for(wanted(
                &settings,
                address,
                flight_address,
                grpc.is_some() || socket.is_some(),
            ));
            let piece_time_max = settings.clients.limits.piece_time_max;
            let (clients, everything) = (settings.clients.clone(), store.clone());
            let query_threads = Arc::new(QueryThreads::new(QUERY_THREADS)?);
            let app = App::new(settings, store, session, query_threads.clone());
            if grpc.is_some() || socket.is_some() {
                let connections = Connections::new(clients.limits.connections, &handles, &app.doors.grpc);
                let tcp = grpc.map(|listening| listening.listener);
                let listeners = grpc::Listeners { tcp, unix: socket, connections };
                let (session, queries) = (streams.clone(), app.queries.clone());
                let answering = Answering { session, threads: query_threads.clone(), queries };
                let (tally, stopper) = (&app.clients, stopper.clone());
                threads.push(grpc::start(listeners, clients, everything, answering, tally, stopper)?);
                tracing::info!(address = ?grpc_address, "serving gRPC");
            }
            if let Some(Listening { address, listener }) = flight {
                let connections = Connections::new(readers, &handles, &app.doors.flight);
                let (queries, stopper) = (app.queries.clone(), stopper.clone());
                let pace = flight::Pace { piece_time_max, tally: app.clients.clone() };
                threads.push(flight::start(
                    (listener, connections),
                    streams,
                    query_threads,
                    token,
                    queries,
                    pace,
                    stopper,
                )?);
                tracing::info!(%address, "serving Flight SQL");
            }
            if let Some(runtime) = runtime {
                let connections =
                    Connections::new(readers, &handles, &app.doors.http).taken_at_a_pace(piece_time_max);
                let listener = {
                    let _inside = runtime.enter();
                    http.map(|http| tokio::net::TcpListener::from_std(http.listener)).transpose()?
                };
                let listener = listener.map(|listener| HttpListener { listener, connections });
                let serve = move || serve(&runtime, listener, app, &stop);
                threads.push(std::thread::Builder::new().name("forebay-server".to_owned()).spawn(serve)?);
                tracing::info!(?address, "serving");
            }
            Ok(Server { address, flight_address, grpc_address, stopper, threads })
        };
        start().map_err(|source| Error::Threads { source })
    }

    /// Where it listens for HTTP, with the port that was taken; none when it does not.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it listens for Flight SQL, with the port that was taken; none when it does not.
    pub fn flight_address(&self) -> Option<SocketAddr> {
        self.flight_address
    }

    /// Where it listens for gRPC, with the port that was taken; none when it does not.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc_address
    }

    /// A handle that ends the server, for instance from a signal handler's thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the server has ended: after [`Stopper::stop`], once the requests under way are answered.
    pub fn wait(mut self) {
        self.join();
    }

    /// Ends the server: no further connections, requests under way are answered, then it returns.
    pub fn shutdown(self) {
        self.stopper.stop();
        self.wait();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the server panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        self.join();
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("forebay-server-worker")
        .enable_all()
        .build()
}

/// The connections that all doors together would take.
fn wanted(settings: &Builder, http: Option<SocketAddr>, flight: Option<SocketAddr>, clients: bool) -> usize {
    let readers = [http, flight].into_iter().flatten().map(|_| settings.readers.most);
    let clients = clients.then_some(settings.clients.limits.connections.most);
    readers.chain(clients).fold(0, usize::saturating_add)
}

/// Takes in what the writer has written also while nobody asks: the writer keeps what the last one who looked may need.
async fn keep_up(store: Store) {
    let mut ticks = tokio::time::interval(REFRESH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let store = store.clone();
        match tokio::task::spawn_blocking(move || store.refresh()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return tracing::error!(%error, "the store can no longer be followed"),
            Err(error) => return tracing::error!(%error, "following the store panicked"),
        }
    }
}

/// Answers over HTTP, where it is listened for, until it is told to stop.
fn serve(runtime: &Runtime, listener: Option<HttpListener>, app: App, stop: &Stopper) {
    let Some(listener) = listener else { return runtime.block_on(stop.told()) };
    let routes = routes::router(app).into_make_service_with_connect_info::<Known>();
    let serving = axum::serve(listener, routes);
    let serving = serving.with_graceful_shutdown(stop.told()).into_future();
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serving => ended,
            () = async { stop.told().await; tokio::time::sleep(GRACE).await } => Ok(()),
        }
    });
    if let Err(error) = ended {
        tracing::error!(%error, "the server ended");
    }
}
