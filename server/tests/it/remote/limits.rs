//! What clients may take, and for how long: who takes more is refused and counted, and nobody else is touched.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use arrow_array::cast::AsArray;
use forebay_client::wire::{self, proto::*};
use forebay_client::{Ask, Changes, Client, ConnectOptions, Role};
use forebay_server::{Builder, Grant, Server, Token};
use forebay_store::{Consumer, Kind, Lists, NewRow, SampleId, Wait, Which};
use tonic::Code;

use super::raw::Raw;
use crate::client::samples_at;
use crate::conformance::*;

/// A limit that is waited for; those who keep it have far less to do.
const SOON: Duration = Duration::from_secs(3);

/// A store that is served over TCP in that way, beside a client of its own process.
pub(super) fn served(builder: Builder) -> (World, Client) {
    let mut world = World::new(Way::Embedded);
    let builder = builder.grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let local = world.client();
    world.way = Way::Tcp;
    (world, local)
}

pub(super) fn hasty() -> ConnectOptions {
    ConnectOptions::default().connect_time_max(Duration::from_secs(2)).outage_time_max(Duration::ZERO)
}

/// The number of that name on the page of metrics; 0 while it is not there.
pub(super) fn metric(world: &World, name: &str) -> f64 {
    samples_at(world.server.as_ref().unwrap().address().unwrap()).get(name).copied().unwrap_or_default()
}

pub(super) fn until(world: &World, name: &str, least: f64) {
    while metric(world, name) < least {
        std::thread::yield_now();
    }
}

/// What is left of a connection over which nothing is said any more: it ends.
fn closes(mut stream: TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it stays open");
    }
}

#[test]
fn a_connection_over_which_nobody_is_let_in_is_closed_and_others_stay() {
    let (world, _) = served(
        Server::builder()
            .grant(Grant::new("boss", Token::new("boss").unwrap()))
            .readers_without_grants(true)
            .first_call_time_max(SOON),
    );
    let address = world.server.as_ref().unwrap().grpc_address().unwrap();
    let boss = Client::connect(&world.address(), &hasty().token("boss")).unwrap();
    let table = solver(&boss);
    let silent = TcpStream::connect(address).unwrap();
    let mut preface = TcpStream::connect(address).unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let stranger = Client::connect(&world.address(), &hasty().token("guessed"));
    assert_eq!(stranger.unwrap_err().cause(), "Unauthenticated");
    closes(silent);
    closes(preface);
    until(&world, "forebay_connections_refused_total{door=\"grpc\",reason=\"silent\"}", 2.0);
    row(&table, 0, "q_0_0", None); // over the connection of before
    assert_eq!(metric(&world, "forebay_sessions"), 1.0);
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"Unauthenticated\"}"), 1.0);
}

#[test]
fn one_host_may_have_so_many_connections_and_the_socket_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("grpc.sock");
    let (world, _) = served(Server::builder().connections_per_host_max(1).grpc_socket(&socket));
    let first = Client::connect(&world.address(), &hasty()).unwrap();
    assert_eq!(Client::connect(&world.address(), &hasty()).unwrap_err().kind(), Kind::Retry);
    let beside = Client::connect(&format!("unix://{}", socket.display()), &hasty()).unwrap();
    assert!(first.tables().unwrap().is_empty() && beside.tables().unwrap().is_empty());
    assert!(
        metric(&world, "forebay_connections_refused_total{door=\"grpc\",reason=\"too_many_of_host\"}") >= 1.0
    );
    drop(first);
    while Client::connect(&world.address(), &hasty()).is_err() {} // once the server sees that it is gone
}

// AW-05, AW-15, AW-B06
#[test]
fn one_client_more_than_may_be_hears_so_at_once_and_takes_no_place() {
    let (world, _) = served(Server::builder().sessions_max(8));
    let connect = || Client::connect(&world.address(), &hasty());
    for _ in 0..2 {
        let all: Vec<Client> = (0..8).map(|_| connect().unwrap()).collect();
        let error = connect().unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Capacity, "Sessions"));
        assert!(error.to_string().contains("8 clients of at most 8"), "{error}");
        assert!(all.iter().all(|client| client.tables().is_ok()));
        drop(all); // and all of their places are there again
    }
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"Sessions\"}"), 2.0);
    assert_eq!(metric(&world, "forebay_sessions_ended_total{why=\"closed\"}"), 16.0);
}

// AW-B09, AW-B10
#[test]
fn a_message_that_is_larger_than_may_be_is_refused_and_the_session_stays() {
    let (world, _) = served(Server::builder().message_bytes_max(4 << 10));
    let client = Client::connect(&world.address(), &hasty()).unwrap();
    let table = solver(&client);
    let long = "x".repeat(5 << 10);
    let insert = |text: &str| table.insert(NewRow::new(0, "q_0_?").unwrap(), [("prompt", text.into())]);
    let error = insert(&long).unwrap_err();
    assert!(error.cause() == "TooLarge" && error.to_string().contains("4096"), "{error}");
    insert("short").unwrap();
    let raw = Raw::connect(&world);
    let refused = raw.insert("r_0_?", &long, &[1; 16]).unwrap_err();
    assert_eq!(refused, Code::OutOfRange, "by who does not ask how much may be");
    raw.insert("r_0_?", "short", &[2; 16]).unwrap();
    assert_eq!(table.counts().unwrap().written, 2);
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"TooLarge\"}"), 1.0);
}

// AW-B10: the limits are said, and are not those of the library, which takes 4 MiB.
#[test]
fn messages_of_many_mebibytes_are_taken_and_answered_by_default() {
    let (world, _) = served(Server::builder());
    let client = Client::connect(&world.address(), &hasty()).unwrap();
    let table = solver(&client);
    let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    let raw = Raw::connect(&world);
    for mebibytes in [5_u8, 17, 63] {
        let long = "x".repeat(usize::from(mebibytes) << 20);
        raw.insert(&format!("q{mebibytes}_0_0"), &long, &[mebibytes; 16]).unwrap();
        let claim = read.claim_with(up_to(1), Wait::No, &["prompt"]).unwrap().unwrap();
        let columns = claim.columns(["prompt"]).unwrap();
        assert!(columns.column(0).as_string_view().value(0) == long, "{mebibytes} MiB came back as others");
        claim.finish(&Changes::new()).unwrap();
    }
    let refused = raw.insert("larger_0_0", &"x".repeat(64 << 20), &[64; 16]).unwrap_err();
    assert_eq!(refused, Code::OutOfRange, "64 MiB, and what stands around them");
    assert_eq!(table.counts().unwrap().written, 3);
}

#[test]
fn a_connection_is_told_how_many_calls_it_may_have_under_way() {
    let (world, _) = served(Server::builder().calls_per_connection_max(3));
    let mut stream = TcpStream::connect(world.server.as_ref().unwrap().grpc_address().unwrap()).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "the first frame holds the settings");
    let mut settings = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut settings).unwrap();
    let most = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).expect("MAX_CONCURRENT_STREAMS");
    assert_eq!(most[2..], [0, 0, 0, 3]);
}

#[test]
fn who_sends_a_byte_and_no_more_is_ended_and_holds_up_nobody() {
    let (world, _) = served(Server::builder().piece_time_max(SOON));
    let client = Client::connect(&world.address(), &hasty()).unwrap();
    let raw = Raw::connect(&world);
    let object = ObjectRef { key: "w".to_owned(), version: 1, bytes: 100, crc32c: 0 };
    let first = ObjectPiece { object: Some(object), bytes: vec![1].into() };
    let status = raw.put_object_and_stop(first).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("3s"), "{status}");
    client.put_object("w", 1, &[7; 100]).unwrap();
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"Deadline\"}"), 1.0);
}

#[test]
fn who_takes_no_more_of_an_answer_gives_up_its_turn_and_holds_up_nobody() {
    let (world, local) = served(Server::builder().piece_time_max(SOON).room_time_max(20 * SOON));
    let table = solver(&local);
    for at in 0..12 {
        let text = "x".repeat(1 << 20);
        table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), [("prompt", (&*text).into())]).unwrap();
    }
    let raw = Raw::connect(&world);
    // As many as may run at the same time, of whoever, and nobody reads on. Of one client half of them may: the others wait for these.
    let slow: Vec<_> = (0..16).map(|at| raw.query("SELECT prompt FROM solver", &[at; 16])).collect();
    let client = Client::connect(&world.address(), &hasty()).unwrap();
    let (_, rows) = client.query("SELECT count(*) FROM solver").unwrap(); // waits until they are ended
    assert_eq!(rows[0].num_rows(), 1);
    until(&world, "forebay_answers_abandoned_total", 16.0);
    for ended in raw.read_on(slow) {
        assert_eq!(
            ended.unwrap_err().code(),
            Code::DeadlineExceeded,
            "no answer that is cut off looks whole"
        );
    }
}

#[test]
fn a_claim_is_ended_by_nobody_else() {
    let (world, local) = served(Server::builder());
    let (table, judge) = (solver(&local), judge(&local));
    row(&table, 0, "q_0_0", None);
    drop(judge);
    let (one, other) = (world.client(), world.client());
    let ask = Ask { consumer: "judge", rule: up_to(1), role: Role::Task, owner: None, columns: &[] };
    let held = one.connection().claim(&ask, Wait::No).unwrap().unwrap();
    let none = Changes::new();
    let thefts = [
        other.connection().finish(held.epoch, &none).map(drop),
        other.connection().release(held.epoch),
        other.connection().accumulated(held.epoch),
        other.connection().extend(held.epoch, Duration::from_secs(1)).map(drop),
        other.connection().columns(held.epoch, &["response"], Lists::Together).map(drop),
    ];
    for theft in thefts {
        assert_eq!(theft.unwrap_err().cause(), "ClaimFenced");
    }
    assert_eq!(metric(&world, "forebay_calls_failed_total{cause=\"ClaimFenced\"}"), 5.0);
    assert_eq!(metric(&world, "forebay_session_claims"), 1.0);
    one.connection().finish(held.epoch, &none).unwrap();
    assert_eq!(metric(&world, "forebay_session_claims"), 0.0);
}

#[test]
fn a_token_that_expires_lets_in_no_call_any_more() {
    let soon = SystemTime::now() + Duration::from_secs(2);
    let grants = [
        Grant::new("brief", Token::new("brief").unwrap()).until(soon),
        Grant::new("boss", Token::new("boss").unwrap()),
    ];
    let (world, _) = served(grants.into_iter().fold(Server::builder(), Builder::grant));
    let boss = Client::connect(&world.address(), &hasty().token("boss")).unwrap();
    let brief = Client::connect(&world.address(), &hasty().token("brief"));
    let error = loop {
        match brief
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|brief| brief.tables().map_err(|e| e.to_string()))
        {
            Ok(_) => assert!(SystemTime::now() < soon + Duration::from_secs(60), "it does not end"),
            Err(error) => break error,
        }
    };
    assert!(error.contains("\"brief\" has expired") && SystemTime::now() >= soon, "{error}");
    assert!(boss.tables().unwrap().is_empty());
}

#[test]
fn a_wait_for_an_object_ends_with_the_token_of_who_waits() {
    let brief = Grant::new("brief", Token::new("brief").unwrap()).until(SystemTime::now() + SOON);
    let (world, _) = served(Server::builder().grant(brief).readers_without_grants(true));
    let brief = Client::connect(&world.address(), &hasty().token("brief")).unwrap();
    let (since, long) = (Instant::now(), Wait::For(Duration::from_secs(50)));
    let error = brief.objects().get("nothing", Which::AtLeast(1, long)).unwrap_err();
    assert_eq!(error.cause(), "Unauthenticated", "{error}");
    assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
}

#[test]
fn rows_are_found_by_the_thousand_in_one_call_and_one_that_asks_for_more_is_refused() {
    let (world, _) = served(Server::builder());
    let client = Client::connect(&world.address(), &hasty()).unwrap();
    let table = solver(&client);
    let samples: Vec<SampleId> = (0..5_000).map(|at| format!("q{at}_0_0").parse().unwrap()).collect();
    let asked: Vec<(u64, &SampleId)> = samples.iter().map(|sample| (0, sample)).collect();
    assert_eq!(table.find_all(&asked).unwrap(), vec![None; 5_000]);
    assert_eq!(metric(&world, "forebay_calls_total{method=\"Find\",outcome=\"ok\"}"), 1.0);
    let raw = Raw::connect(&world);
    let identities = vec![Identity { policy_version: 0, sample_id: "q_0_0".to_owned() }; 10_001];
    let message = FindRequest { table: "solver".to_owned(), identities };
    let (mut caller, request) = (raw.client.clone(), raw.request(message, &raw.session, &[1; 16]));
    let refused = raw.runtime.block_on(async move { caller.find(request).await }).unwrap_err();
    assert_eq!(wire::failure_of(&refused).unwrap().cause(), "TooMany");
}
