//! Whether somebody was let in over a connection, and whether its peer has shown a certificate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonic::codegen::http::Extensions;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo, UdsConnectInfo};

/// What is known of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Facts>);

#[derive(Debug, Default)]
struct Facts {
    let_in: AtomicBool,
    certified: AtomicBool,
}

/// What calls of gRPC learn of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer<I> {
    pub(super) inner: I,
    pub(super) known: Known,
}

impl Known {
    pub(crate) fn let_in(&self) {
        self.0.let_in.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_let_in(&self) -> bool {
        self.0.let_in.load(Ordering::Relaxed)
    }

    /// Its peer has shown a certificate that the server's authority has signed.
    pub(super) fn certify(&self) {
        self.0.certified.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_certified(&self) -> bool {
        self.0.certified.load(Ordering::Relaxed)
    }

    /// What is known of the connection of a request of gRPC over TCP, with TLS or without.
    pub(crate) fn of_tcp(extensions: &Extensions) -> Option<Self> {
        let tls = extensions.get::<TlsConnectInfo<Peer<TcpConnectInfo>>>().map(TlsConnectInfo::get_ref);
        tls.or_else(|| extensions.get()).map(|peer: &Peer<TcpConnectInfo>| peer.known.clone())
    }

    /// Takes what is known of the connection off a request of gRPC, and leaves what calls look for in its place.
    pub(crate) fn of(extensions: &mut Extensions) -> Option<Self> {
        if let Some(Peer { inner, known }) = extensions.remove::<Peer<UdsConnectInfo>>() {
            extensions.insert(inner);
            return Some(known);
        }
        let tls = extensions.get::<TlsConnectInfo<Peer<TcpConnectInfo>>>().map(|tls| tls.get_ref().clone());
        let Peer { inner, known } = tls.or_else(|| extensions.remove::<Peer<TcpConnectInfo>>())?;
        extensions.insert(inner);
        Some(known)
    }
}
