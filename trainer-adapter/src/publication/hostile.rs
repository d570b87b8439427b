//! Tests: peers of the same user that do not keep to the protocol. They may lie about everything that they send, and get errors for
//! it; nobody else notices.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SocketFlags, accept_with};

use super::announcement::{Announced, Announcement, Door};
use super::catalog::{Ask, Place};
use super::form::ClassForm;
use super::packet::{connect_to, receive, send, wait_for};
use super::wire::{Grant, Reply, Request};
use super::*;
use crate::device::{Device, Share, StandInDevice, StandInOptions, fingerprint};

const VALUES: usize = 100;

fn device() -> StandInDevice {
    StandInDevice::new(StandInOptions::default())
}

fn received(connection: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let until = Instant::now() + Duration::from_secs(60);
    assert_eq!(wait_for(&[connection.as_fd()], Some(until)).unwrap(), [true], "an answer in time");
    receive(connection)
}

/// What a publisher sends for a get: a packet, descriptors beside it.
type Answer = (Vec<u8>, Vec<OwnedFd>);

/// What a reader makes of a publisher that welcomes it, answers its get with `answer`, and everything else with `then`.
fn got(answer: Answer, then: &Reply) -> Result<Vec<f32>, PublicationError> {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let (pid, socket) = (std::process::id(), door.name.clone());
    let announcement = Announcement { node, pid, device: "stand-in:0".into(), socket };
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let then = then.bytes();
    let liar = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(60);
        wait_for(&[door.listener.as_fd()], Some(until)).unwrap();
        let connection = accept_with(&door.listener, SocketFlags::CLOEXEC).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Welcome { device: "stand-in:0".into() }.bytes(), &[]).unwrap();
        received(&connection).unwrap();
        let files: Vec<_> = answer.1.iter().map(AsFd::as_fd).collect();
        send(&connection, &answer.0, &files).unwrap();
        while let Ok(Some(_)) = received(&connection) {
            let _ = send(&connection, &then, &[]);
        }
    });
    let (own, options) = (device(), ReaderOptions::default().within(Duration::from_secs(60)));
    let reader = Reader::open(own.clone(), folder.path(), options).unwrap();
    let got = reader.get(&Wanted::latest("solver")).map(|got| {
        let mut values = vec![0.0; VALUES];
        own.download(&got.parts[0].1, 0, &mut values);
        values
    });
    drop(reader);
    liar.join().unwrap();
    got
}

fn grant() -> Grant {
    let classes = vec![ClassForm { name: "weights".into(), values: VALUES as u64 }];
    Grant {
        hold: 1,
        version: 4,
        is_in_place: false,
        fingerprint: None,
        form: Form { layout: 0, classes },
        places: vec![Place { memory: 9, offset: 0 }],
        memories: vec![(9, VALUES as u64)],
        over: Vec::new(),
    }
}

fn memory() -> OwnedFd {
    let own = device();
    let mut buffer = own.allocate_shared(VALUES).unwrap();
    own.upload(&[2.5; VALUES], &mut buffer, 0);
    own.export(&buffer).unwrap()
}

fn granted(grant: Grant, files: Vec<OwnedFd>) -> Answer {
    (Reply::Granted(grant).bytes(), files)
}

/// One lie of a publisher each, and what the reader says of it.
#[test]
fn a_publisher_that_lies_is_an_error_by_name_and_nothing_of_it_is_used() {
    let released = Reply::Released { version: Some(4) };
    assert_eq!(got(granted(grant(), vec![memory()]), &released).unwrap(), [2.5; VALUES], "the truth");
    let sum = fingerprint(&[2.5; VALUES], 0);
    let summed = |fingerprint| granted(Grant { fingerprint: Some(fingerprint), ..grant() }, vec![memory()]);
    assert_eq!(got(summed(sum), &released).unwrap(), [2.5; VALUES]);

    let unsealed = || memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let pipe = || -> OwnedFd { io::pipe().unwrap().0.into() };
    let place = |memory, offset| Grant { places: vec![Place { memory, offset }], ..grant() };
    let long = |values: u64| {
        let classes = vec![ClassForm { name: "weights".into(), values }];
        Grant { form: Form { layout: 0, classes }, memories: vec![(9, values)], ..grant() }
    };
    let text = |bytes: &[u8]| (bytes.to_vec(), Vec::new());
    let cases: Vec<(Answer, &str)> = vec![
        (summed(sum ^ 1), "Damaged"),
        (granted(grant(), vec![pipe()]), "no memory file"),
        (granted(grant(), vec![unsealed()]), "not sealed"),
        (granted(long(1 << 20), vec![memory()]), "the memory file has 400 bytes"),
        (granted(long(u64::MAX / 2), vec![memory()]), "Share"),
        (granted(grant(), vec![]), "1 memories with 0 descriptors"),
        (granted(grant(), vec![memory(), memory()]), "1 memories with 2 descriptors"),
        (granted(place(8, 0), vec![memory()]), "which it did not give"),
        (granted(place(9, 1), vec![memory()]), "100 values of class"),
        (granted(place(9, u64::MAX), vec![memory()]), "100 values of class"),
        (text(b"nonsense"), "no reply is of kind"),
        ((Reply::Granted(grant()).bytes()[..30].to_vec(), vec![]), "ends too early"),
        (text(&[1; 20_000]), "too long"),
        (text(&Reply::There.bytes()), "it answers There"),
        (text(&Reply::Refused { reason: "of spite".into() }.bytes()), "of spite"),
        (text(&Reply::OtherUser { uid: 7 }.bytes()), "OtherUser"),
    ];
    for (answer, expected) in cases {
        let error = format!("{:?}", got(answer, &released).unwrap_err());
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_version_is_not_taken_for_got_unless_the_publisher_says_that_it_still_lay_there() {
    for (then, expected) in [
        (Reply::Released { version: Some(5) }, "Ended"),
        (Reply::Released { version: None }, "Ended"),
        (Reply::There, "it answers There"),
    ] {
        let error = format!("{:?}", got(granted(grant(), vec![memory()]), &then).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_publisher_that_does_not_answer_is_given_up_after_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let (pid, socket) = (std::process::id(), door.name.clone());
    let announcement = Announcement { node, pid, device: "stand-in:0".into(), socket };
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let options = ReaderOptions::default().within(Duration::from_millis(20));
    let reader = Reader::open(device(), folder.path(), options).unwrap();
    let error = reader.get(&Wanted::latest("solver")).unwrap_err();
    assert!(matches!(error, PublicationError::Silent { .. }) && error.may_be_elsewhere(), "{error}");
}

/// One get gives up waiting while another copies: the hold of that one ends all the same, for a publisher that goes on later.
#[test]
fn a_hold_ends_also_over_a_connection_that_another_get_has_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let (pid, socket) = (std::process::id(), door.name.clone());
    let announcement = Announcement { node, pid, device: "stand-in:0".into(), socket };
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let slow = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(60);
        wait_for(&[door.listener.as_fd()], Some(until)).unwrap();
        let connection = accept_with(&door.listener, SocketFlags::CLOEXEC).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Welcome { device: "stand-in:0".into() }.bytes(), &[]).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Granted(grant()).bytes(), &[memory().as_fd()]).unwrap();
        let [asked, last] =
            [(); 2].map(|()| Request::read(&received(&connection).unwrap().unwrap().0).unwrap());
        assert_eq!(asked, get(), "which is not answered");
        last
    });
    let (tell, told) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(Some((tell, wait)));
    let observer = StepObserver::new(move |step| {
        let ends = if step == Step::Copied { ends.lock().unwrap().take() } else { None };
        if let Some((tell, wait)) = ends {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        }
    });
    let options = ReaderOptions::default().within(Duration::from_secs(2)).observer(observer);
    let reader = Reader::open(device(), folder.path(), options).unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| reader.get(&Wanted::latest("solver")).unwrap_err());
        told.recv().unwrap();
        let second = reader.get(&Wanted::latest("solver")).unwrap_err();
        assert!(matches!(second, PublicationError::Silent { .. }), "{second}");
        go_on.send(()).unwrap();
        let first = first.join().unwrap();
        assert!(matches!(first, PublicationError::PublisherGone { wrote: true, .. }), "{first}");
    });
    assert_eq!(slow.join().unwrap(), Request::Release { hold: 1 });
}

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
        connect_to(&Path::new(self.folder.path()).join(announcement.socket)).unwrap()
    }

    fn greeted(&self) -> OwnedFd {
        let connection = self.connect();
        assert!(matches!(said(&connection, &hello().bytes()), Some(Reply::Welcome { .. })));
        connection
    }
}

fn hello() -> Request {
    Request::Hello { device: "stand-in:0".into() }
}

fn get() -> Request {
    Request::Get { key: "solver".into(), ask: Ask::Latest, layout: None }
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
