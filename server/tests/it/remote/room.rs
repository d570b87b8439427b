//! Room for messages: one that is not short is held back until there is some, and nobody waits for what another caller has taken.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use forebay_client::Client;
use forebay_client::wire::failure_of;
use forebay_server::{Grant, Scope, Server, Token};
use forebay_store::NewRow;
use http_body::Frame;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Uri, Version, header};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::limits::{hasty, metric, served, until};
use crate::conformance::*;

const LONGEST: usize = 256 << 10;
const BUSY: &str = "forebay_calls_failed_total{cause=\"Busy\"}";

/// What a call brings: that, and then no more and no end, or the end.
struct Brought(Option<Bytes>, bool);

impl http_body::Body for Brought {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.1 => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// Somebody with a token for whom no library speaks.
struct Caller {
    runtime: Runtime,
    channel: Channel,
    token: &'static str,
}

impl Caller {
    fn new(world: &World, token: &'static str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = world.address().replace("grpc://", "http://");
        let channel = runtime.block_on(Endpoint::new(address).unwrap().connect()).unwrap();
        Caller { runtime, channel, token }
    }

    /// A call with a message that is said to be so long, of which some comes. How it fails.
    fn call(&self, length: usize, comes: usize) -> JoinHandle<Status> {
        let mut bytes = vec![0];
        bytes.extend((length as u32).to_be_bytes());
        bytes.resize(5 + comes, 0xFF);
        let mut request = Request::new(Body::new(Brought(Some(bytes.into()), length == comes)));
        (*request.method_mut(), *request.version_mut()) = ("POST".parse().unwrap(), Version::HTTP_2);
        *request.uri_mut() = Uri::from_static("/forebay.v1.Store/Find");
        request.headers_mut().insert(header::CONTENT_TYPE, "application/grpc".parse().unwrap());
        let shown = format!("Bearer {}", self.token);
        request.headers_mut().insert(header::AUTHORIZATION, shown.parse().unwrap());
        let mut channel = self.channel.clone();
        self.runtime.spawn(async move {
            std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
            let response = channel.call(request).await.unwrap();
            Status::from_header_map(response.headers()).unwrap_or_else(|| Status::ok("it went well"))
        })
    }

    /// Why a whole message of so many bytes is refused.
    fn refused(&self, bytes: usize) -> String {
        let status = self.runtime.block_on(self.call(bytes, bytes)).unwrap();
        assert_ne!(status.code(), Code::Ok);
        failure_of(&status).map_or_else(|| status.code().to_string(), |failure| failure.cause().to_owned())
    }
}

// AW-B09, AW-B10: what is announced has its room before it comes, so nobody holds memory that is counted nowhere.
#[test]
fn messages_that_are_announced_and_do_not_come_keep_out_neither_other_callers_nor_short_messages() {
    let token = |token: &str| Token::new(token).unwrap();
    let builder = Server::builder()
        .message_bytes_max(LONGEST)
        .bulk_bytes_max(0) // what is written comes in messages
        .room_time_max(Duration::from_millis(10))
        .grant(Grant::new("boss", token("boss")))
        .grant(Grant::new("reads", token("reads")).scopes([Scope::Read]))
        .readers_without_grants(true);
    let (world, _) = served(builder);
    let [boss, reads] = ["boss", "reads"]
        .map(|token| Client::connect(&world.address(), &hasty().token(token).neighbour(false)).unwrap());
    let table = solver(&boss);
    let insert = |id: &str, prompt: &str| {
        table.insert(NewRow::new(0, id).unwrap(), [("prompt", prompt.into())]).unwrap()
    };
    let first = insert("q_0_0", "short");
    let stranger = Caller::new(&world, "reads");
    assert_ne!(stranger.refused(100 << 10), "Busy", "there is room");
    let announced: Vec<_> = (0..4).map(|_| stranger.call(LONGEST, 10)).collect();
    while stranger.refused(100 << 10) != "Busy" {} // until all have begun
    insert("q_0_1", &"x".repeat(200 << 10));
    assert_eq!(reads.tables().unwrap().len(), 1);
    let before = metric(&world, BUSY);
    std::thread::scope(|scope| {
        let rows = vec![first; 5_000];
        let table = reads.table("solver").unwrap();
        let cells = scope.spawn(move || table.cells(&rows, "prompt").unwrap().len());
        until(&world, BUSY, before + 1.0);
        announced.iter().for_each(JoinHandle::abort);
        assert_eq!(cells.join().unwrap(), 5_000, "who is told to ask again does so until there is room");
    });
    while stranger.refused(100 << 10) == "Busy" {} // until the server sees that they are gone
}
