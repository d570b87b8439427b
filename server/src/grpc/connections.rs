//! Connections, counted: one beyond the most that are allowed is closed at once, and the others are not touched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// The most connections, unless it is said otherwise.
pub(super) const MAX: usize = 20_000;

/// How long after a connection could not be accepted the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections of a server.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Semaphore>);

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Connections(Arc::new(Semaphore::new(most)))
    }

    /// What comes over a listener, for as long as it is asked for more.
    pub(super) fn of<L: Listener>(
        &self,
        listener: L,
    ) -> impl Stream<Item = io::Result<Counted<L::Stream>>> + use<L> {
        stream::unfold((listener, self.0.clone()), async |(listener, places)| {
            loop {
                match listener.next().await {
                    Ok(stream) => match places.clone().try_acquire_owned() {
                        Ok(place) => {
                            return Some((Ok(Counted { stream, _place: place }), (listener, places)));
                        }
                        Err(_) => {
                            tracing::warn!("a connection was closed at once: there are as many as may be");
                        }
                    },
                    Err(error) => {
                        // Out of file handles, most often: others have to go before it makes sense to try again.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        })
    }
}

/// Where connections come in.
pub(super) trait Listener: Send {
    type Stream: Send;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl<S: Connected> Connected for Counted<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
