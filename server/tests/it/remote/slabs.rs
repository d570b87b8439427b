//! Clients of the machine that may not use the store's files: their values go through memory that the server made, and what they do
//! to it hurts nobody else.

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use forebay_client::wire::proto::*;
use forebay_client::wire::{NOT_LENT, failure_of, from_slab};
use forebay_client::{CellValue, Changes, Client, ConnectOptions};
use forebay_server::{Grant, Scope, Server, Token};
use forebay_store::{Durability, Kind, NewRow, Options, PlacedKind, SlabFiller, Spot, Store};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::raw::{Raw, insert};
use crate::client::loopback;
use crate::conformance::*;

const SLAB_BYTES: u32 = 8 << 20;

fn long(at: usize) -> String {
    format!("prompt {at} ").repeat(10_000)
}

/// Asks for a slab with a session's name; none where nothing but an end comes.
fn ask_for_slab(world: &World, session: &[u8]) -> Option<(u32, OwnedFd)> {
    let mut stream = UnixStream::connect(world.dir.path().join("grpc.sock.slabs")).unwrap();
    stream.write_all(session).unwrap();
    let mut number = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&stream, &mut [IoSliceMut::new(&mut number)], &mut beside, RecvFlags::CMSG_CLOEXEC).unwrap();
    let file = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    file.map(|file| (u32::from_le_bytes(number), file))
}

/// A row whose prompt is said to lie in a slab.
fn insert_from(slab: u32, spot: Spot) -> WriteRequest {
    insert_from_as("q_0_0", slab, spot)
}

fn insert_from_as(id: &str, slab: u32, spot: Spot) -> WriteRequest {
    let mut message = insert(id);
    let change = &mut message.changes.as_mut().unwrap().changes[0];
    let Some(change::Change::Insert(insert)) = &mut change.change else { panic!("{change:?}") };
    insert.cells[0].value = Some(from_slab(slab, PlacedKind::Utf8, spot));
    message
}

#[test]
fn values_go_through_slabs_and_not_through_the_socket() {
    let world = World::new(Way::Slabs);
    let client = world.client();
    let table = solver(&client);
    let server = world.server.as_ref().unwrap();
    let sent = || {
        let metrics = crate::client::samples_at(server.address().unwrap());
        metrics["forebay_connection_bytes_total{door=\"grpc\",direction=\"in\"}"]
    };
    let before = sent();
    for at in 0..100 {
        let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
        table.insert(row, [("prompt", long(at).into())]).unwrap();
    }
    let bytes: usize = (0..100).map(|at| long(at).len()).sum();
    assert!(sent() - before < bytes as f64 / 20.0, "{} of {bytes}", sent() - before);
    let huge = "x".repeat(SLAB_BYTES as usize + 1);
    let row = table.insert(NewRow::new(0, "huge_0_0").unwrap(), [("prompt", (&*huge).into())]).unwrap();
    assert!(
        matches!(table.cell(row, "prompt").unwrap(), CellValue::Bytes(found) if found == huge.as_bytes())
    );
}

#[test]
fn a_server_that_was_restarted_is_sent_what_lay_in_slabs() {
    let mut world = World::new(Way::Slabs);
    let client = world.client();
    let table = solver(&client);
    let write = |at: usize| {
        let mut changes = Changes::new();
        let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
        changes.insert("solver", row, [("prompt", long(at).into())]);
        client.write_async(&changes).unwrap()
    };
    write(0).wait().unwrap();
    drop(world.server.take());
    let first = write(1);
    let builder = Server::builder().grpc_socket(world.dir.path().join("grpc.sock"));
    world.server = Some(builder.bind(world.store.clone(), loopback()).unwrap());
    for (at, under_way) in [(1, first), (2, write(2))] {
        let row = under_way.wait().unwrap()[0];
        assert!(
            matches!(table.cell(row, "prompt").unwrap(), CellValue::Bytes(found) if found == long(at).as_bytes())
        );
    }
}

#[test]
fn who_lies_about_slabs_or_scribbles_in_them_is_refused_and_hurts_nobody() {
    let world = World::new(Way::Slabs);
    let client = world.client();
    let table = solver(&client);
    let (raw, other) = (Raw::connect(&world), Raw::connect(&world));
    let refused = |raw: &Raw, slab, spot| {
        let status = raw.try_write(insert_from(slab, spot)).unwrap_err();
        let failure = failure_of(&status).unwrap_or_else(|| panic!("{status:?}"));
        (failure.kind(), failure.cause().to_owned())
    };
    let spot = Spot { offset: 0, length: 2000, crc32c: 7 };
    assert_eq!(refused(&raw, 1, spot), (Kind::State, NOT_LENT.to_owned()), "nothing was lent yet");
    let (number, file) = ask_for_slab(&world, &raw.session).unwrap();
    assert_eq!(refused(&other, number, spot).1, NOT_LENT, "it is another's");
    let mut filler = SlabFiller::new(file.try_clone().unwrap(), SLAB_BYTES);
    let good = filler.place(long(3).as_bytes()).unwrap().unwrap();
    filler.flush().unwrap();
    let lies = [
        spot,
        Spot { crc32c: good.crc32c + 1, ..good },
        Spot { offset: SLAB_BYTES - 10, ..good },
        Spot { offset: u32::MAX, ..good },
        Spot { length: u32::MAX, ..good },
        Spot { length: good.length - 1, ..good },
    ];
    for lie in lies {
        assert_eq!(refused(&raw, number, lie), (Kind::Input, "NotInSlab".to_owned()), "{lie:?}");
    }
    let no_text = filler.place(&[0xff; 2000]).unwrap().unwrap();
    filler.flush().unwrap();
    assert_eq!(refused(&raw, number, no_text).0, Kind::Input);
    let mut twice = insert_from(number, good);
    let changes = &mut twice.changes.as_mut().unwrap().changes;
    changes.push(insert_from_as("q_0_1", number, good).changes.unwrap().changes.remove(0));
    let status = raw.try_write(twice).unwrap_err();
    let failure = failure_of(&status).unwrap();
    assert_eq!(failure.kind(), Kind::Input, "a spot stands for one value: {failure}");
    raw.try_write(insert_from(number, good)).unwrap();
    // What is scribbled there later changes nothing.
    filler.clear();
    filler.place(&vec![b'!'; good.length as usize]).unwrap().unwrap();
    filler.flush().unwrap();
    let row = table.find(0, &"q_0_0".parse().unwrap()).unwrap().unwrap();
    assert!(
        matches!(table.cell(row, "prompt").unwrap(), CellValue::Bytes(found) if found == long(3).as_bytes())
    );
    assert_eq!(table.counts().unwrap().written, 1);
}

#[test]
fn slabs_are_handed_to_who_has_a_session_and_so_many_and_no_more() {
    let world = World::new(Way::Slabs);
    let raw = Raw::connect(&world);
    assert!(ask_for_slab(&world, &[7; 16]).is_none(), "nobody has that name");
    let numbers: std::collections::HashSet<u32> =
        std::iter::from_fn(|| ask_for_slab(&world, &raw.session)).map(|(n, _)| n).collect();
    assert_eq!(numbers.len(), 8);
    let mut cut = UnixStream::connect(world.dir.path().join("grpc.sock.slabs")).unwrap();
    cut.write_all(&[7; 15]).unwrap();
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(cut.read(&mut [0; 4]).unwrap(), 0);
    let neighbour = World::new(Way::Neighbour);
    let connected = Client::connect(&neighbour.address(), &ConnectOptions::default()).unwrap();
    solver(&connected);
}

/// The other end of the test below: a process of another user.
#[test]
fn a_process_of_another_user() {
    let Ok(address) = std::env::var("FOREBAY_TEST_SOCKET") else { return };
    let options = ConnectOptions::default();
    assert_eq!(Client::connect(&address, &options).unwrap_err().kind(), Kind::Input, "it wants a token");
    let client = Client::connect(&address, &options.token("writer")).unwrap();
    let table = client.table("solver").unwrap();
    for at in 0..20 {
        let row = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
        table.insert(row, [("prompt", long(at).into())]).unwrap();
    }
}

#[test]
fn another_user_writes_through_slabs_with_a_token_and_has_none_of_the_files() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tried: only root can begin a process of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let store =
        Store::open(dir.path().join("store"), Options::default().durability(Durability::Logged)).unwrap();
    store.create_table("solver", solver_schema()).unwrap();
    let socket = dir.path().join("grpc.sock");
    let open = || Server::builder().grpc_socket(&socket).grpc_socket_mode(0o666);
    let refused = open().bind(store.clone(), loopback()).unwrap_err();
    assert!(refused.to_string().contains("mode 666"), "{refused}");
    let grant = Grant::new("writer", Token::new("writer").unwrap()).scopes([Scope::Read, Scope::Write]);
    let server = open().grant(grant).readers_without_grants(true).bind(store.clone(), loopback()).unwrap();
    let status = Command::new("/proc/self/exe")
        .args(["--exact", "remote::slabs::a_process_of_another_user"])
        .env("FOREBAY_TEST_SOCKET", format!("unix://{}", socket.display()))
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .status()
        .unwrap();
    assert!(status.success());
    let metrics = crate::client::samples_at(server.address().unwrap());
    let sent = metrics["forebay_connection_bytes_total{door=\"grpc\",direction=\"in\"}"];
    let bytes: usize = (0..20).map(|at| long(at).len()).sum();
    assert!(sent < bytes as f64 / 4.0, "{sent} of {bytes} went through the socket");
    assert!(!store.path().join("fillers").exists(), "no extent was lent");
    assert_eq!(store.table("solver").unwrap().counts().written, 20);
}
