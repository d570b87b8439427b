//! What clients send is read as over gRPC: a message that is not short once there is room in memory for it, and each piece at a pace. Else
//! who sends half of a message, or of the values of a statement, and then nothing would hold the call and what has come for as long as its
//! connection is there. Answers of one message have to be taken in that time, too; those in many see to it themselves.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

use super::Pace;
use crate::access::Caller;
use crate::grpc::held_back::{HeldBack, Messages, Occupied};
use crate::grpc::pace::{Clock, Paced};
use crate::grpc::room::MessageRoom;
use crate::grpc::taken::taken_in_time;

/// The calls that bring streams of messages. Each of these has room of its own.
const BROUGHT_IN_STREAMS: [&str; 3] = ["Handshake", "DoPut", "DoExchange"];
/// The calls whose answer is one message.
const ANSWERED_AT_ONCE: [&str; 3] = ["GetFlightInfo", "PollFlightInfo", "GetSchema"];

/// A service to whose calls messages come once there is room for them, and each piece in time. Calls find the [`Clock`] of it and the room of
/// their message among what is known of them, where who asks is found, too.
#[derive(Clone, Debug)]
pub(super) struct Sent<S> {
    inner: S,
    room: MessageRoom,
    pace: Pace,
}

impl<S> Sent<S> {
    pub(super) fn new(inner: S, room: MessageRoom, pace: Pace) -> Self {
        Sent { inner, room, pace }
    }
}

/// Whether the call of that path is one of these.
fn is_of(methods: &[&str], path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|method| methods.contains(&method))
}

impl<S: NamedService> NamedService for Sent<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Sent<S>
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
        let Some(caller) = request.extensions().get::<Arc<Caller>>().cloned() else {
            return ready(Ok(Status::internal("nobody has looked at who asks").into_http())).boxed();
        };
        let Pace { piece_time_max, tally, .. } = self.pace.clone();
        let is_answered_at_once = is_of(&ANSWERED_AT_ONCE, request.uri().path());
        let brings =
            if is_of(&BROUGHT_IN_STREAMS, request.uri().path()) { Messages::Many } else { Messages::One };
        let (clock, occupied) = (Clock::default(), Occupied::default());
        request.extensions_mut().insert(clock.clone());
        request.extensions_mut().insert(occupied.clone());
        let answered = self.inner.call(request.map(|body| {
            let paced = Body::new(Paced::new(body, piece_time_max, clock.clone()));
            let room = (self.room.clone(), &*caller.name);
            Body::new(HeldBack::new(paced, brings, room, (clock, occupied.clone())))
        }));
        async move {
            let response = answered.await?;
            occupied.give_back();
            if !is_answered_at_once || Status::from_header_map(response.headers()).is_some() {
                return Ok(response);
            }
            Ok(response.map(|body| taken_in_time(body, piece_time_max, tally)))
        }
        .boxed()
    }
}
