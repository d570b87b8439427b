//! What stands between the transport and the calls: who asks is found out before anything of the message is read, every call is
//! counted, its message has to come at a pace and its answer to be taken at one, and the connection may stay once its caller was
//! let in.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use forebay_client::Error;
use forebay_client::wire::from_error;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Extensions, HeaderMap, Request, Response, header};
use tonic::server::NamedService;

use super::call::is_of_own_user;
use super::pace::{Clock, Paced};
use super::taken::taken_in_time;
use super::tally::{Tally, method_of};
use crate::access::{Access, Caller};
use crate::connections::Known;

/// The calls that are answered by streams. Their pieces have a pace of their own, or are pushed as there is room for them at the
/// client, however long that takes.
const STREAMS: [&str; 14] = [
    "Open",
    "Change",
    "ReadCells",
    "Query",
    "ReadSnapshot",
    "Subscribe",
    "Columns",
    "GetObject",
    "ReadObject",
    "Peek",
    "Verify",
    "Compact",
    "Backup",
    "Replay",
];

/// The calls that are asked on and on, of which there may be nothing to read for as long as their client has nothing to ask. Their messages are short.
const LASTING: [&str; 1] = ["Change"];

/// A service, observed.
#[derive(Clone, Debug)]
pub(super) struct Observed<S> {
    inner: S,
    access: Arc<Access>,
    tally: Tally,
    piece_time_max: Duration,
}

impl<S> Observed<S> {
    pub(super) fn new(inner: S, access: Arc<Access>, tally: Tally, piece_time_max: Duration) -> Self {
        Observed { inner, access, tally, piece_time_max }
    }
}

impl<S: NamedService> NamedService for Observed<S> {
    const NAME: &'static str = S::NAME;
}

/// Who asks: by token, or as the user that this process runs as, over a socket that says so.
fn caller_of(access: &Access, headers: &HeaderMap, extensions: &Extensions) -> Result<Caller, Error> {
    if is_of_own_user(extensions) {
        return Ok(Caller::trusted());
    }
    let shown = headers.get(header::AUTHORIZATION).and_then(|header| header.to_str().ok());
    access.caller(shown.unwrap_or_default())
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
        let known = Known::of(request.extensions_mut());
        let method = method_of(request.uri().path());
        let call = self.tally.call(method);
        let caller = match caller_of(&self.access, request.headers(), request.extensions()) {
            Ok(caller) => Arc::new(caller),
            Err(error) => {
                let status = from_error(&error);
                call.ended(Some(&status));
                return ready(Ok(status.into_http())).boxed(); // nothing of the message was read
            }
        };
        known.iter().for_each(Known::let_in);
        request.extensions_mut().insert(caller);
        let (piece_time_max, clock) = (self.piece_time_max, Clock::default());
        request.extensions_mut().insert(clock.clone());
        let request = match LASTING.contains(&method) {
            true => request,
            false => request.map(|body| Body::new(Paced::new(body, piece_time_max, clock))),
        };
        let answered = self.inner.call(request);
        let tally = self.tally.clone();
        async move {
            let response = answered.await?;
            let failure = Status::from_header_map(response.headers());
            call.ended(failure.as_ref());
            if failure.is_some() || STREAMS.contains(&method) {
                return Ok(response);
            }
            Ok(response.map(|body| taken_in_time(body, piece_time_max, tally)))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_is_answered_by_a_stream_is_known_as_one() {
        let protocol = concat!(
            include_str!("../../../client/proto/forebay/v1/store.proto"),
            include_str!("../../../client/proto/forebay/v1/objects.proto"),
            include_str!("../../../client/proto/forebay/v1/admin.proto"),
            include_str!("../../../client/proto/forebay/v1/history.proto")
        );
        let calls = protocol.lines().filter(|line| line.contains("returns (stream "));
        let calls = calls.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let (mut calls, mut streams): (Vec<_>, Vec<_>) = (calls.collect(), STREAMS.to_vec());
        calls.sort_unstable();
        streams.sort_unstable();
        assert_eq!(streams, calls);
    }
}
