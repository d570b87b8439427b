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

use forebay_query::Session;
use forebay_store::Store;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::builder::Builder;
use crate::connections::{HttpListener, Known};
use crate::error::{Error, Result};
use crate::grpc;
use crate::opening::Opening;
use crate::routes::{self, App};

const WORKERS: usize = 3;
/// How often is taken in what another process has written, whether or not somebody asks.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// The threads that queries compute on. Those over HTTP are answered when they are computed, so there one caller has no more turns than that,
/// and all callers twice as many.
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
    /// How HTTP shakes hands, where it does.
    pub(crate) tls: Option<TlsAcceptor>,
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
        Self::open(settings, store, session, listening).map_err(|source| Error::Threads { source })
    }

    fn open(settings: Builder, store: Store, session: Session, listening: Everywhere) -> io::Result<Self> {
        let address_of =
            |listening: &Option<Listening>| listening.as_ref().map(|listening| listening.address);
        let [address, flight_address, grpc_address] =
            [&listening.http, &listening.flight, &listening.grpc].map(address_of);
        let stopper = Stopper(Arc::new(watch::Sender::new(false)));
        let runtime = (address.is_some() || settings.refresh).then(runtime).transpose()?;
        if let Some(runtime) = runtime.as_ref().filter(|_| settings.refresh) {
            runtime.spawn(keep_up(store.clone()));
        }
        let opening = Opening::new(settings, store, session, &listening, stopper.clone())?;
        let Everywhere { http, flight, grpc, socket, tls } = listening;
        let doors = [opening.clients(grpc, socket)?, opening.flight(flight)?];
        let http = runtime.map(|runtime| opening.http(runtime, http, tls)).transpose()?;
        let threads = doors.into_iter().chain([http]).flatten().collect();
        Ok(Server { address, flight_address, grpc_address, stopper, threads })
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
pub(crate) fn serve(runtime: &Runtime, listener: Option<HttpListener>, app: App, stop: &Stopper) {
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
