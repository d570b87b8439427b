//! Networks that break, clients that die, servers that come again.

use std::time::{Duration, Instant};

use forebay_client::{Ask, CellValue, Client, ConnectOptions, Plan, Role};
use forebay_server::Server;
use forebay_store::{Kind, NewRow, Options, Store, Wait};

use super::proxy::Proxy;
use crate::conformance::*;

/// A server with a long grace or a short one, and a proxy before it.
fn behind_a_proxy(grace: Duration) -> (World, Proxy) {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().session_grace(grace).grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::to(server.grpc_address().unwrap());
    world.server = Some(server);
    (world, proxy)
}

fn connect(proxy: &Proxy, outage: Duration) -> Client {
    Client::connect(&proxy.address(), &ConnectOptions::default().outage_time_max(outage)).unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);

// FX-B16: a claim that is asked for again under its name is the same claim.
#[test]
fn a_call_that_is_cut_off_anywhere_in_its_answer_is_made_once() {
    let (_world, proxy) = behind_a_proxy(HOUR);
    let client = connect(&proxy, HOUR);
    let (table, judge) = (solver(&client), judge(&client));
    for bytes in 0..60 {
        proxy.cut_after(bytes);
        let row = table.insert_rollouts(
            NewRow::new(0, &format!("q{bytes}_0_?")).unwrap(),
            2,
            [("prompt", "p".into())],
        );
        let rows = row.unwrap();
        proxy.cut_after(bytes);
        table.write(rows[0], [("response", vec![1_i32].into())]).unwrap();
        proxy.cut_after(bytes);
        let claim = judge.claim(up_to(4), Wait::No).unwrap().expect("it is ready, and nobody else takes it");
        assert_eq!(claim.rows(), &rows[..1], "after {bytes} bytes");
        let verdict = verdicts(&claim, 1.0);
        proxy.cut_after(bytes);
        claim.finish(&verdict).unwrap();
        proxy.cut_after(u64::MAX);
    }
    assert_eq!(table.counts().unwrap().written, 120);
}

#[test]
fn what_is_held_outlives_a_short_outage() {
    let (_world, proxy) = behind_a_proxy(HOUR);
    let client = connect(&proxy, HOUR);
    let (table, judge) = (solver(&client), judge(&client));
    row(&table, 0, "q_0_0", None);
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    proxy.set_down(true);
    let again = std::thread::spawn(move || {
        let verdict = verdicts(&claim, 1.0);
        claim.finish(&verdict)
    });
    proxy.set_down(false);
    assert!(again.join().unwrap().is_ok());
}

#[test]
fn what_is_held_goes_back_after_a_long_outage() {
    let (world, proxy) = behind_a_proxy(Duration::ZERO);
    let client = connect(&proxy, HOUR);
    let (table, judge) = (solver(&client), judge(&client));
    row(&table, 0, "q_0_0", None);
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    proxy.set_down(true);
    let local = Client::embedded(world.store.clone());
    let taken = local.consumer("judge").unwrap().claim(up_to(1), LONG).unwrap().expect("it went back");
    proxy.set_down(false);
    let verdict = verdicts(&claim, 1.0);
    let error = claim.finish(&verdict).unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::State, "ClaimFenced"), "{error}");
    taken.finish(&verdict).unwrap();
    row(&table, 0, "r_0_0", None); // the client goes on in a session of its own
}

#[test]
fn no_call_hangs_beyond_its_time() {
    let (_world, proxy) = behind_a_proxy(HOUR);
    let (call, outage) = (Duration::from_millis(300), Duration::from_millis(600));
    let options = ConnectOptions::default().call_time_max(call).outage_time_max(outage);
    let client = Client::connect(&proxy.address(), &options).unwrap();
    let table = solver(&client);
    proxy.set_deaf(true);
    let before = Instant::now();
    let error = table.counts().unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Deadline"), "{error}");
    proxy.set_deaf(false);
    proxy.set_down(true);
    let error = table.counts().unwrap_err();
    assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
    assert!(before.elapsed() < Duration::from_secs(60), "far more than the times that were given");
    proxy.set_down(false);
    assert_eq!(table.counts().unwrap().written, 0);
}

#[test]
fn nobody_there_is_told_in_time_and_by_name() {
    let options =
        ConnectOptions::default().connect_time_max(Duration::from_secs(2)).outage_time_max(Duration::ZERO);
    for address in ["grpc://127.0.0.1:1", "unix:///nowhere/grpc.sock"] {
        let error = Client::connect(address, &options).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
    }
    assert_eq!(Client::connect("http://h:1", &options).unwrap_err().kind(), Kind::Input);
}

#[test]
fn a_client_goes_on_with_a_server_that_was_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("store"), dir.path().join("grpc.sock"));
    let serve = || {
        let store = Store::open(&path, Options::default()).unwrap();
        let server =
            Server::builder().grpc_socket(&socket).bind(store.clone(), "127.0.0.1:0".parse().unwrap());
        (store, server.unwrap())
    };
    let (store, server) = serve();
    let client =
        Client::connect(&format!("unix://{}", socket.display()), &ConnectOptions::default()).unwrap();
    let (table, judge) = (solver(&client), judge(&client));
    let first = row(&table, 0, "q_0_0", None);
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    drop((server, store));
    let (_store, _server) = serve();
    table.write(first, [("reward", 1.0.into())]).unwrap();
    let verdict = verdicts(&claim, 1.0);
    let error = claim.finish(&verdict).unwrap_err();
    assert_eq!(error.kind(), Kind::State, "the claim ended with the process that held it: {error}");
    assert_eq!(ids(&judge.claim(up_to(1), LONG).unwrap().unwrap()), ["q_0_0"]);
}

#[test]
fn an_append_that_may_have_been_made_is_not_made_again_in_another_session() {
    let (world, proxy) = behind_a_proxy(Duration::ZERO);
    let client = connect(&proxy, HOUR);
    let (table, judge) = (solver(&client), judge(&client));
    let local = Client::embedded(world.store.clone());
    row(&table, 0, "held_0_0", None);
    let held = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    let asked = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", "?".into())]).unwrap();
    // Nothing that the server says comes through, and then the session is gone.
    proxy.set_deaf(true);
    let cell = std::thread::scope(|scope| {
        let append = scope.spawn(|| table.append(asked, "response", vec![1_i32, 2].into()));
        let solver = local.table("solver").unwrap();
        let cell = loop {
            match solver.cell(asked, "response").unwrap() {
                CellValue::Empty => std::thread::yield_now(),
                cell => break cell,
            }
        };
        proxy.set_down(true);
        let taken = local.consumer("judge").unwrap().claim(up_to(1), LONG).unwrap();
        assert!(taken.is_some(), "the session is over, and what it held came back");
        proxy.set_deaf(false);
        proxy.set_down(false);
        let error = append.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::State, "Uncertain"), "{error}");
        cell
    });
    assert_eq!(table.cell(asked, "response").unwrap(), cell, "once");
    drop(held);
    table.append(asked, "response", vec![3_i32].into()).unwrap(); // in the new session
}

#[test]
fn a_client_that_goes_gives_everything_back_at_once() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let client = connect(&proxy, HOUR);
    let table = solver(&client);
    judge(&client);
    trainer(&client);
    row(&table, 0, "q_0_0", Some(1.0));
    // At the seam, where nothing is given back by a drop of its own.
    let ask = |consumer, role| Ask { consumer, rule: up_to(1), role, owner: None, columns: &[] };
    let held = client.connection().claim(&ask("judge", Role::Task), Wait::No).unwrap();
    let step = client.connection().begin_step(&Plan::new().rows("train", 1)).unwrap();
    let taken = client.connection().claim(&ask("train", Role::Step(step)), Wait::No).unwrap();
    assert!(held.is_some() && taken.is_some());
    let local = Client::embedded(world.store.clone());
    let judge = local.consumer("judge").unwrap();
    assert!(judge.claim(up_to(1), Wait::No).unwrap().is_none());
    drop((table, client));
    assert!(judge.claim(up_to(1), LONG).unwrap().is_some());
    assert_eq!(local.begin_step(&Plan::new().rows("train", 1)).unwrap().number(), 1);
}

#[test]
fn what_is_packed_takes_less_of_the_wire_both_ways() {
    const TEXT_BYTES: u64 = 1 << 20;
    for (packs, bytes) in [(false, 2 * TEXT_BYTES..3 * TEXT_BYTES), (true, 0..TEXT_BYTES / 4)] {
        let (_world, proxy) = behind_a_proxy(HOUR);
        let options = ConnectOptions::default().compress(packs);
        let client = Client::connect(&proxy.address(), &options).unwrap();
        let table = solver(&client);
        let text = "again and again ".repeat(TEXT_BYTES as usize / 16);
        let row = table.insert(NewRow::new(0, "q_0_0").unwrap(), [("prompt", (&*text).into())]).unwrap();
        assert_eq!(table.cell(row, "prompt").unwrap(), CellValue::Bytes(text.into()));
        assert!(bytes.contains(&proxy.carried()), "{packs}: {} bytes", proxy.carried());
    }
}
