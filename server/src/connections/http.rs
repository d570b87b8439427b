//! The connections of HTTP, with TLS or without.
//!
//! A handshake is part of the connection's first read, so one that dawdles holds up no other, and is counted and timed as its
//! connection is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::{Connections, Counted, Known};

/// A listener of counted connections, as HTTP's server takes it.
pub(crate) struct HttpListener {
    pub(crate) listener: TcpListener,
    pub(crate) connections: Connections,
    pub(crate) tls: Option<TlsAcceptor>,
}

impl axum::serve::Listener for HttpListener {
    type Io = HttpStream;
    type Addr = (); // nobody asks

    async fn accept(&mut self) -> (HttpStream, ()) {
        let stream = self.connections.next(&self.listener).await;
        let known = stream.known().clone();
        let state = match &self.tls {
            None => State::Plain(Box::new(stream)),
            Some(tls) => State::Shaking(Box::new(tls.accept(stream))),
        };
        (HttpStream { known, state }, ())
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Connected<IncomingStream<'_, HttpListener>> for Known {
    fn connect_info(stream: IncomingStream<'_, HttpListener>) -> Self {
        stream.io().known.clone()
    }
}

/// A connection of HTTP.
pub(crate) struct HttpStream {
    known: Known,
    state: State,
}

enum State {
    Plain(Box<Counted<TcpStream>>),
    Shaking(Box<Accept<Counted<TcpStream>>>),
    Encrypted(Box<TlsStream<Counted<TcpStream>>>),
    /// The handshake failed.
    Over,
}

trait Both: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

impl HttpStream {
    /// What is read and written, once hands are shaken.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Both>>> {
        if let State::Shaking(accept) = &mut self.state {
            let shaken = ready!(Pin::new(accept).poll(cx));
            self.state = State::Over; // it is not asked again
            let stream = shaken.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed"))?;
            if stream.get_ref().1.peer_certificates().is_some() {
                self.known.certify();
            }
            self.state = State::Encrypted(Box::new(stream));
        }
        match &mut self.state {
            State::Plain(stream) => Poll::Ready(Ok(Pin::new(stream))),
            State::Encrypted(stream) => Poll::Ready(Ok(Pin::new(stream))),
            State::Shaking(_) | State::Over => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncRead for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for HttpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true // both kinds take several at once
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.state {
            State::Shaking(_) | State::Over => Poll::Ready(Ok(())), // nothing was written
            State::Plain(_) | State::Encrypted(_) => ready!(self.poll_open(cx))?.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Shaking(accept) => match accept.get_mut() {
                Some(stream) => Pin::new(stream).poll_shutdown(cx),
                None => Poll::Ready(Ok(())),
            },
            State::Over => Poll::Ready(Ok(())),
            State::Plain(_) | State::Encrypted(_) => ready!(self.poll_open(cx))?.poll_shutdown(cx),
        }
    }
}
