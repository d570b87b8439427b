//! Whether somebody was let in over a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonic::codegen::http::Extensions;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo, UdsConnectInfo};

/// Whether somebody was let in over a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<AtomicBool>);

/// What calls of gRPC learn of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer<I> {
    pub(super) inner: I,
    pub(super) known: Known,
}

impl Known {
    pub(crate) fn let_in(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_let_in(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// What is known of the connection of a request of gRPC over plain TCP.
    pub(crate) fn of_tcp(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Peer<TcpConnectInfo>>().map(|peer| peer.known.clone())
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
