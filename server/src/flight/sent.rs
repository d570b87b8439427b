//! What clients send has to come at a pace, as over gRPC: who sends half of a message, or of the values of a statement, and then nothing
//! would hold the call and what has come for as long as its connection is there.

use std::task::{Context, Poll};
use std::time::Duration;

use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::Request;
use tonic::server::NamedService;

use crate::grpc::pace::{Clock, Paced};

/// A service to whose calls each piece of what is sent has to come in that time. Calls find the [`Clock`] of it among what is known of them.
#[derive(Clone, Debug)]
pub(super) struct SentAtAPace<S> {
    inner: S,
    piece_time_max: Duration,
}

impl<S> SentAtAPace<S> {
    pub(super) fn new(inner: S, piece_time_max: Duration) -> Self {
        SentAtAPace { inner, piece_time_max }
    }
}

impl<S: NamedService> NamedService for SentAtAPace<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for SentAtAPace<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (time, clock) = (self.piece_time_max, Clock::default());
        request.extensions_mut().insert(clock.clone());
        self.inner.call(request.map(|body| Body::new(Paced::new(body, time, clock))))
    }
}
