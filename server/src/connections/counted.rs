//! One connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use super::hosts::OfHost;
use super::known::{Known, Peer};
use super::listener::HttpListener;
use super::traffic::Traffic;

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    known: Known,
    /// When it is closed, if nobody was let in by then.
    until: Option<Pin<Box<Sleep>>>,
    traffic: Traffic,
    _place: OwnedSemaphorePermit,
    _of_host: Option<OfHost>,
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        self.traffic.disconnected();
    }
}

impl<S> Counted<S> {
    /// Over which somebody has to be let in within `first_call_time_max`.
    pub(super) fn new(
        stream: S,
        place: OwnedSemaphorePermit,
        of_host: Option<OfHost>,
        first_call_time_max: Duration,
        traffic: Traffic,
    ) -> Self {
        traffic.connected();
        let until = Some(Box::pin(sleep(first_call_time_max)));
        Counted { stream, known: Known::default(), until, traffic, _place: place, _of_host: of_host }
    }

    /// Fails once nobody was let in for too long. Whoever reads or writes is woken for it.
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
        self.traffic.refused("silent");
        Err(io::Error::new(io::ErrorKind::TimedOut, "nobody was let in in time"))
    }
}

impl<S: Connected> Connected for Counted<S> {
    type ConnectInfo = Peer<S::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Peer { inner: self.stream.connect_info(), known: self.known.clone() }
    }
}

impl connect_info::Connected<IncomingStream<'_, HttpListener>> for Known {
    fn connect_info(stream: IncomingStream<'_, HttpListener>) -> Self {
        stream.io().known.clone()
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
        self.traffic.came_in(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check_known(cx)?;
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.traffic.went_out(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_known(cx)?;
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.traffic.went_out(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check_known(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
