//! How a server is set up.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_client::wire::MESSAGE_BYTES_MAX;
use forebay_query::{Archive, Options, Session};
use forebay_store::Store;

use crate::access::Grant;
use crate::connections::ConnectionLimits;
use crate::copies::Copies;
use crate::error::{Error, Result};
use crate::grpc::{self, UnixSocket, UnixSockets};
use crate::readers::Readers;
use crate::server::{Everywhere, Listening, Server};
use crate::tls::Tls;
use crate::token::Token;

/// The most that a write in frames may bring, however it is set up, in bytes.
const BULK_BYTES_MOST: u64 = 4 << 30;

/// How a server is set up: plain data until [`Builder::bind`].
#[derive(Clone, Debug)]
#[must_use = "a builder serves nothing before it is bound"]
pub struct Builder {
    pub(crate) allow_remote: bool,
    pub(crate) body_bytes_max: usize,
    pub(crate) query_time_max: Duration,
    pub(crate) query_memory_bytes_max: usize,
    pub(crate) query_spill_bytes_max: u64,
    pub(crate) stream_time_max: Duration,
    pub(crate) refresh: bool,
    pub(crate) archive: Option<Archive>,
    pub(crate) tokenizers: BTreeMap<String, PathBuf>,
    pub(crate) backup_folder: Option<PathBuf>,
    pub(crate) flight: Option<SocketAddr>,
    pub(crate) token: Option<Token>,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) grpc_socket: Option<PathBuf>,
    pub(crate) grpc_socket_mode: u32,
    pub(crate) clients: grpc::Settings,
    pub(crate) readers: ConnectionLimits,
    pub(crate) readers_without_grants: bool,
    pub(crate) tls: Option<Tls>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            allow_remote: false,
            body_bytes_max: 64 << 10,
            query_time_max: Duration::from_secs(30),
            query_memory_bytes_max: 1 << 30,
            query_spill_bytes_max: 8 << 30,
            stream_time_max: Duration::from_secs(3600),
            refresh: false,
            archive: None,
            tokenizers: BTreeMap::new(),
            backup_folder: None,
            flight: None,
            token: None,
            grpc: None,
            grpc_socket: None,
            grpc_socket_mode: 0o600,
            clients: grpc::Settings::default(),
            readers: READERS,
            readers_without_grants: false,
            tls: None,
        }
    }
}

/// What HTTP and Flight SQL let in by default, each.
const READERS: ConnectionLimits = ConnectionLimits {
    most: 1_000,
    most_of_host: None,
    first_call_time_max: Duration::from_secs(10),
    idle_time_max: Some(Duration::from_secs(600)),
};

impl Builder {
    /// Whether addresses that other machines can reach are served, and requests under any host name. Default: false.
    pub fn allow_remote(mut self, allow: bool) -> Self {
        self.allow_remote = allow;
        self
    }

    /// The largest request body, in bytes. Default: 64 KiB, which is a long SELECT.
    pub fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// How long a query may take, the wait for its turn included. Default: 30 seconds.
    pub fn query_time_max(mut self, time: Duration) -> Self {
        self.query_time_max = time;
        self
    }

    /// The memory that all queries together may take, in bytes. Default: 1 GiB.
    pub fn query_memory_bytes_max(mut self, bytes: usize) -> Self {
        self.query_memory_bytes_max = bytes;
        self
    }

    /// The most that all queries together keep in temporary files when their memory does not do, in bytes. Default: 8 GiB;
    /// 0 spills nothing.
    pub fn query_spill_bytes_max(mut self, bytes: u64) -> Self {
        self.query_spill_bytes_max = bytes;
        self
    }

    /// How long a query of Flight SQL may take until its client has read the last row. While it runs, the space of the
    /// values that it shows is not used again. Default: 1 hour.
    pub fn stream_time_max(mut self, time: Duration) -> Self {
        self.stream_time_max = time;
        self
    }

    /// Whether each query first takes in what a writer in another process has written, and the server does so every second
    /// while nobody asks, because the writer keeps what those who read may need. For a store that is open for reading only.
    /// Default: false.
    pub fn refresh(mut self, refresh: bool) -> Self {
        self.refresh = refresh;
        self
    }

    /// Where versions lie that left the store: queries read them beside the live ones, each row once, by HTTP and by
    /// Flight SQL. Default: none.
    pub fn archive(mut self, archive: &Archive) -> Self {
        self.archive = Some(archive.clone());
        self
    }

    /// Makes the tokenizer in a file (`tokenizer.json` of Hugging Face) known to `detokenise` under a name, whichever way a query
    /// comes. Read once, when the server starts. May be said for several. Default: none.
    pub fn tokenizer(mut self, name: impl Into<String>, file: impl Into<PathBuf>) -> Self {
        self.tokenizers.insert(name.into(), file.into());
        self
    }

    /// Beneath which directory clients whose token has the scope `admin` may have the store copied
    /// ([`Admin::backup`](forebay_client::Admin::backup)): it has to be there, and outside of the store. Default: nowhere.
    pub fn backup_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.backup_folder = Some(folder.into());
        self
    }

    /// Serves Arrow Flight SQL too, at an address of its own. Default: no.
    pub fn flight(mut self, address: SocketAddr) -> Self {
        self.flight = Some(address);
        self
    }

    /// Lets in only those who show this token over HTTP and Flight SQL, or one of a [grant](Self::grant) that may read: as bearer, and in
    /// Flight SQL also as the password of any user. Over HTTP `/health` and `/ready` need none. With a token, addresses that
    /// other machines can reach are served; encrypt what goes over the wire with [`tls`](Self::tls). Default: none.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// Serves the whole store over gRPC too, for other processes that write, claim and train: see
    /// `forebay_client::Client::connect`. The store has to be open for writing. Without [`Builder::grant`], whoever reaches
    /// the address may do everything, so it is on loopback, unless [`Builder::allow_remote`] says otherwise. Default: no.
    pub fn grpc(mut self, address: SocketAddr) -> Self {
        self.grpc = Some(address);
        self
    }

    /// The same over a socket in the file system, that this process's user alone can open. Processes of that user need no
    /// token. A socket that is there already and that nobody answers at is replaced. Default: no. Beside it is another, with
    /// `.slabs` behind its name, where clients that may not use the store's files get memory to hand their values over.
    pub fn grpc_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.grpc_socket = Some(path.into());
        self
    }

    /// Who may open that socket, as the file's mode. Others than this process's user need a token, as over TCP, so one that
    /// is wider wants [grants](Self::grant). Default: `0o600`.
    pub fn grpc_socket_mode(mut self, mode: u32) -> Self {
        self.grpc_socket_mode = mode & 0o777;
        self
    }

    /// The most memory that clients of this machine who may not use the store's files have to hand their values over, in bytes,
    /// all together; who gets none sends them. It is taken as it is filled. Default: 1 GiB.
    pub fn slab_bytes_max(mut self, bytes: u64) -> Self {
        self.clients.limits.slab_bytes_max = bytes;
        self
    }

    /// Lets the holder of a token in, for what its grant says: over gRPC, and with the scope to read over HTTP and Flight SQL.
    /// May be said for many. Default: nobody is asked for a token.
    pub fn grant(mut self, grant: Grant) -> Self {
        self.clients.access.add(grant);
        self
    }

    /// Whether [grants](Self::grant) are for gRPC alone, and whoever reaches HTTP and Flight SQL reads all tables there, unless there is a
    /// [token](Self::token). Default: false.
    pub fn readers_without_grants(mut self, without: bool) -> Self {
        self.readers_without_grants = without;
        self
    }

    /// Encrypts what goes over every address, gRPC's, HTTP's and Flight SQL's, with this certificate and key as PEM; with
    /// `client_authority`, lets in only clients that show a certificate signed by it, but for `/health` and `/ready` over HTTP, which
    /// want none. What goes over a socket stays as it is. Default: no.
    pub fn tls(mut self, certificate: &str, key: &str, client_authority: Option<&str>) -> Self {
        self.tls = Some(Tls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_authority: client_authority.map(str::to_owned),
        });
        self
    }

    /// How long what a gRPC client holds is kept for it after its connection broke. Default: 10 seconds.
    pub fn session_grace(mut self, time: Duration) -> Self {
        self.clients.limits.grace = time;
        self
    }

    /// How often a gRPC client that says nothing is asked whether it is there, and how long it has to answer: then its connection is
    /// closed, and the [grace](Self::session_grace) of its session begins. One whose process is stopped, or whose machine is out of
    /// reach, is found so. Default: 20 seconds; 10 ms at least.
    pub fn alive_time_max(mut self, time: Duration) -> Self {
        self.clients.limits.alive_time_max = time.max(Duration::from_millis(10));
        self
    }

    /// The most connections of gRPC at the same time; one more is closed at once. Default: 20,000.
    pub fn connections_max(mut self, connections: usize) -> Self {
        self.clients.limits.connections.most = connections;
        self
    }

    /// The most connections over TCP from one host, at each of gRPC, HTTP and Flight SQL; one more is closed at once. Default: as many as there may be.
    pub fn connections_per_host_max(mut self, connections: usize) -> Self {
        self.clients.limits.connections.most_of_host = Some(connections);
        self.readers.most_of_host = Some(connections);
        self
    }

    /// The most gRPC clients at the same time; one more is told so (`capacity`) when it connects. Default: 20,000.
    pub fn sessions_max(mut self, sessions: usize) -> Self {
        self.clients.limits.sessions_max = sessions;
        self
    }

    /// The most calls under way on one connection of gRPC; more of them wait at the client. Default: 1,024.
    pub fn calls_per_connection_max(mut self, calls: u32) -> Self {
        self.clients.limits.calls_per_connection_max = calls;
        self
    }

    /// The largest message that a gRPC client may send, in bytes: one batch of changes. Four of these have room at the same time of
    /// one caller, eight of all; others wait. Default, and the most: 64 MiB.
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.clients.limits.message_bytes_max = bytes.min(MESSAGE_BYTES_MAX);
        self
    }

    /// The most that one write in frames may bring, in bytes; twice as much is held of all of them together, half of
    /// that of one client, and others wait.
    /// 0: none are taken, and all values come in messages. Default: 256 MiB.
    pub fn bulk_bytes_max(mut self, bytes: u64) -> Self {
        self.clients.limits.bulk_bytes_max = bytes.min(BULK_BYTES_MOST);
        self
    }

    /// How long a write in frames, a message that is not short, over Flight SQL too, an object in pieces, a read or a query of gRPC waits for
    /// its turn before its client is told to ask again. Default: 5 s.
    pub fn room_time_max(mut self, time: Duration) -> Self {
        self.clients.limits.room_time_max = time;
        self
    }

    /// The most connections of HTTP, and of Flight SQL, at the same time; one more is closed at once. Default: 1,000 each.
    pub fn reader_connections_max(mut self, connections: usize) -> Self {
        self.readers.most = connections;
        self
    }

    /// How long a connection may be there before somebody was let in over it; then it is closed. Over HTTP, who asks for
    /// `/health` and `/ready` without the token was not let in. Default: 10 seconds.
    pub fn first_call_time_max(mut self, time: Duration) -> Self {
        self.clients.limits.connections.first_call_time_max = time;
        self.readers.first_call_time_max = time;
        self
    }

    /// How long a connection of HTTP or Flight SQL may carry nothing; then it is closed. To be longer than the longest query over
    /// HTTP takes; clients of Flight SQL are asked every few seconds whether they are there, which counts. Default: 10 minutes.
    pub fn reader_idle_time_max(mut self, time: Duration) -> Self {
        self.readers.idle_time_max = Some(time);
        self
    }

    /// How long a gRPC client may take to send a mebibyte of a message, or to take one of an answer; then the call is ended.
    /// Default: 30 seconds.
    pub fn piece_time_max(mut self, time: Duration) -> Self {
        self.clients.limits.piece_time_max = time;
        self
    }

    /// Starts serving, without HTTP: only what was named, such as a socket alone. Nothing listens at any other place; there is
    /// no `/metrics` then, and no `/health`.
    ///
    /// ```
    /// use forebay_client::{Client, ConnectOptions};
    /// use forebay_server::Server;
    /// use forebay_store::{Options, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let socket = dir.path().join("forebay.sock");
    /// let server = Server::builder().grpc_socket(&socket).bind_without_http(store)?;
    /// assert_eq!(server.address(), None);
    /// let client = Client::connect(&format!("unix://{}", socket.display()), &ConnectOptions::default())?;
    /// assert!(client.tables()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Builder::bind`], and [`Error::Nothing`] where nothing was named.
    pub fn bind_without_http(self, store: Store) -> Result<Server> {
        if self.flight.is_none() && self.grpc.is_none() && self.grpc_socket.is_none() {
            return Err(Error::Nothing);
        }
        self.bind_all(store, None)
    }

    /// Starts serving. Requests are answered from now on, until the server is shut down or dropped.
    ///
    /// # Errors
    /// [`Error::Remote`] for an address beyond loopback that is not allowed; [`Error::Listen`] when it is taken;
    /// [`Error::Archive`] when the archive is not there, or not of this store: better told now than to everyone who asks;
    /// [`Error::Query`] when a tokenizer cannot be read;
    /// [`Error::BackupFolder`] for one that is not there, or inside of the store; [`Error::Tls`] for a certificate, key or authority
    /// that is none.
    pub fn bind(self, store: Store, address: SocketAddr) -> Result<Server> {
        self.bind_all(store, Some(address))
    }

    fn bind_all(mut self, store: Store, http: Option<SocketAddr>) -> Result<Server> {
        let (reads_open, clients_open) = (self.readers_who().is_open(), self.clients.access.is_open());
        for (address, is_open) in [(http, reads_open), (self.flight, reads_open), (self.grpc, clients_open)] {
            if let Some(address) = address.filter(|address| is_open && !address.ip().is_loopback())
                && !self.allow_remote
            {
                return Err(Error::Remote { address });
            }
        }
        if let Some(path) =
            self.grpc_socket.as_ref().filter(|_| clients_open && self.grpc_socket_mode & 0o077 != 0)
            && !self.allow_remote
        {
            return Err(Error::WideSocket { path: path.clone(), mode: self.grpc_socket_mode });
        }
        self.clients.copies = Copies::beneath(self.backup_folder.as_deref(), store.path())?;
        let session = self.session(&store)?;
        let tls = self.tls.as_ref().map(Tls::acceptor).transpose()?;
        let http = http.map(listen).transpose()?;
        let flight = self.flight.map(listen).transpose()?;
        let grpc = self.grpc.map(listen).transpose()?;
        let socket = self.grpc_socket.as_deref().map(|path| self.sockets(path)).transpose()?;
        let listening = Everywhere { http, flight, grpc, socket, tls };
        Server::start(self, store, session, listening)
    }

    /// Who may read over HTTP and Flight SQL.
    pub(crate) fn readers_who(&self) -> Readers {
        Readers::new(self.token.as_ref(), &self.clients.access, self.readers_without_grants)
    }

    /// A socket for calls, and one for slabs. A server without the second takes values as they are sent.
    fn sockets(&self, path: &Path) -> Result<UnixSockets> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".slabs");
        let calls = listen_at(path, self.grpc_socket_mode)?;
        let slabs = listen_at(Path::new(&beside), self.grpc_socket_mode);
        let slabs = slabs.inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "there are no slabs: clients send all values"
            );
        });
        Ok(UnixSockets { calls, slabs: slabs.ok() })
    }

    /// The session that answers all queries.
    fn session(&self, store: &Store) -> Result<Session> {
        let options = Options::default()
            .memory_bytes_max(self.query_memory_bytes_max)
            .spill_bytes_max(self.query_spill_bytes_max)
            .refresh(self.refresh);
        let options = self.archive.iter().fold(options, Options::archive);
        let named = self.tokenizers.iter();
        let options = named.fold(options, |options, (name, file)| options.tokenizer(name, file));
        let session = Session::with_options(store, &options).map_err(|source| Error::Query { source })?;
        if self.archive.is_some() {
            // Every query looks at the archive first, so the smallest one tells what is wrong with it.
            session.sql_blocking("SELECT 1").map_err(|source| Error::Archive { source })?;
        }
        Ok(session)
    }
}

/// A socket in the file system that whoever `mode` says may open.
fn listen_at(path: &Path, mode: u32) -> Result<UnixSocket> {
    let bind = || {
        if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            std::fs::remove_file(path)?; // nobody answers at it: a server that was killed left it
        }
        // Made under a name that nobody else knows, and shown once nobody else can open it.
        let mut hidden = path.as_os_str().to_owned();
        hidden.push(format!(".{}", std::process::id()));
        let _ = std::fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden)?;
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))?;
        let shown = std::fs::hard_link(&hidden, path);
        std::fs::remove_file(&hidden)?;
        shown?; // there already where another server answers
        listener.set_nonblocking(true)?;
        Ok(UnixSocket { listener, path: path.to_owned() })
    };
    bind().map_err(|source| Error::ListenAt { path: path.to_owned(), source })
}

fn listen(address: SocketAddr) -> Result<Listening> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listening { address: listener.local_addr()?, listener })
    };
    listen().map_err(|source| Error::Listen { address, source })
}
