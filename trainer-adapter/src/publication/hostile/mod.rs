//! Tests: peers of the same user that do not keep to the protocol. They may lie about everything that they send, and get errors for
//! it; nobody else notices. Publishers here, readers in `readers`.

mod readers;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SocketFlags, accept_with};

use super::announcement::{Announced, Announcement, Door, own_numbers};
use super::catalog::{Ask, Place};
use super::form::ClassForm;
use super::packet::{receive, send, wait_for};
use super::wire::{Grant, Reply, Request};
use super::*;
use crate::device::{Device, Share, StandInDevice, StandInOptions, fingerprint};

const VALUES: usize = 100;

fn device() -> StandInDevice {
    StandInDevice::new(StandInOptions::default())
}

fn announcement(node: String, pid: u32, socket: String) -> Announcement {
    Announcement { node, numbers: own_numbers().unwrap(), pid, device: "stand-in:0".into(), socket }
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
    let announcement = announcement(node, pid, socket);
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
        let error = got(granted(grant(), vec![memory()]), &then).unwrap_err();
        assert!(error.may_be_elsewhere() && format!("{error:?}").contains(expected), "{error:?}");
        if then == Reply::There {
            assert!(
                matches!(error, PublicationError::Unconfirmed { version: 4, .. }),
                "what was copied is there: {error}"
            );
        }
    }
}

#[test]
fn a_publisher_that_does_not_answer_is_given_up_after_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let (pid, socket) = (std::process::id(), door.name.clone());
    let announcement = announcement(node, pid, socket);
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let options = ReaderOptions::default().within(Duration::from_millis(20));
    let reader = Reader::open(device(), folder.path(), options).unwrap();
    let error = reader.get(&Wanted::latest("solver")).unwrap_err();
    assert!(matches!(error, PublicationError::Silent { .. }) && error.may_be_elsewhere(), "{error}");
}

/// A publisher that takes its time costs nobody else theirs: memory of others is let go of meanwhile.
#[test]
fn what_is_gone_is_forgotten_while_a_get_waits_for_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let announcement = announcement(node, std::process::id(), door.name.clone());
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let slow = std::thread::spawn(move || {
        wait_for(&[door.listener.as_fd()], None).unwrap();
        let connection = accept_with(&door.listener, SocketFlags::CLOEXEC).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Welcome { device: "stand-in:0".into() }.bytes(), &[]).unwrap();
        received(&connection).unwrap();
        asked.send(()).unwrap();
        wait.recv().unwrap();
        send(&connection, &Reply::Missing { newest: None }.bytes(), &[]).unwrap();
        received(&connection).unwrap()
    });
    let options = ReaderOptions::default().within(Duration::from_secs(10));
    let reader = Reader::open(device(), folder.path(), options).unwrap();
    std::thread::scope(|scope| {
        let get = scope.spawn(|| reader.get(&Wanted::latest("solver")).unwrap_err());
        is_asked.recv().unwrap();
        reader.forget_gone(); // before the answer, for which it does not wait
        go_on.send(()).unwrap();
        let error = get.join().unwrap();
        assert!(matches!(error, PublicationError::NoVersion { .. }), "{error}");
    });
    drop(reader);
    assert_eq!(Request::read(&slow.join().unwrap().unwrap().0), Ok(Request::Bye));
}

// Handles of processes have no meaning there: it is said before anybody connects.
#[test]
fn a_publisher_of_another_pid_namespace_is_an_error_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let elsewhere = Announcement { numbers: 7, ..announcement(node, 1, "nobody.socket".into()) };
    let _announced = Announced::take(folder.path(), "solver", &elsewhere).unwrap();
    let reader = Reader::open(device(), folder.path(), ReaderOptions::default()).unwrap();
    let error = reader.get(&Wanted::latest("solver")).unwrap_err();
    assert!(matches!(error, PublicationError::OtherNumbers { numbers: 7, .. }), "{error}");
    assert!(error.may_be_elsewhere());
}

/// One get gives up waiting while another copies: the hold of that one ends all the same, for a publisher that goes on later. The
/// hold that the first may yet be given ends when nobody copies any more, and not only with the reader.
#[test]
fn a_hold_ends_also_over_a_connection_that_another_get_has_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let node = this_node().unwrap();
    let door = Door::open(folder.path(), &node).unwrap();
    let (pid, socket) = (std::process::id(), door.name.clone());
    let announcement = announcement(node, pid, socket);
    let _announced = Announced::take(folder.path(), "solver", &announcement).unwrap();
    let slow = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(60);
        wait_for(&[door.listener.as_fd()], Some(until)).unwrap();
        let connection = accept_with(&door.listener, SocketFlags::CLOEXEC).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Welcome { device: "stand-in:0".into() }.bytes(), &[]).unwrap();
        received(&connection).unwrap();
        send(&connection, &Reply::Granted(grant()).bytes(), &[memory().as_fd()]).unwrap();
        [(); 3].map(|()| Request::read(&received(&connection).unwrap().unwrap().0).unwrap())
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
    let said = slow.join().unwrap();
    assert_eq!(said, [get(), Request::Release { hold: 1 }, Request::Bye], "the get is never answered");
}

fn hello() -> Request {
    Request::Hello { device: "stand-in:0".into() }
}

fn get() -> Request {
    Request::Get { key: "solver".into(), ask: Ask::Latest, layout: None }
}
