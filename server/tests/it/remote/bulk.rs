//! Writes in frames: the same as others, whatever happens on the way.

use std::time::Duration;

use forebay_client::wire::proto::*;
use forebay_client::wire::{self, failure_of, new_call};
use forebay_client::{CellValue, Changes, Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::{Kind, NewRow, PlacedKind, Row};
use futures_util::{StreamExt, stream};
use tonic::Status;

use super::proxy::Proxy;
use super::raw::Raw;
use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);

/// Rows that take several frames, with a value that is longer than one.
pub(super) fn large(round: usize) -> (Changes<'static>, Vec<i32>) {
    let response: Vec<i32> = (0..100_000).map(|at| at * 7 + round as i32).collect();
    let mut changes = Changes::new();
    for at in 0..8 {
        let cells = [("prompt", "p".repeat(3_000).into()), ("response", response.clone().into())];
        changes.insert("solver", NewRow::new(0, &format!("q{round}_0_{at}")).unwrap(), cells);
    }
    (changes, response)
}

fn holds(client: &Client, row: Row, response: &[i32]) {
    let table = client.table_named("solver");
    let bytes: Vec<u8> = response.iter().flat_map(|token| token.to_le_bytes()).collect();
    assert_eq!(table.cell(row, "response").unwrap(), CellValue::Bytes(bytes.into()));
    assert_eq!(table.cell(row, "prompt").unwrap(), CellValue::Bytes("p".repeat(3_000).into()));
}

#[test]
fn a_large_write_is_the_same_on_every_way_waited_for_or_not() {
    on_every_way(|world| {
        let client = world.client();
        solver(&client);
        let (now, response) = large(0);
        let rows = client.write(&now).unwrap();
        let (later, other) = large(1);
        let later = client.write_async(&later).unwrap().wait().unwrap();
        assert_eq!((rows.len(), later.len()), (8, 8));
        holds(&client, rows[7], &response);
        holds(&client, later[0], &other);
        let mut replaced = Changes::new();
        replaced.write("solver", rows[0], [("response", other.into())]);
        assert_eq!(client.write(&replaced).unwrap_err().kind(), Kind::State, "its cell is final");
    });
}

// FX-B16: whatever of the stream or of its answer was cut off, the rows are there once.
#[test]
fn a_large_write_that_is_cut_off_anywhere_is_made_once() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().session_grace(HOUR).grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::to(server.grpc_address().unwrap());
    world.server = Some(server);
    let options = ConnectOptions::default().outage_time_max(HOUR);
    let client = Client::connect(&proxy.address(), &options).unwrap();
    let table = solver(&client);
    let sent = [0, 1, 9, 100, 1_000, 10_000, 262_000, 263_000, 400_000, 1_000_000, 3_200_000];
    let cuts = sent.map(|bytes| (bytes, true)).into_iter().chain([0, 9, 20, 40].map(|bytes| (bytes, false)));
    for (round, (bytes, of_client)) in cuts.enumerate() {
        let (changes, response) = large(round);
        match of_client {
            true => proxy.cut_after_sent(bytes),
            false => proxy.cut_after(bytes),
        }
        let rows = client.write(&changes).unwrap();
        assert!(!proxy.is_cut_ahead(), "nothing was cut after {bytes} bytes");
        assert_eq!(rows.len(), 8);
        holds(&Client::embedded(world.store.clone()), rows[3], &response);
        assert_eq!(table.counts().unwrap().written, 8 * (round as u64 + 1), "after {bytes} bytes");
    }
}

/// A call of `Bulk` with these messages, by hand.
pub(super) fn bulk(raw: &Raw, pieces: Vec<BulkPiece>) -> Result<WriteReply, Status> {
    let mut client = bulk_client::BulkClient::new(raw.channel.clone());
    let request = raw.request(stream::iter(pieces), &raw.session, &new_call().to_le_bytes());
    raw.runtime.block_on(async move { client.write(request).await }).map(tonic::Response::into_inner)
}

/// An insert of a row whose prompt is a content of a frame; the row says that so often.
pub(super) fn head(places: &[(u32, u32)], bytes: u64) -> BulkPiece {
    let mut changes = Changes::new();
    for at in 0..places.len() {
        changes.insert("solver", NewRow::new(0, &format!("b{at}_0_?")).unwrap(), [("prompt", "?".into())]);
    }
    let mut places = places.iter();
    let message = wire::from_changes_placed(&changes, &mut |_, _| {
        places.next().map(|(frame, at)| wire::from_framed(*frame, *at, PlacedKind::Utf8))
    });
    BulkPiece { write: Some(WriteRequest { changes: Some(message) }), bytes, ..Default::default() }
}

pub(super) fn framed(contents: &[&[u8]], packed: bool) -> BulkPiece {
    BulkPiece { frame: wire::frame_of(contents, packed), ..Default::default() }
}

// AW-B09, AW-B10
#[test]
fn frames_that_nobody_meant_are_refused_by_name_and_take_no_room() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().bulk_bytes_max(1 << 20).grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let local = world.client();
    world.way = Way::Tcp;
    let (table, raw) = (solver(&local), Raw::connect(&world));
    let zeros = vec![b'0'; 900 << 10];
    let one = || framed(&[b"one"], false);
    let cases = [
        ("nothing at all", vec![], "Protocol"),
        ("no changes first", vec![one()], "Protocol"),
        ("more than is taken", vec![head(&[(0, 0)], (1 << 20) + 1), one()], "TooLarge"),
        ("more than was said", vec![head(&[(0, 0)], 18), one()], "TooLarge"),
        ("more than was said, packed", vec![head(&[(0, 0)], 100), framed(&[&zeros], true)], "TooLarge"),
        ("a frame that is none", vec![head(&[(0, 0)], 19), BulkPiece::default()], "Protocol"),
        ("a frame that did not come", vec![head(&[(1, 0)], 19), one()], "Protocol"),
        ("a content that did not come", vec![head(&[(0, 1)], 19), one()], "Protocol"),
        ("one content for two rows", vec![head(&[(0, 0), (0, 0)], 19), one()], "Protocol"),
        ("a text that is none", vec![head(&[(0, 0)], 100), framed(&[&[0xff; 9]], false)], "Protocol"),
        (
            "a frame with the changes",
            vec![BulkPiece { frame: one().frame, ..head(&[(0, 0)], 19) }],
            "Protocol",
        ),
        (
            "changes with a frame",
            vec![head(&[(0, 0)], 19), BulkPiece { frame: one().frame, ..head(&[], 0) }],
            "Protocol",
        ),
        (
            "a message that is larger than was said",
            vec![head(&[(0, 0)], 19), framed(&[&zeros], false)],
            "TooLarge",
        ),
        ("nothing behind the changes", vec![head(&[(0, 0)], 19)], "Protocol"),
        ("many small frames", [vec![head(&[(0, 0)], 57)], vec![one(), one(), one()]].concat(), "Protocol"),
    ];
    for _ in 0..3 {
        for (what, pieces, cause) in &cases {
            let status = bulk(&raw, pieces.clone()).unwrap_err();
            assert_eq!(
                failure_of(&status).map(|error| error.cause().to_owned()).as_deref(),
                Some(*cause),
                "{what}: {status}"
            );
        }
    }
    assert_eq!(table.counts().unwrap().written, 0);
    // All that there is: two of the largest at once, twice. One permit that did not come back would be missed.
    for at in 0..4 {
        let sound = vec![head(&[(0, 0)], 1 << 20), framed(&[&zeros], at % 2 == 0)];
        assert_eq!(bulk(&raw, sound).unwrap().rows.len(), 1, "there is as much room as before");
    }
    let rest = Client::connect(&world.address(), &ConnectOptions::default()).unwrap();
    assert_eq!(rest.table("solver").unwrap().counts().unwrap().written, 4);
    let (too_large, _) = large(0);
    assert_eq!(rest.write(&too_large).unwrap_err().cause(), "TooLarge");
}

/// A call of `Bulk` under that name.
fn bulk_named(raw: &Raw, name: u128, pieces: Vec<BulkPiece>) -> Result<WriteReply, Status> {
    let mut client = bulk_client::BulkClient::new(raw.channel.clone());
    let request = raw.request(stream::iter(pieces), &raw.session, &name.to_le_bytes());
    raw.runtime.block_on(async move { client.write(request).await }).map(tonic::Response::into_inner)
}

#[test]
fn a_stream_that_ended_short_is_not_the_answer_of_its_name() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let table = solver(&world.client());
    world.way = Way::Tcp;
    let raw = Raw::connect(&world);
    let short = vec![head(&[(0, 0)], 19)];
    let whole = vec![head(&[(0, 0)], 19), framed(&[b"one"], false)];
    assert!(bulk_named(&raw, 7, short.clone()).is_err());
    let rows = bulk_named(&raw, 7, whole).unwrap().rows;
    // Whoever asks again needs to bring nothing.
    assert_eq!((rows.len(), bulk_named(&raw, 7, short).unwrap().rows), (1, rows));
    assert_eq!(table.counts().unwrap().written, 1);
}

// A session that holds all it may is told to ask again, and others are served beside it.
#[test]
fn a_session_that_holds_its_room_keeps_out_itself_and_nobody_else() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().bulk_bytes_max(4 << 20).room_time_max(Duration::from_millis(10));
    let builder = builder.grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    let (client, raw) = (world.client(), Raw::connect(&world));
    let table = solver(&client);
    let mut slow = bulk_client::BulkClient::new(raw.channel.clone());
    let pieces = stream::iter([head(&[(0, 0)], 4 << 20)]).chain(stream::pending());
    let request = raw.request(pieces, &raw.session, &new_call().to_le_bytes());
    let held = raw.runtime.spawn(async move { slow.write(request).await });
    let one = || vec![head(&[(0, 0)], 19), framed(&[b"one"], false)];
    let busy = loop {
        if let Err(status) = bulk(&raw, one()) {
            break failure_of(&status).unwrap();
        }
    };
    assert_eq!((busy.kind(), busy.cause(), busy.wait_before_retry().is_some()), (Kind::Retry, "Busy", true));
    assert_eq!(client.write(&large(0).0).unwrap().len(), 8);
    held.abort();
    while bulk(&raw, one()).is_err() {} // until the server sees that it is gone
    assert!(table.counts().unwrap().written >= 9);
}

// What a call brings is not read before there is room for it: whoever waits so is held back, and goes on.
#[test]
fn writes_in_frames_wait_for_room_and_all_are_made() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().bulk_bytes_max(4 << 20).grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    let client = Client::connect(&world.address(), &ConnectOptions::default()).unwrap();
    let table = solver(&client);
    let writes: Vec<_> = (0..16).map(|round| client.write_async(&large(round).0).unwrap()).collect();
    writes.into_iter().for_each(|write| assert_eq!(write.wait().unwrap().len(), 8));
    assert_eq!(table.counts().unwrap().written, 8 * 16);
}
