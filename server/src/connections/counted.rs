//! One connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay_client::wire::PIECE_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::Connected;

use super::hosts::OfHost;
use super::known::{Known, Peer};
use super::traffic::Traffic;

/// How long a connection may stay over which nothing is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Before somebody is let in.
    pub(super) first_call_time_max: Duration,
    /// After that; none for as long as its peer likes.
    pub(super) idle_time_max: Option<Duration>,
    /// While a piece of what is written to it is not taken; none for as long as it likes.
    pub(super) piece_time_max: Option<Duration>,
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    known: Known,
    /// When it is looked whether somebody was let in, or something has come or gone since.
    until: Option<Pin<Box<Sleep>>>,
    idle_time_max: Option<Duration>,
    moved: Instant,
    piece_time_max: Option<Duration>,
    /// Since its peer takes nothing, and how much it took since, in bytes.
    untaken: Option<(Pin<Box<Sleep>>, usize)>,
    traffic: Traffic,
    _places: [OwnedSemaphorePermit; 2],
    _of_host: Option<OfHost>,
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.traffic.disconnected();
    }
}

impl<S> Counted<S> {
    pub(super) fn new(
        stream: S,
        places: [OwnedSemaphorePermit; 2],
        of_host: Option<OfHost>,
        patience: Patience,
        traffic: Traffic,
    ) -> Self {
        traffic.connected();
        let Patience { first_call_time_max, idle_time_max, piece_time_max } = patience;
        let (until, known) = (Some(Box::pin(sleep(first_call_time_max))), Known::default());
        let (moved, _places, _of_host) = (Instant::now(), places, of_host);
        let untaken = None;
        Counted {
            stream,
            known,
            until,
            idle_time_max,
            moved,
            piece_time_max,
            untaken,
            traffic,
            _places,
            _of_host,
        }
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// Fails once nobody was let in, or nothing came or went, for too long. Whoever reads or writes is woken for it.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let Some(until) = &mut self.until else { return Ok(()) };
            let is_known = self.known.is_let_in();
            if is_known && self.idle_time_max.is_none() {
                self.until = None;
                return Ok(());
            }
            if until.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            match self.idle_time_max.filter(|_| is_known) {
                None => return Err(self.over("silent", "nobody was let in in time")),
                Some(idle) if self.moved.elapsed() >= idle => {
                    return Err(self.over("idle", "nothing came or went for too long"));
                }
                Some(idle) => match self.moved.checked_add(idle) {
                    Some(end) => until.as_mut().reset(end),
                    None => self.until = None, // for ever
                },
            }
        }
    }

    fn over(&mut self, reason: &'static str, why: &'static str) -> io::Error {
        self.until = None;
        tracing::debug!(why, "a connection was closed");
        self.traffic.refused(reason);
        io::Error::new(io::ErrorKind::TimedOut, why)
    }

    /// Fails once a piece of what is written was not taken in its time; for a write that has to wait.
    fn waits(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(time) = self.piece_time_max else { return Ok(()) };
        let (until, _) = self.untaken.get_or_insert_with(|| (Box::pin(sleep(time)), 0));
        match until.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(self.over("untaken", "its peer took nothing of an answer for too long")),
        }
    }

    /// So much was taken.
    fn was_taken(&mut self, bytes: usize) {
        self.moves();
        self.traffic.went_out(bytes);
        if let Some((_, taken)) = &mut self.untaken {
            *taken += bytes;
            if *taken >= PIECE_BYTES {
                self.untaken = None;
            }
        }
    }

    /// Something came or went.
    fn moves(&mut self) {
        if self.idle_time_max.is_some() {
            self.moved = Instant::now();
        }
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
        self.check(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.moves();
        self.traffic.came_in(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, buf) else {
            self.waits(cx)?;
            return Poll::Pending;
        };
        written.inspect(|bytes| self.was_taken(*bytes)).into()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs) else {
            self.waits(cx)?;
            return Poll::Pending;
        };
        written.inspect(|bytes| self.was_taken(*bytes)).into()
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.untaken = None; // all of it is on its way
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
