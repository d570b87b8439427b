//! Readers that lie.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{VALUES, device, get, hello, received};
use crate::device::{Device, StandInDevice};
use crate::publication::announcement::Announcement;
use crate::publication::packet::{connect_to, send, wait_for};
use crate::publication::service::{CONNECTIONS_OF_PROCESS_MAX, HOLDS_MAX};
use crate::publication::wire::{Reply, Request};
use crate::publication::*;

struct World {
    folder: tempfile::TempDir,
    own: StandInDevice,
    publisher: Publisher<StandInDevice>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = device();
        let publisher = Publisher::open(own.clone(), folder.path(), PublisherOptions::default()).unwrap();
        let this = Self { folder, own, publisher };
        this.publish(1);
        this
    }

    fn publish(&self, version: u64) {
        let mut buffer = self.own.allocate(VALUES);
        self.own.upload(&[version as f32; VALUES], &mut buffer, 0);
        let part = PublishedPart { class: "weights", buffer: &buffer, offset: 0, values: VALUES };
        self.publisher.publish("solver", version, 0, &[part]).unwrap();
    }

    /// Versions go on being published and got.
    fn goes_on(&self, first: u64) {
        let reader = Reader::open(device(), self.folder.path(), ReaderOptions::default()).unwrap();
        for version in first..first + 3 {
            self.publish(version);
            assert_eq!(reader.get(&Wanted::latest("solver")).unwrap().stamp.version, version);
        }
    }

    fn connect(&self) -> OwnedFd {
        let announcement = Announcement::find(self.folder.path(), "solver").unwrap().unwrap();
        connect_to(&self.folder.path().join(announcement.socket)).unwrap()
    }

    fn greeted(&self) -> OwnedFd {
        let connection = self.connect();
        assert!(matches!(said(&connection, &hello().bytes()), Some(Reply::Welcome { .. })));
        connection
    }
}

/// What the publisher answers; nothing when it has closed.
fn said(connection: &OwnedFd, bytes: &[u8]) -> Option<Reply> {
    send(connection, bytes, &[]).unwrap();
    received(connection).ok()?.map(|(bytes, _)| Reply::read(&bytes).unwrap())
}

fn is_refused(connection: &OwnedFd, bytes: &[u8], expected: &str) {
    let Some(Reply::Refused { reason }) = said(connection, bytes) else { panic!("{expected}") };
    assert!(reason.contains(expected), "{reason}");
    assert!(!matches!(received(connection), Ok(Some(_))), "nothing more is heard of it");
}

#[test]
fn a_reader_that_does_not_keep_to_the_protocol_is_thrown_out_and_others_go_on() {
    let world = World::new();
    is_refused(&world.connect(), &get().bytes(), "does not say who it is");
    is_refused(&world.connect(), b"nonsense", "no request is of kind");
    is_refused(&world.connect(), &vec![0; 20_000], "too long");
    let mut other = hello().bytes();
    other[5] = 9;
    is_refused(&world.connect(), &other, "it has protocol 9, this is 1");
    is_refused(&world.greeted(), &hello().bytes(), "twice");
    is_refused(&world.greeted(), &Request::Release { hold: 1 }.bytes(), "no hold 1");

    // A hold of somebody else's is none of its own.
    let (one, two) = (world.greeted(), world.greeted());
    let Some(Reply::Granted(grant)) = said(&one, &get().bytes()) else { panic!("no grant") };
    is_refused(&two, &Request::Release { hold: grant.hold }.bytes(), "has no hold");
    assert_eq!(world.publisher.counts().holds, 1);
    let released = said(&one, &Request::Release { hold: grant.hold }.bytes());
    assert_eq!(released, Some(Reply::Released { version: Some(1) }));
    is_refused(&one, &Request::Release { hold: grant.hold }.bytes(), "has no hold");
    assert_eq!(world.publisher.counts().refused, 8);
    world.goes_on(2);
}

#[test]
fn descriptors_from_a_reader_are_closed_and_a_reader_that_reads_nothing_is_thrown_out() {
    let world = World::new();
    let connection = world.greeted();
    let (watched, end) = io::pipe().unwrap();
    send(&connection, &get().bytes(), &[end.as_fd()]).unwrap();
    let answer = received(&connection).unwrap().unwrap();
    assert!(matches!(Reply::read(&answer.0), Ok(Reply::Granted(_))));
    drop(end);
    let until = Instant::now() + Duration::from_secs(60);
    assert_eq!(wait_for(&[watched.as_fd()], Some(until)).unwrap(), [true], "nobody has its other end");
    // It asks for ever and never listens: until there is no room for answers, and then there is no reader.
    let wait = Request::Wait { key: "solver".into(), least: 0, milliseconds: 0 }.bytes();
    while !matches!(send(&connection, &wait, &[]), Err(error) if error.kind() == io::ErrorKind::BrokenPipe) {
        std::thread::yield_now();
    }
    // What it held is its until its process ends, which is this one's: the other slot is left.
    assert_eq!(world.publisher.counts().holds, 1);
    world.publish(2);
    let held = Arc::new(world);
    let exact = Wanted::new("solver", Which::Exact(1));
    let reader = Reader::open(device(), held.folder.path(), ReaderOptions::default()).unwrap();
    assert_eq!(reader.get(&exact).unwrap().stamp.version, 1, "nobody wrote there");
}

// The slot of an answer that a reader has missed is free when he goes, and not only when his process ends.
#[test]
fn a_reader_that_says_goodbye_holds_nothing_whatever_it_was_given_and_did_not_read() {
    let world = World::new();
    for version in [2, 4, 6] {
        let connection = world.greeted();
        send(&connection, &get().bytes(), &[]).unwrap();
        wait_for(&[connection.as_fd()], None).unwrap(); // the answer is there, and is not read
        assert_eq!(world.publisher.counts().holds, 1);
        send(&connection, &Request::Bye.bytes(), &[]).unwrap();
        drop(connection);
        world.publish(version);
        world.publish(version + 1); // waits for the slot
        assert_eq!(world.publisher.counts().holds, 0);
    }
}

/// What it says before it goes is heard, also when nobody can be told of it any more.
#[test]
fn a_goodbye_is_heard_behind_requests_whose_answers_cannot_be_sent() {
    let world = World::new();
    let connection = world.greeted();
    let Some(Reply::Granted(grant)) = said(&connection, &get().bytes()) else { panic!("no grant") };
    send(&connection, &get().bytes(), &[]).unwrap();
    wait_for(&[connection.as_fd()], None).unwrap();
    let state = world.publisher.board.state(); // the publisher's thread stands still
    send(&connection, &Request::Release { hold: grant.hold }.bytes(), &[]).unwrap();
    send(&connection, &Request::Bye.bytes(), &[]).unwrap();
    drop(connection);
    drop(state);
    (2..=3).for_each(|version| world.publish(version));
    assert_eq!(world.publisher.counts().holds, 0);
}

/// Connections that were left with something held, and holds that are never ended, are counted, and there is an end to them.
#[test]
fn one_process_has_so_many_connections_and_one_connection_so_many_holds() {
    let world = World::new();
    for _ in 0..CONNECTIONS_OF_PROCESS_MAX {
        let connection = world.greeted();
        assert!(matches!(said(&connection, &get().bytes()), Some(Reply::Granted(_))));
    }
    let refused = received(&world.connect()).unwrap().unwrap().0;
    let Ok(Reply::Refused { reason }) = Reply::read(&refused) else { panic!("no refusal") };
    assert!(reason.contains("connections already"), "{reason}");
    let other = World::new();
    let connection = other.greeted();
    for _ in 0..HOLDS_MAX {
        assert!(matches!(said(&connection, &get().bytes()), Some(Reply::Granted(_))));
    }
    is_refused(&connection, &get().bytes(), "holds already");
    other.publish(2);
}

#[test]
fn whoever_publishes_is_told_that_nobody_is_served_any_more() {
    let world = World::new();
    world.publisher.board.fail(&io::Error::other("out of spite"));
    let buffer = world.own.allocate(VALUES);
    let part = PublishedPart { class: "weights", buffer: &buffer, offset: 0, values: VALUES };
    let error = world.publisher.publish("solver", 2, 0, &[part]).unwrap_err();
    assert!(matches!(error, PublicationError::Io { .. }), "{error}");
    assert!(error.to_string().contains("out of spite"), "{error}");
}

#[test]
fn a_version_whose_memory_is_lost_is_refused_in_words_and_not_held() {
    let world = World::new();
    world.publisher.board.state().memories.clear();
    is_refused(&world.greeted(), &get().bytes(), "it has lost memory");
    assert_eq!(world.publisher.counts().holds, 0);
}

#[test]
fn a_reader_that_sends_random_packets_harms_nobody() {
    let world = World::new();
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    for _ in 0..300 {
        let connection = world.greeted();
        let mut bytes = [get(), Request::Release { hold: next() % 9 }, hello()][next() as usize % 3].bytes();
        for _ in 0..next() % 4 {
            let at = next() as usize % bytes.len();
            bytes[at] = next() as u8;
        }
        send(&connection, &bytes, &[]).unwrap();
        let waits = bytes[0] == 2; // it may wait for long, and is answered when it is there
        if !waits
            && let Ok(Some((bytes, _))) = received(&connection)
            && let Reply::Granted(grant) = Reply::read(&bytes).unwrap()
        {
            assert!(said(&connection, &Request::Release { hold: grant.hold }.bytes()).is_some());
        }
    }
    world.goes_on(2);
}
