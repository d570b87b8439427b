//! Room for messages: one that is not short is held back until there is some, and nobody waits for what another caller has taken.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::wire::proto::{SettleRequest, WriteRequest, settle_request};
use forebay_client::wire::{self, failure_of};
use forebay_client::{Changes, Client};
use forebay_server::{Grant, Scope, Server, Token};
use forebay_store::{Consumer, NewRow, RateLimiter, Wait};
use futures_util::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Uri, Version, header};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::limits::{hasty, metric, served, until};
use super::raw::Raw;
use crate::conformance::*;

const LONGEST: usize = 256 << 10;
/// A time that is waited for.
const SOON: Duration = Duration::from_millis(10);
const BUSY: &str = "forebay_calls_failed_total{cause=\"Busy\"}";

/// What a call brings: that, and then the end, or no more and no end.
fn body(bytes: Bytes, ends: bool) -> Body {
    let frames = stream::iter([Ok::<_, Infallible>(Frame::data(bytes))]);
    match ends {
        true => Body::new(StreamBody::new(frames)),
        false => Body::new(StreamBody::new(frames.chain(stream::pending()))),
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
        let mut request = Request::new(body(bytes.into(), length == comes));
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

// AW-B09: a deadline, or a reset, ends a call and none of its work.
#[test]
fn what_a_call_has_sent_has_its_room_while_its_work_waits_though_it_is_over() {
    let (world, local) = served(Server::builder().message_bytes_max(LONGEST).room_time_max(SOON));
    solver(&local);
    let limited = Consumer::task(["solver"]).ready(["prompt"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
    local.create_consumer("read", limited).unwrap();
    let raw = Raw::connect(&world);
    let write = |id: &str, bytes: usize, wait: Wait| {
        let (mut changes, row) = (Changes::new(), NewRow::new(0, id).unwrap());
        changes.insert("solver", row, [("prompt", "x".repeat(bytes).into())]).wait(wait);
        WriteRequest { changes: Some(wire::from_changes(&changes)) }
    };
    let cause = |id: &str, bytes: usize| match raw.try_write(write(id, bytes, Wait::No)) {
        Ok(_) => String::new(),
        Err(status) => failure_of(&status).unwrap().cause().to_owned(),
    };
    let held_back = (0..64).map(|at| cause(&format!("q{at}_0_0"), 1)).find(|cause| !cause.is_empty());
    assert_eq!(held_back.unwrap(), "HeldBack");
    assert_eq!(cause("first_0_0", 100 << 10), "HeldBack", "there is room for the message");
    let dropped = (1..=16).find(|at| {
        let message = write(&format!("w{at}_0_0"), 240 << 10, Wait::For(Duration::from_secs(300)));
        let mut request = raw.request(message, &raw.session, &wire::new_call().to_le_bytes());
        request.set_timeout(SOON * *at); // whether or not it is at work by then
        let mut client = raw.client.clone();
        assert!(raw.runtime.block_on(async move { client.write(request).await }).is_err());
        until(&world, "forebay_calls_total{method=\"Write\",outcome=\"dropped\"}", f64::from(*at));
        cause("second_0_0", 100 << 10) == "Busy"
    });
    assert!(dropped.is_some_and(|dropped| dropped >= 4), "{dropped:?}");
    while cause("third_0_0", 100 << 10) == "Busy" {
        let Some((incarnation, claim)) = raw.claim("read") else { continue };
        let finish = settle_request::How::Finish(wire::from_changes(&Changes::new()));
        let settle = SettleRequest { incarnation, claim, how: Some(finish), member: 0 };
        let request = raw.request(settle, &raw.session, &wire::new_call().to_le_bytes());
        let mut client = raw.client.clone();
        raw.runtime.block_on(async move { client.settle(request).await }).unwrap();
    }
}
