//! The connection of large writes, broken in every way: each ends by its deadline, its rows are there whole or not at all, and the room
//! that it had comes back.

use std::time::{Duration, Instant};

use forebay_client::wire::new_call;
use forebay_client::wire::proto::*;
use forebay_client::{Changes, Client, ConnectOptions, Error};
use forebay_server::Server;
use forebay_store::{Kind, NewRow};
use futures_util::{StreamExt, stream};

use super::bulk::{bulk, framed, head, large};
use super::proxy::Proxy;
use super::raw::Raw;
use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);
/// A deadline that is waited for.
const SOON: Duration = Duration::from_millis(300);
/// What one session may bring at once, and so half of what all may: more than a socket and the transport hold unread.
const MOST: u64 = 32 << 20;
/// Of one of the writes here.
const ROWS: usize = 40;

/// Rows that bring so much that it is not all sent before some is read.
fn huge(round: usize) -> Changes<'static> {
    let mut changes = Changes::new();
    for at in 0..ROWS {
        let response: Vec<i32> = (0..150_000).map(|token| token * 7 + at as i32).collect();
        let new = NewRow::new(0, &format!("h{round}_0_{at}")).unwrap();
        changes.insert("solver", new, [("response", response.into())]);
    }
    changes
}

/// A server behind a proxy, and a client that has patience.
struct Broken {
    world: World,
    proxy: Proxy,
    patient: Client,
}

impl Broken {
    fn new() -> Self {
        let mut world = World::new(Way::Embedded);
        let builder = Server::builder().session_grace(HOUR).bulk_bytes_max(MOST).room_time_max(SOON / 10);
        let builder = builder.grpc("127.0.0.1:0".parse().unwrap());
        let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let proxy = Proxy::to(server.grpc_address().unwrap());
        world.server = Some(server);
        world.way = Way::Tcp;
        let patient = Client::connect(&proxy.address(), &ConnectOptions::default().outage_time_max(HOUR));
        let patient = patient.unwrap();
        solver(&patient);
        Broken { world, proxy, patient }
    }

    /// A client whose calls have that deadline.
    fn hasty(&self, call_time_max: Duration) -> Client {
        let options = ConnectOptions::default().call_time_max(call_time_max).outage_time_max(HOUR);
        Client::connect(&self.proxy.address(), &options).unwrap()
    }

    fn rows(&self) -> u64 {
        self.world.store.table("solver").unwrap().counts().written
    }

    /// A write's rows are there whole or not at all; whether they are. To be asked when none is under way: one that is late may be
    /// made yet.
    fn has(&self, write: &str, rows: usize) -> bool {
        let table = self.world.store.table("solver").unwrap();
        let is_there = |at: &usize| table.find(0, &format!("{write}_0_{at}").parse().unwrap()).is_some();
        let there = (0..rows).filter(is_there).count();
        assert!(there == 0 || there == rows, "{there} rows of {write}");
        there > 0
    }

    /// All the room is there: as much as two of the largest writes take is taken at the same time. Waits for what goes back late.
    fn has_all_its_room(&self) {
        let [held, beside] = [(); 2].map(|()| Raw::connect(&self.world));
        let mut slow = bulk_client::BulkClient::new(held.channel.clone());
        let pieces = stream::iter([head(&[(0, 0)], MOST)]).chain(stream::pending());
        let request = held.request(pieces, &held.session, &new_call().to_le_bytes());
        let slow = held.runtime.spawn(async move { slow.write(request).await });
        let brings = |bytes| vec![head(&[(0, 0)], bytes), framed(&[b"one"], false)];
        while bulk(&held, brings(19)).is_ok() {} // until it has the room that is its session's
        let until = Instant::now() + HOUR / 30;
        while let Err(status) = bulk(&beside, brings(MOST)) {
            assert!(Instant::now() < until, "room was lost: {status}");
        }
        slow.abort();
    }
}

fn is_late(error: &Error) -> bool {
    (error.kind(), error.cause()) == (Kind::Retry, "Deadline")
}

#[test]
fn a_write_that_nobody_reads_any_more_ends_by_its_deadline_and_others_go_on() {
    let broken = Broken::new();
    let hasty = broken.hasty(SOON);
    for sent in [0, 100_000, 3_000_000] {
        broken.proxy.stick_after_sent(sent);
        let error = hasty.write(&huge(sent as usize)).unwrap_err();
        assert!(is_late(&error), "after {sent} bytes: {error}");
        assert!(broken.proxy.is_stuck(), "after {sent} bytes");
        // Others have a connection of their own.
        row(&broken.patient.table_named("solver"), 0, &format!("beside{sent}_0_0"), None);
        broken.proxy.unstick();
        while hasty.write(&large(sent as usize).0).is_err_and(|error| is_late(&error)) {}
    }
    broken.has_all_its_room();
    for sent in [0, 100_000, 3_000_000] {
        broken.has(&format!("h{sent}"), ROWS);
    }
}

#[test]
fn a_write_whose_server_never_answers_ends_by_its_deadline() {
    let broken = Broken::new();
    let hasty = broken.hasty(SOON);
    for round in 0..3 {
        broken.proxy.set_deaf(true);
        let error = hasty.write(&large(round).0).unwrap_err();
        assert!(is_late(&error), "{error}");
        broken.proxy.set_deaf(false);
        broken.proxy.cut(); // what was swallowed is missed by the connection
        assert_eq!(broken.patient.write(&large(100 + round).0).unwrap().len(), 8);
    }
    broken.has_all_its_room();
    for round in 0..3 {
        broken.has(&format!("q{round}"), 8);
    }
}

// The server hears the end of what its client says and not that the client is gone: the write is sent again, and made once.
#[test]
fn a_write_whose_connection_is_closed_by_half_is_made_once() {
    let broken = Broken::new();
    for (round, sent) in [1, 100, 5_000, 300_000, 1_000_000].into_iter().enumerate() {
        let before = broken.rows();
        broken.proxy.end_after_sent(sent);
        assert_eq!(broken.patient.write(&large(round).0).unwrap().len(), 8, "after {sent} bytes");
        assert!(!broken.proxy.is_cut_ahead(), "nothing was closed after {sent} bytes");
        assert_eq!(broken.rows(), before + 8, "after {sent} bytes");
    }
    broken.has_all_its_room();
}

#[test]
fn a_deadline_that_is_shorter_than_the_transfer_leaves_all_rows_or_none_and_no_room_is_lost() {
    let broken = Broken::new();
    let outcomes: Vec<bool> = (0..12)
        .map(|round| {
            let hasty = broken.hasty(Duration::from_millis(1 << (round % 6 * 2)));
            let outcome = hasty.write(&huge(round));
            assert!(outcome.as_ref().err().is_none_or(is_late), "{outcome:?}");
            outcome.is_ok()
        })
        .collect();
    broken.has_all_its_room();
    for (round, is_made) in outcomes.into_iter().enumerate() {
        assert!(broken.has(&format!("h{round}"), ROWS) || !is_made, "{round}");
    }
}

#[test]
fn a_client_that_goes_while_its_write_is_under_way_takes_no_room_with_it() {
    let broken = Broken::new();
    for sent in [0, 50_000, 2_000_000] {
        let client = broken.hasty(HOUR);
        broken.proxy.stick_after_sent(sent);
        let writing = client.write_async(&huge(sent as usize)).unwrap();
        while !broken.proxy.is_stuck() {
            std::thread::yield_now();
        }
        client.close().unwrap();
        let error = writing.wait().unwrap_err();
        assert_eq!(error.kind(), Kind::Closed, "{error}");
        drop(client);
        broken.proxy.unstick();
        assert_eq!(broken.patient.write(&large(sent as usize).0).unwrap().len(), 8);
    }
    broken.has_all_its_room();
    for sent in [0, 50_000, 2_000_000] {
        broken.has(&format!("h{sent}"), ROWS);
    }
}
