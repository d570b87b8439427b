//! Sessions that are lost while their client lives: what it may read stays as it is until the client has let go of it, and is used
//! again then.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{CellValue, Client, ConnectOptions, HeldObject};
use forebay_server::Server;
use forebay_store::{Consumer, Delete, NewRow, Wait, Which};

use super::neighbour::serve_again;
use crate::conformance::objects::{bytes, layout, set};
use crate::conformance::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A socket in front of a server's, that can be cut. The server sees this process at its other end, as it is that of the client.
struct Relay {
    path: PathBuf,
    is_down: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl Relay {
    fn to(world: &World) -> Self {
        let (path, server) = (world.dir.path().join("relay.sock"), world.dir.path().join("grpc.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let relay = Relay { path, is_down: Arc::default(), open: Arc::default() };
        let (is_down, open) = (relay.is_down.clone(), relay.open.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&server) else { continue };
                if is_down.load(Ordering::SeqCst) {
                    continue; // dropped, which cuts it
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    open.lock().unwrap().push(from.try_clone().unwrap());
                    std::thread::spawn(move || carry(from, to));
                }
            }
        });
        relay
    }

    fn address(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..).filter(|_| is_down) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// How a client loses its session.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// It was away for longer than its grace.
    Late,
    /// Another server came, with the same store.
    Restart,
}

/// A neighbour of a server that keeps nobody's session, behind a relay.
fn world() -> (World, Relay, Client) {
    let mut world = World::new(Way::Neighbour);
    drop(world.server.take());
    let builder =
        Server::builder().session_grace(Duration::ZERO).grpc_socket(world.dir.path().join("grpc.sock"));
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    let relay = Relay::to(&world);
    let client = Client::connect(&relay.address(), &ConnectOptions::default().outage_time_max(HOUR)).unwrap();
    (world, relay, client)
}

fn lose(loss: Loss, world: &mut World, relay: &Relay) {
    match loss {
        Loss::Late => {
            relay.set_down(true);
            let gone = || {
                let metrics = crate::client::samples_at(world.server.as_ref().unwrap().address().unwrap());
                metrics.get("forebay_sessions_ended_total{why=\"gone\"}").copied().unwrap_or_default()
            };
            while gone() < 1.0 {
                std::thread::yield_now();
            }
            relay.set_down(false);
        }
        Loss::Restart => serve_again(world),
    }
}

fn quarantine(world: &World) -> u64 {
    world.store.objects().unwrap().stats().quarantine_bytes
}

fn holds(held: &HeldObject, round: u8) {
    let length = layout().tensor("first").unwrap().bytes;
    assert_eq!(held.tensor("first").unwrap().to_vec().unwrap(), bytes("first", round, length));
}

#[test]
fn memory_of_objects_stays_while_a_client_has_it_and_goes_back_with_its_word_after_the_session() {
    for loss in [Loss::Late, Loss::Restart] {
        eprintln!("{loss:?}"); // shown when the case fails
        let (mut world, relay, client) = world();
        let objects = client.objects();
        // Filled in the server's process: what a client has filled is another matter.
        let set = |world: &World, rounds: std::ops::Range<u8>| {
            let local = Client::embedded(world.store.clone()).objects();
            rounds.for_each(|round| _ = set(&local, "solver", round));
        };
        set(&world, 1..2);
        let (first, second) =
            (objects.get("solver", Which::Latest).unwrap(), objects.get("solver", Which::Latest).unwrap());
        assert!(first.tensor("first").unwrap().bytes().is_some(), "it is mapped");
        lose(loss, &mut world, &relay);
        assert!(client.tables().is_ok(), "there is another session");
        // The version goes, and others come: none is given its memory.
        objects.delete("solver", 1).unwrap();
        set(&world, 2..6);
        for held in [&first, &second] {
            holds(held, 1);
        }
        let both = quarantine(&world);
        assert!(both > 0);
        drop(first);
        while quarantine(&world) == both {
            std::thread::yield_now();
        }
        set(&world, 6..10);
        holds(&second, 1);
        drop(second);
        while quarantine(&world) > 0 {
            std::thread::yield_now();
        }
        let new = objects.get("solver", Which::Latest).unwrap();
        holds(&new, 9);
    }
}

#[test]
fn space_of_values_stays_while_a_client_has_them_and_is_used_again_after() {
    for loss in [Loss::Late, Loss::Restart] {
        eprintln!("{loss:?}"); // shown when the case fails
        let (mut world, relay, client) = world();
        let table = solver(&client);
        let read = client.create_consumer("read", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
        let long = |at: usize| format!("prompt {at} ").repeat(1000);
        for at in 0..8 {
            let new = NewRow::new(0, &format!("q{at}_0_0")).unwrap();
            table.insert(new, [("prompt", long(at).into())]).unwrap();
        }
        let claim = read.claim(up_to(8), Wait::No).unwrap().unwrap();
        let cells = claim.cells(["prompt"]).unwrap().remove(0);
        lose(loss, &mut world, &relay);
        assert!(client.tables().is_ok(), "there is another session");
        drop(claim);
        let compacted = |world: &World| {
            world.store.sync().unwrap();
            world.store.compact().unwrap()
        };
        world.store.table("solver").unwrap().delete(&Delete::all_confirmed().force()).unwrap();
        assert!(compacted(&world).held_back_bytes > 0, "they may still be read");
        for round in 1..4 {
            for at in 0..8 {
                let new = NewRow::new(0, &format!("r{round}n{at}_0_0")).unwrap();
                table.insert(new, [("prompt", "other ".repeat(1000).into())]).unwrap();
            }
            compacted(&world);
        }
        for (at, cell) in cells.iter().enumerate() {
            assert!(matches!(cell, CellValue::Bytes(bytes) if **bytes == *long(at).as_bytes()), "{at}");
        }
        drop(cells);
        while compacted(&world).held_back_bytes > 0 {
            std::thread::yield_now();
        }
    }
}

// What a process was given and never learned of ends with the process: no other may say that it let go.
#[test]
fn nobody_lets_go_of_what_another_process_has() {
    use forebay_store::{Get, Owner, ProcessHandle};

    let world = World::new(Way::Neighbour);
    set(&Client::embedded(world.store.clone()).objects(), "solver", 1);
    let mut other = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (theirs, mine) =
        (ProcessHandle::of(other.id()).unwrap(), ProcessHandle::of(std::process::id()).unwrap());
    let objects = world.store.objects().unwrap();
    let lent =
        objects.get_with("solver", Which::Latest, &Get::default().owner(Owner::Process(theirs.clone())));
    let lent = lent.unwrap();
    let places: Vec<(u32, u64)> = lent.places().into_iter().map(Option::unwrap).collect();
    assert!(!objects.let_go_of(&theirs, &places), "somebody looks after it");
    drop(lent);
    assert!(quarantine(&world) > 0);
    assert!(!objects.let_go_of(&mine, &places) && !objects.let_go_of(&theirs, &places[1..]));
    assert!(objects.let_go_of(&theirs, &places) && !objects.let_go_of(&theirs, &places), "once");
    assert_eq!(quarantine(&world), 0);
    let lent = objects.get_with("solver", Which::Latest, &Get::default().owner(Owner::Process(theirs)));
    drop(lent.unwrap());
    assert!(quarantine(&world) > 0);
    drop(other.stdin.take());
    other.wait().unwrap();
    world.store.run_once().unwrap(); // its process is gone
    assert_eq!(quarantine(&world), 0);
}
