//! How a server is set up.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use forebay_query::Session;
use forebay_store::Store;

use crate::error::{Error, Result};
use crate::server::Server;

/// How a server is set up: plain data until [`Builder::bind`].
#[derive(Clone, Debug)]
#[must_use = "a builder serves nothing before it is bound"]
pub struct Builder {
    pub(crate) allow_remote: bool,
    pub(crate) body_bytes_max: usize,
    pub(crate) query_time_max: Duration,
    pub(crate) query_memory_bytes_max: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            allow_remote: false,
            body_bytes_max: 64 << 10,
            query_time_max: Duration::from_secs(30),
            query_memory_bytes_max: 1 << 30,
        }
    }
}

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

    /// Starts serving. Requests are answered from now on, until the server is shut down or dropped.
    ///
    /// # Errors
    /// [`Error::Remote`] for an address beyond loopback that is not allowed; [`Error::Listen`] when it is taken.
    pub fn bind(self, store: Store, address: SocketAddr) -> Result<Server> {
        if !self.allow_remote && !address.ip().is_loopback() {
            return Err(Error::Remote { address });
        }
        let options = forebay_query::Options::default().memory_bytes_max(self.query_memory_bytes_max);
        let session = Session::with_options(&store, &options).map_err(|source| Error::Query { source })?;
        let listen = |address| {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (bound, listener) = listen(address).map_err(|source| Error::Listen { address, source })?;
        Server::start(self, store, session, bound, listener)
    }
}
