//! What stands between the transport and the calls: every call is counted, its message has to come at a pace, and a
//! connection over which somebody was let in may stay.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo, UdsConnectInfo};

use super::connections::{Known, Peer};
use super::pace::Paced;
use super::tally::{Tally, method_of};

/// A service, observed.
#[derive(Clone, Debug)]
pub(super) struct Observed<S> {
    inner: S,
    tally: Tally,
    piece_time_max: Duration,
}

impl<S> Observed<S> {
    pub(super) fn new(inner: S, tally: Tally, piece_time_max: Duration) -> Self {
        Observed { inner, tally, piece_time_max }
    }
}

impl<S: NamedService> NamedService for Observed<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let known = peer(&mut request);
        let call = self.tally.call(method_of(request.uri().path()));
        let piece_time_max = self.piece_time_max;
        let answered = self.inner.call(request.map(|body| Body::new(Paced::new(body, piece_time_max))));
        async move {
            let response = answered.await?;
            let failure = Status::from_header_map(response.headers());
            let cause = call.ended(failure.as_ref());
            if cause.as_deref() != Some("Unauthenticated") {
                known.iter().for_each(Known::let_in);
            }
            Ok(response)
        }
        .boxed()
    }
}

/// Takes what is known of the connection off a request, and leaves what calls look for in its place.
fn peer(request: &mut Request<Body>) -> Option<Known> {
    let extensions = request.extensions_mut();
    if let Some(Peer { inner, known }) = extensions.remove::<Peer<UdsConnectInfo>>() {
        extensions.insert(inner);
        return Some(known);
    }
    let tls = extensions.get::<TlsConnectInfo<Peer<TcpConnectInfo>>>().map(|tls| tls.get_ref().clone());
    let Peer { inner, known } = tls.or_else(|| extensions.remove::<Peer<TcpConnectInfo>>())?;
    extensions.insert(inner);
    Some(known)
}
