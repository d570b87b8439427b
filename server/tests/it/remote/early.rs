//! What is refused before memory is made for it, and large answers that nobody takes.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::wire::proto::*;
use forebay_client::wire::{self, BoundedCodec, MESSAGE_BYTES_MAX, Weighed, failure_of, new_call};
use forebay_client::{CellValue, Client, ConnectOptions};
use forebay_server::{Builder, Grant, Server, Token};
use forebay_store::NewRow;
use futures_util::{StreamExt, stream};
use prost::Message;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, IntoStreamingRequest, Request, Status, Streaming};

use super::raw::Raw;
use crate::client::samples_at;
use crate::conformance::*;

/// A limit that is waited for; those who keep it have far less to do.
const SOON: Duration = Duration::from_secs(3);

/// A store that is served over TCP in that way, beside a client of its own process.
fn served(builder: Builder) -> (World, Client) {
    let mut world = World::new(Way::Embedded);
    let builder = builder.grpc("127.0.0.1:0".parse().unwrap()).piece_time_max(SOON);
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let local = world.client();
    world.way = Way::Tcp;
    (world, local)
}

/// The number of that name on the page of metrics; 0 while it is not there.
fn metric(world: &World, name: &str) -> f64 {
    samples_at(world.server.as_ref().unwrap().address().unwrap()).get(name).copied().unwrap_or_default()
}

/// Makes a call with whatever messages, and gives its answer as it begins.
async fn begin<Q: Message + 'static, A: Message + Default + Weighed + 'static>(
    channel: Channel,
    path: &'static str,
    messages: impl IntoStreamingRequest<Message = Q>,
) -> Result<Streaming<A>, Status> {
    let mut calls = tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    calls.ready().await.unwrap();
    let codec = BoundedCodec::<Q, A>::default();
    let request = messages.into_streaming_request();
    Ok(calls.streaming(request, PathAndQuery::from_static(path), codec).await?.into_inner())
}

/// The same, until it is answered.
async fn call<Q: Message + 'static, A: Message + Default + Weighed + 'static>(
    channel: Channel,
    path: &'static str,
    messages: impl IntoStreamingRequest<Message = Q>,
) -> Result<A, Status> {
    let mut answers = begin(channel, path, messages).await?;
    Ok(answers.message().await?.expect("an answer"))
}

#[test]
fn who_is_not_let_in_hears_so_before_a_message_of_his_was_read() {
    let boss = Grant::new("boss", Token::new("boss").unwrap());
    let (world, _) = served(Server::builder().grant(boss).readers_without_grants(true));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = world.address().replace("grpc://", "http://");
    let write = "/forebay.v1.Store/Write";
    let refused = |result: Result<WriteReply, Status>| result.unwrap_err().code();
    runtime.block_on(async {
        let channel = Endpoint::new(address).unwrap().connect().await.unwrap();
        // A message that does not end would be waited for by whoever reads it.
        let endless = || stream::iter([WriteRequest::default()]).chain(stream::pending());
        assert_eq!(refused(call(channel.clone(), write, endless()).await), Code::Unauthenticated);
        let large = ArrowPiece { bytes: vec![0; 32 << 20].into() };
        assert_eq!(refused(call(channel.clone(), write, stream::iter([large])).await), Code::Unauthenticated);
        let mut shown = Request::new(stream::iter([WriteRequest::default()]));
        shown.metadata_mut().insert("authorization", "Bearer boss".parse().unwrap());
        assert_eq!(refused(call(channel, write, shown).await), Code::FailedPrecondition, "has no session");
    });
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"Unauthenticated\"}"), 2.0);
    assert_eq!(metric(&world, "forebay_calls_total{method=\"Write\",outcome=\"input\"}"), 2.0);
}

// Two bytes stand for a change of hundreds: 64 MiB of them would take eleven gigabytes, and 64 KiB, which take no room, twelve megabytes.
#[test]
fn a_short_message_that_stands_for_much_is_refused_before_it_is_read() {
    let (world, local) = served(Server::builder());
    let table = solver(&local);
    let raw = Raw::connect(&world);
    for number in [32_000, 4 << 20] {
        let changes = || ArrowPiece { bytes: [0x0A, 0].repeat(number).into() }; // as a write of changes is written
        let piece = || ArrowPiece { bytes: changes().encode_to_vec().into() }; // as the first piece of one
        for (path, message) in [("/forebay.v1.Store/Write", changes()), ("/forebay.v1.Bulk/Write", piece())] {
            let name = new_call().to_le_bytes();
            let request = raw.request(stream::iter([message]), &raw.session, &name);
            let answer = raw.runtime.block_on(call::<_, WriteReply>(raw.channel.clone(), path, request));
            let status = answer.unwrap_err();
            let error = failure_of(&status).unwrap();
            assert_eq!(
                (status.code(), error.cause()),
                (Code::InvalidArgument, "TooLarge"),
                "{path}: {status}"
            );
            let is_whole = error.to_string().contains(&wire::WEIGHT_MAX.to_string());
            assert_eq!(is_whole, number > 1 << 20, "{path}: {error}");
        }
    }
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"TooLarge\"}"), 4.0);
    raw.insert("q_0_0", "?", &[1; 16]).unwrap();
    assert_eq!(table.counts().unwrap().written, 1);
}

#[test]
fn a_large_answer_that_nobody_takes_is_let_go_of_and_others_come_whole() {
    let (world, local) = served(Server::builder());
    let table = solver(&local);
    let text = "0123456789abcdef".repeat(1 << 19);
    let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", (&*text).into())]).unwrap();
    let raw = Raw::connect(&world);
    let ask =
        ReadCellRequest { table: "solver".to_owned(), row: wire::from_row(row), column: "prompt".to_owned() };
    let request = raw.request(stream::iter([ask]), &raw.session, &[1; 16]);
    let path = "/forebay.v1.Store/ReadCell";
    let slow = begin::<_, ReadCellReply>(raw.channel.clone(), path, request);
    let mut slow = raw.runtime.block_on(slow).unwrap(); // and does not read on
    let client = Client::connect(&world.address(), &ConnectOptions::default()).unwrap();
    let read = || client.table("solver").unwrap().cell(row, "prompt").unwrap();
    while metric(&world, "forebay_answers_abandoned_total") < 1.0 {
        assert_eq!(read(), CellValue::Bytes(Bytes::from(text.clone())));
    }
    let ended = raw.runtime.block_on(async move { slow.message().await });
    assert_eq!(ended.unwrap_err().code(), Code::DeadlineExceeded, "no answer that is cut off looks whole");
    assert_eq!(metric(&world, "forebay_answers_abandoned_total"), 1.0);
    assert_eq!(metric(&world, "forebay_calls_total{method=\"ReadCell\",outcome=\"ok\"}").min(2.0), 2.0);
}
