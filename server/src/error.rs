//! Why a server could not be started.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of starting a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server could not be started. What goes wrong later is answered to the client that caused it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can be reached from other machines, and nobody said that it may. Give a loopback address, or allow
    /// it.
    #[error(
        "{address} can be reached from other machines, and whoever reaches the server can read the store; use \
         127.0.0.1, set a token, give grants, or say `allow_remote(true)`"
    )]
    Remote {
        /// The address that was asked for.
        address: SocketAddr,
    },
    /// Other users could open the socket, and nobody said that they may. Keep it to one user, or give grants.
    #[error(
        "mode {mode:o} lets other users of the machine open {}, and whoever does could use the store; use 600, give grants, or \
         say `allow_remote(true)`",
        path.display()
    )]
    WideSocket {
        /// The path that was asked for.
        path: PathBuf,
        /// The mode that was asked for.
        mode: u32,
    },
    /// Nothing would be served. Name a socket or an address.
    #[error(
        "there is nothing to serve: with no HTTP, name a socket or an address (`Builder::grpc_socket`, `Builder::grpc`, \
         `Builder::flight`)"
    )]
    Nothing,
    /// The address cannot be listened on. Give another; port 0 takes any that is free.
    #[error("could not listen on {address}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The socket cannot be made. Give another path, or end the server that answers there.
    #[error("could not listen at {}", path.display())]
    ListenAt {
        /// The path that was asked for.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Copies of the store cannot go beneath the directory that was named. Give one that is there, outside of the store.
    #[error("copies of the store cannot go beneath {}; give a directory that is there, outside of the store", path.display())]
    BackupFolder {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No header can hold the token. Give one of ASCII letters, digits and signs.
    #[error("a token is one word of visible ASCII characters, and this is none (it is not shown)")]
    Token,
    /// The certificate, its key or the authority of clients cannot be used. Give others; what is wrong is told, and no key shown.
    #[error("TLS cannot be had with these files: {source}")]
    Tls {
        /// What is wrong with them.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system gives no threads. Try again later.
    #[error("could not start the server's threads")]
    Threads {
        /// What the system says.
        source: io::Error,
    },
    /// The archive is not there, out of reach, or another store's. The message names it and the way out.
    #[error("the archive cannot be served: {source}")]
    Archive {
        /// What is wrong with it.
        source: forebay_query::Error,
    },
    /// The query engine cannot be set up: a tokenizer cannot be read, which the message names, or else report it.
    #[error("could not set up queries: {source}")]
    Query {
        /// What it says.
        source: forebay_query::Error,
    },
}
