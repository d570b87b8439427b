//! Where connections come in.

use std::io;
use std::net::IpAddr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where connections come in.
pub(crate) trait Listener: Send {
    type Stream: Send;

    /// The next, with its host where it may be another.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, address) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, Some(address.ip())))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<IpAddr>)> {
        Ok((self.accept().await?.0, None))
    }
}
