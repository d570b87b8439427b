//! How a client connects.

use std::fmt;
use std::time::Duration;

/// How a client connects to a server: plain data until [`Client::connect`](crate::Client::connect).
#[derive(Clone)]
#[must_use = "options connect nothing"]
pub struct ConnectOptions {
    pub(crate) token: Option<String>,
    pub(crate) owner: String,
    pub(crate) connect_time_max: Duration,
    pub(crate) call_time_max: Duration,
    pub(crate) outage_time_max: Duration,
    pub(crate) authority_certificate: Option<String>,
    pub(crate) identity: Option<(String, String)>,
    pub(crate) neighbour: bool,
    pub(crate) slabs: bool,
    pub(crate) compress: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            token: None,
            owner: format!("process {}", std::process::id()),
            connect_time_max: Duration::from_secs(10),
            call_time_max: Duration::from_secs(60),
            outage_time_max: Duration::from_secs(30),
            authority_certificate: None,
            identity: None,
            neighbour: true,
            slabs: true,
            compress: false,
        }
    }
}

impl fmt::Debug for ConnectOptions {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("owner", &self.owner)
            .field("connect_time_max", &self.connect_time_max)
            .field("call_time_max", &self.call_time_max)
            .field("outage_time_max", &self.outage_time_max)
            .finish_non_exhaustive()
    }
}

impl ConnectOptions {
    /// The token that lets in. Default: none.
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.trim().to_owned());
        self
    }

    /// What `system.claims` shows as the holder. Default: `process PID`.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = owner.to_owned();
        self
    }

    /// Whether values are written and read in the store's own files where the server is on this machine and this process may
    /// open them. Default: they are; else they go through [slabs](ConnectOptions::slabs), or are sent.
    pub fn neighbour(mut self, neighbour: bool) -> Self {
        self.neighbour = neighbour;
        self
    }

    /// Whether values are handed over in memory that is shared with a server on this machine, where this process may not open
    /// the store's files. Default: they are; else, and everywhere else, they are sent.
    pub fn slabs(mut self, slabs: bool) -> Self {
        self.slabs = slabs;
        self
    }

    /// Whether what goes over the wire is compressed (zstd), both ways. Default: it is not, for a network of a gigabyte a
    /// second carries values faster than they are compressed; over a slow one it pays. Large writes are compressed by
    /// themselves (lz4): those to another machine always, others where this says so, and only frames that become shorter by an
    /// eighth; after one that does not, the next 31 are sent as they are.
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// How long to wait for the server to answer at first. Default: 10 seconds.
    pub fn connect_time_max(mut self, time: Duration) -> Self {
        self.connect_time_max = time;
        self
    }

    /// How long a call may take, beyond what it is told to wait for. Default: 60 seconds.
    pub fn call_time_max(mut self, time: Duration) -> Self {
        self.call_time_max = time;
        self
    }

    /// For how long a call is sent again while the server cannot be reached, before its caller hears of it. Default: 30
    /// seconds; zero hears at once. A call is made once, however often it is sent.
    pub fn outage_time_max(mut self, time: Duration) -> Self {
        self.outage_time_max = time;
        self
    }

    /// The certificate, as PEM, of the authority that the server's certificate is to be signed by. Needed for `grpcs`.
    pub fn authority_certificate(mut self, pem: &str) -> Self {
        self.authority_certificate = Some(pem.to_owned());
        self
    }

    /// This client's own certificate and key, as PEM, for servers that ask for one. Default: none.
    pub fn identity(mut self, certificate: &str, key: &str) -> Self {
        self.identity = Some((certificate.to_owned(), key.to_owned()));
        self
    }
}
