//! What stands between the transport and the calls: every call is counted, its message has to come at a pace, and
//! it has at hand the connection that may stay once its caller was let in.

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

use super::pace::{Clock, Paced};
use super::tally::{Tally, method_of};
use crate::connections::Known;

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
        if let Some(known) = Known::of(request.extensions_mut()) {
            request.extensions_mut().insert(known);
        }
        let call = self.tally.call(method_of(request.uri().path()));
        let (piece_time_max, clock) = (self.piece_time_max, Clock::default());
        request.extensions_mut().insert(clock.clone());
        let answered =
            self.inner.call(request.map(|body| Body::new(Paced::new(body, piece_time_max, clock))));
        async move {
            let response = answered.await?;
            let failure = Status::from_header_map(response.headers());
            call.ended(failure.as_ref());
            Ok(response)
        }
        .boxed()
    }
}
