//! What stands between the transport and the calls: who asks is found out before anything of the message is read, every call is
//! counted, its message is read once there is room for it, has to come at a pace, and its answer to be taken at one, and the
//! connection may stay once its caller was let in.

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

use super::call::{self, is_of_own_user};
use super::held_back::{HeldBack, Messages, Occupied};
use super::pace::{Clock, Paced};
use super::room::MessageRoom;
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
/// The calls that bring streams of messages. Each of these has room of its own.
const BROUGHT_IN_STREAMS: [&str; 1] = ["PutObject"];
/// The service whose calls bring a message and frames behind it.
const IN_FRAMES: &str = "forebay.v1.Bulk";

/// A service, observed.
#[derive(Clone, Debug)]
pub(super) struct Observed<S> {
    inner: S,
    access: Arc<Access>,
    tally: Tally,
    room: MessageRoom,
    piece_time_max: Duration,
}

impl<S> Observed<S> {
    /// One of the services over what all calls share.
    pub(super) fn new(inner: S, access: &Arc<Access>, shared: &call::Service) -> Self {
        let (tally, room) = (shared.tally.clone(), shared.message_room.clone());
        Observed { inner, access: access.clone(), tally, room, piece_time_max: shared.limits.piece_time_max }
    }
}

/// What a call of a service brings.
fn brought_by(service: &str, method: &str) -> Messages {
    match service {
        IN_FRAMES => Messages::OneAndFrames,
        _ if BROUGHT_IN_STREAMS.contains(&method) => Messages::Many,
        _ => Messages::One,
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
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + NamedService,
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
        request.extensions_mut().insert(caller.clone());
        let (piece_time_max, clock, occupied) = (self.piece_time_max, Clock::default(), Occupied::default());
        request.extensions_mut().insert(clock.clone());
        request.extensions_mut().insert(occupied.clone());
        let brought = |body| {
            let paced = Body::new(Paced::new(body, piece_time_max, clock.clone()));
            let room = (self.room.clone(), &*caller.name);
            let messages = brought_by(S::NAME, method);
            Body::new(HeldBack::new(paced, messages, room, (clock, occupied.clone())))
        };
        let request = if LASTING.contains(&method) { request } else { request.map(brought) };
        let answered = self.inner.call(request);
        let tally = self.tally.clone();
        async move {
            let response = answered.await?;
            occupied.give_back();
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

    const PROTOCOL: &str = concat!(
        include_str!("../../../client/proto/forebay/v1/store.proto"),
        include_str!("../../../client/proto/forebay/v1/objects.proto"),
        include_str!("../../../client/proto/forebay/v1/admin.proto"),
        include_str!("../../../client/proto/forebay/v1/history.proto")
    );

    /// The calls whose line in the protocol has that.
    fn calls_with(part: &str) -> Vec<&'static str> {
        let calls = PROTOCOL.lines().filter(|line| line.contains(part));
        let mut calls: Vec<_> =
            calls.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next()).collect();
        calls.sort_unstable();
        calls
    }

    #[test]
    fn every_call_that_is_answered_by_a_stream_is_known_as_one() {
        let mut streams = STREAMS.to_vec();
        streams.sort_unstable();
        assert_eq!(streams, calls_with("returns (stream "));
    }

    #[test]
    fn every_call_that_brings_a_stream_is_known_as_one() {
        let in_frames = ["Write"];
        let mut streams = [&BROUGHT_IN_STREAMS[..], &LASTING, &in_frames].concat();
        streams.sort_unstable();
        let brought = calls_with("(stream ")
            .into_iter()
            .filter(|call| PROTOCOL.lines().any(|line| line.contains(&format!("rpc {call}(stream "))));
        assert_eq!(streams, brought.collect::<Vec<_>>());
        assert_eq!(brought_by(IN_FRAMES, "Write"), Messages::OneAndFrames);
        assert_eq!(brought_by("forebay.v1.Store", "Write"), Messages::One);
        assert_eq!(brought_by("forebay.v1.Store", "PutObject"), Messages::Many);
    }
}
