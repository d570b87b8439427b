//! The doors of a server, opened one by one over what they share.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use forebay_query::{QueryThreads, Session};
use forebay_store::Store;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::builder::Builder;
use crate::connections::{Connections, Handles, HttpListener};
use crate::grpc::Limits;
use crate::queries::Answering;
use crate::routes::App;
use crate::server::{Everywhere, Listening, QUERY_THREADS, Stopper, serve};
use crate::{flight, grpc};

/// The thread that a door is answered from.
pub(crate) type Thread = JoinHandle<()>;

/// What all doors share.
pub(crate) struct Opening {
    settings: Builder,
    store: Store,
    app: App,
    handles: Handles,
    stopper: Stopper,
}

impl Opening {
    pub(crate) fn new(
        settings: Builder,
        store: Store,
        session: Session,
        everywhere: &Everywhere,
        stopper: Stopper,
    ) -> io::Result<Self> {
        let handles = Handles::left_for(wanted(&settings, everywhere));
        let threads = Arc::new(QueryThreads::new(QUERY_THREADS)?);
        let app = App::new(&settings, store.clone(), session, threads);
        Ok(Opening { settings, store, app, handles, stopper })
    }

    /// What queries are answered with whose rows are read as they come.
    fn answering(&self) -> Answering {
        let session = self.app.session.with_statement_time_max(Some(self.settings.stream_time_max));
        Answering { session, threads: self.app.threads.clone(), queries: self.app.queries.clone() }
    }

    /// gRPC, where it is listened for.
    pub(crate) fn clients(
        &self,
        tcp: Option<Listening>,
        unix: Option<grpc::UnixSockets>,
    ) -> io::Result<Option<Thread>> {
        if tcp.is_none() && unix.is_none() {
            return Ok(None);
        }
        let settings = self.settings.clients.clone();
        let connections = Connections::new(settings.limits.connections, &self.handles, &self.app.doors.grpc);
        let address = tcp.as_ref().map(|listening| listening.address);
        let (tcp, tls) = (tcp.map(|listening| listening.listener), self.settings.tls.clone());
        let listeners = grpc::Listeners { tcp, unix, tls, connections };
        let (store, answering) = (self.store.clone(), self.answering());
        let thread =
            grpc::start(listeners, settings, store, answering, &self.app.clients, self.stopper.clone())?;
        tracing::info!(?address, "serving gRPC");
        Ok(Some(thread))
    }

    /// Flight SQL, where it is listened for.
    pub(crate) fn flight(&self, listening: Option<Listening>) -> io::Result<Option<Thread>> {
        let Some(Listening { address, listener }) = listening else { return Ok(None) };
        let connections = Connections::new(self.settings.readers, &self.handles, &self.app.doors.flight);
        let door = flight::Door { listener, connections, tls: self.settings.tls.clone() };
        let Limits { piece_time_max, room_time_max, .. } = self.settings.clients.limits;
        let pace = flight::Pace { piece_time_max, room_time_max, tally: self.app.clients.clone() };
        let readers = self.app.readers.clone();
        let thread = flight::start(door, self.answering(), readers, pace, self.stopper.clone())?;
        tracing::info!(%address, "serving Flight SQL");
        Ok(Some(thread))
    }

    /// HTTP, where it is listened for; without, that runtime goes on until the word to stop.
    pub(crate) fn http(
        self,
        runtime: Runtime,
        listening: Option<Listening>,
        tls: Option<TlsAcceptor>,
    ) -> io::Result<Thread> {
        let Opening { settings, app, handles, stopper, .. } = self;
        let piece_time_max = settings.clients.limits.piece_time_max;
        let connections = Connections::new(settings.readers, &handles, &app.doors.http);
        let connections = connections.taken_at_a_pace(piece_time_max);
        let address = listening.as_ref().map(|listening| listening.address);
        let listener = {
            let _inside = runtime.enter();
            listening.map(|http| tokio::net::TcpListener::from_std(http.listener)).transpose()?
        };
        let listener = listener.map(|listener| HttpListener { listener, connections, tls });
        let serve = move || serve(&runtime, listener, app, &stopper);
        let thread = std::thread::Builder::new().name("forebay-server".to_owned()).spawn(serve)?;
        tracing::info!(?address, "serving");
        Ok(thread)
    }
}

/// The connections that all doors together would take.
fn wanted(settings: &Builder, everywhere: &Everywhere) -> usize {
    let Everywhere { http, flight, grpc, socket, .. } = everywhere;
    let readers = [http, flight].into_iter().flatten().map(|_| settings.readers.most);
    let clients = (grpc.is_some() || socket.is_some()).then_some(settings.clients.limits.connections.most);
    readers.chain(clients).fold(0, usize::saturating_add)
}
