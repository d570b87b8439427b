//! Messages that nobody meant: every call of the protocol with bytes that were changed at random, in a session of its own
//! and outside of it, and bytes below the protocol. The server answers each, nothing panics, and whoever else is there goes on.
//!
//! The long form: `FOREBAY_ROUNDS=300000 FOREBAY_SEED=7 cargo test -p forebay-server --test it fuzzed_long -- --ignored --nocapture`

mod changed;
mod plain;
mod sound;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::Client;
use forebay_client::wire::{self, failure_of, new_call};
use forebay_store::{Randomness, SeededRandomness};
use futures_util::stream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};

use self::changed::{changed, meant};
use self::plain::Plain;
use self::sound::{bulk_head, framed, sound};
use super::raw::Raw;
use crate::conformance::*;

/// A store with a little of everything, behind a server, and somebody who minds the protocol.
fn fuzz(seed: u64, rounds: u64) {
    let world = World::new(Way::Tcp);
    let honest = world.client();
    let table = solver(&honest);
    judge(&honest);
    trainer(&honest);
    let raw = Raw::connect(&world);
    let mut sound = Vec::new();
    let (dice, mut codes) = (SeededRandomness::new(seed), BTreeMap::new());
    for round in 0..rounds {
        if round % 100 == 0 {
            let version = honest.policy("solver").unwrap().version;
            let fresh = row(&table, version, &format!("honest{round}_0_0"), Some(1.0));
            sound = self::sound(
                fresh,
                raw.claim("judge").map_or((1, 1, 0), |(incarnation, number)| (incarnation, number, 0)),
            );
        }
        let pick = || &sound[dice.next_u64() as usize % sound.len()];
        let ((method, message), (_, other)) = (pick(), pick());
        let bytes =
            if dice.next_u64().is_multiple_of(20) { message.clone() } else { meant(message, other, &dice) };
        let code = match call(&raw, method, bytes.clone().into()) {
            Ok(()) => Code::Ok,
            Err(status) => {
                let answered = failure_of(&status).is_some() || status.code() == Code::Internal;
                let panicked = status.message().contains("panic");
                assert!(
                    (answered || wire::is_late(&status)) && !panicked,
                    "seed {seed}, round {round}: {method} with {bytes:02x?} ended as {status:?}"
                );
                status.code()
            }
        };
        *codes.entry(format!("{code:?}")).or_insert(0_u64) += 1;
    }
    eprintln!("seed {seed}, {rounds} messages: {codes:?}");
    drop(raw);
    let counts = honest.table("solver").unwrap().counts().unwrap();
    assert_eq!(counts.written, counts.consumed + counts.excluded.values().sum::<u64>() + counts.open());
}

/// Sends one message as a call of its own, and reads a little of the answer.
fn call(raw: &Raw, method: &str, message: Bytes) -> Result<(), Status> {
    let (service, method, messages) = match method {
        "BulkHead" => ("Bulk", "Write", vec![message, framed()]),
        "BulkFrame" => ("Bulk", "Write", vec![bulk_head(), message]),
        "Overview" | "Evict" => ("Admin", method, vec![message]),
        "ShowRows" | "Replay" => ("History", method, vec![message]),
        "PutObject" | "GetObject" => ("Store", method, vec![message]),
        _ if method.contains("Object") => ("Objects", method, vec![message]),
        _ => ("Store", method, vec![message]),
    };
    let path: PathAndQuery = format!("/forebay.v1.{service}/{method}").parse().unwrap();
    let mut request = raw.request(stream::iter(messages), &raw.session, &new_call().to_le_bytes());
    request.set_timeout(Duration::from_millis(500));
    let mut client = tonic::client::Grpc::new(raw.channel.clone());
    raw.runtime.block_on(async move {
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut answer = client.streaming(request, path, Plain).await?.into_inner();
        let endless = ["Open", "Subscribe"].contains(&method);
        while !endless && answer.message().await?.is_some() {}
        Ok(())
    })
}

#[test]
fn whatever_a_message_holds_it_is_answered_and_nobody_else_is_touched() {
    fuzz(31, 4_000);
}

#[test]
#[ignore = "takes minutes"]
fn fuzzed_long() {
    let from = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (rounds, seed) = (from("FOREBAY_ROUNDS", 300_000), from("FOREBAY_SEED", 100));
    (0..u64::div_ceil(rounds, 20_000)).for_each(|at| fuzz(seed + at, 20_000.min(rounds - at * 20_000)));
}

/// The first bytes of a client: preface, settings, the head of a call, and its message.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x24\x01\x04\0\0\0\x01\x83\x86\x44\x16/forebay.v1.Store/Open\x5f\x10application/grpc\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0";

#[test]
fn whatever_comes_below_the_protocol_disturbs_nobody() {
    for way in [Way::Tcp, Way::Socket] {
        let world = World::new(way);
        let honest = world.client();
        let table = solver(&honest);
        let dice = SeededRandomness::new(41);
        for round in 0..150 {
            say(&world, &changed(BEGINNING, BEGINNING, &dice));
            if round % 50 == 0 {
                row(&table, 0, &format!("q{round}_0_0"), None);
            }
        }
        assert_eq!(table.counts().unwrap().written, 3);
        let other: Client = world.client();
        assert_eq!(other.tables().unwrap(), ["solver"]);
    }
}

/// Says something over a connection of its own, and waits until the server has ended it.
fn say(world: &World, bytes: &[u8]) {
    fn over(mut stream: impl Read + Write, bytes: &[u8], close: impl Fn()) {
        let _ = stream.write_all(bytes); // it may have been ended before
        close();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    match world.way {
        Way::Socket => {
            let stream = std::os::unix::net::UnixStream::connect(world.dir.path().join("grpc.sock")).unwrap();
            over(&stream, bytes, || _ = stream.shutdown(std::net::Shutdown::Write));
        }
        _ => {
            let address = world.server.as_ref().unwrap().grpc_address().unwrap();
            let stream = TcpStream::connect(address).unwrap();
            over(&stream, bytes, || _ = stream.shutdown(std::net::Shutdown::Write));
        }
    }
}
