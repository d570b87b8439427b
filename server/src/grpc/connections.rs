//! Connections, counted: one beyond the most that are allowed is closed at once, one over which nobody is let in for long is
//! closed too, and the others are not touched.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use super::Limits;
use super::tally::Tally;

/// How long after a connection could not be accepted the next is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections of a server.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    places: Arc<Semaphore>,
    peers: Peers,
    first_call_time_max: Duration,
    tally: Tally,
}

/// How many connections each host has.
#[derive(Clone, Debug)]
struct Peers {
    most: Option<usize>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A host's connection, until it is dropped.
#[derive(Debug)]
struct OfPeer(Peers, IpAddr);

impl Peers {
    /// A place for one more of that host, if it may have one. Who has no address is of this machine, and has no limit.
    fn enter(&self, host: Option<IpAddr>) -> Result<Option<OfPeer>, ()> {
        let (Some(host), Some(most)) = (host, self.most) else { return Ok(None) };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner); // counts stay counts
        let has = open.entry(host).or_default();
        if *has >= most {
            return Err(());
        }
        *has += 1;
        Ok(Some(OfPeer(self.clone(), host)))
    }
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(has) = open.get_mut(&self.1) {
            *has -= 1;
            if *has == 0 {
                open.remove(&self.1);
            }
        }
    }
}

/// Whether somebody was let in over a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Arc<AtomicBool>);

impl Known {
    pub(super) fn let_in(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_let_in(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What calls learn of their connection.
#[derive(Clone, Debug)]
pub(super) struct Peer<I> {
    pub(super) inner: I,
    pub(super) known: Known,
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(super) struct Counted<S> {
    stream: S,
    known: Known,
    /// When it is closed, if nobody was let in by then.
    until: Option<Pin<Box<Sleep>>>,
    tally: Tally,
    _place: OwnedSemaphorePermit,
    _of_peer: Option<OfPeer>,
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.tally.disconnected();
    }
}

impl Connections {
    pub(super) fn new(limits: &Limits, tally: &Tally) -> Self {
        Connections {
            places: Arc::new(Semaphore::new(limits.connections_max)),
            peers: Peers { most: limits.connections_per_host_max, open: Arc::default() },
            first_call_time_max: limits.first_call_time_max,
            tally: tally.clone(),
        }
    }

    /// What comes over a listener, for as long as it is asked for more.
    pub(super) fn of<L: Listener>(
        &self,
        listener: L,
    ) -> impl Stream<Item = io::Result<Counted<L::Stream>>> + use<L> {
        stream::unfold((listener, self.clone()), async |(listener, connections)| {
            loop {
                match listener.next().await {
                    Ok((stream, host)) => {
                        if let Some(counted) = connections.count(stream, host) {
                            return Some((Ok(counted), (listener, connections)));
                        }
                    }
                    Err(error) => {
                        // Out of file handles, most often: others have to go before it makes sense to try again.
                        tracing::warn!(%error, "a connection could not be accepted");
                        connections.tally.refused("error");
                        sleep(PAUSE).await;
                    }
                }
            }
        })
    }

    /// A connection, if one more may be.
    fn count<S>(&self, stream: S, host: Option<IpAddr>) -> Option<Counted<S>> {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            tracing::warn!("a connection was closed at once: there are as many as may be");
            self.tally.refused("too_many");
            return None;
        };
        let Ok(of_peer) = self.peers.enter(host) else {
            tracing::warn!(?host, "a connection was closed at once: its host has as many as it may");
            self.tally.refused("too_many_of_host");
            return None;
        };
        self.tally.connected();
        let until = Some(Box::pin(sleep(self.first_call_time_max)));
        let (known, tally) = (Known::default(), self.tally.clone());
        Some(Counted { stream, known, until, tally, _place: place, _of_peer: of_peer })
    }
}

impl<S> Counted<S> {
    /// Fails once nobody was let in for too long. Whoever reads is woken for it.
    fn check_known(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(until) = &mut self.until else { return Ok(()) };
        if !self.known.is_let_in() && until.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        self.until = None;
        if self.known.is_let_in() {
            return Ok(());
        }
        tracing::debug!("a connection was closed over which nobody was let in");
        self.tally.refused("silent");
        Err(io::Error::new(io::ErrorKind::TimedOut, "nobody was let in in time"))
    }
}

/// Where connections come in.
pub(super) trait Listener: Send {
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

impl<S: Connected> Connected for Counted<S> {
    type ConnectInfo = Peer<S::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Peer { inner: self.stream.connect_info(), known: self.known.clone() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_known(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.tally.came_in(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.tally.went_out(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.tally.went_out(written);
        Poll::Ready(Ok(written))
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
