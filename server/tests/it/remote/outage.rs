//! Networks that break, clients that die, servers that come again.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use forebay_client::{Ask, CellValue, Client, ConnectOptions, Error, Plan, Role};
use forebay_server::Server;
use forebay_store::{Dtype, Expected, Kind, Layout, NewRow, Options, Row, Store, Wait, Which};

use super::proxy::Proxy;
use crate::conformance::*;

/// A server with a long grace or a short one, and a proxy before it.
pub(super) fn behind_a_proxy(grace: Duration) -> (World, Proxy) {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().session_grace(grace).grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::to(server.grpc_address().unwrap());
    world.server = Some(server);
    (world, proxy)
}

pub(super) fn connect(proxy: &Proxy, outage: Duration) -> Client {
    Client::connect(&proxy.address(), &ConnectOptions::default().outage_time_max(outage)).unwrap()
}

/// A folder, the address of a server in it, and what opens the store there and serves it, as often as it is called.
pub(super) fn served_again() -> (tempfile::TempDir, String, impl Fn() -> (Store, Server)) {
    let dir = tempfile::tempdir().unwrap();
    let (path, socket) = (dir.path().join("store"), dir.path().join("grpc.sock"));
    let address = format!("unix://{}", socket.display());
    let serve = move || {
        let store = Store::open(&path, Options::default()).unwrap();
        let builder = Server::builder().grpc_socket(&socket);
        let server = builder.bind(store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
        (store, server)
    };
    (dir, address, serve)
}

pub(super) const HOUR: Duration = Duration::from_secs(3600);

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

/// Asks for something large, half of which comes before nothing more is heard of the server: it is late in its time. Then the
/// answer is cut, and asked for again.
fn stops_half_way_and_is_cut<T: PartialEq + Send>(
    proxy: &Proxy,
    ask: impl Fn() -> Result<T, Error> + Sync,
    whole: &T,
) {
    let before = proxy.carried();
    std::thread::scope(|scope| {
        let asking = scope.spawn(&ask);
        while proxy.carried() - before < 1 << 20 {
            assert!(!asking.is_finished(), "it ended before it was half-way");
            std::thread::yield_now();
        }
        proxy.set_deaf(true);
        let since = Instant::now();
        let error = asking.join().unwrap().err().expect("the rest was swallowed");
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Deadline"), "{error}");
        // A connection on which nothing comes ends after 20 seconds: it was not that.
        assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    });
    proxy.set_deaf(false);
    proxy.cut();
    proxy.cut_after(8 << 20);
    assert!(ask().unwrap() == *whole, "it was asked for again where it was cut");
    assert!(!proxy.is_cut_ahead(), "it was cut");
}

const LARGE_BYTES: u64 = 32 << 20;

#[test]
fn a_large_answer_that_stops_half_way_is_late_and_one_that_is_cut_is_asked_for_again() {
    let (world, proxy) = behind_a_proxy(HOUR);
    let payload = vec![7; LARGE_BYTES as usize];
    let state = world.store.put_object("weights", 1, &payload).unwrap();
    let layout = Layout::builder().tensor("weights", "w", Dtype::U8, &[LARGE_BYTES]).build().unwrap();
    let local = Client::embedded(world.store.clone());
    let mut filling = local.objects().begin("state", Expected::Any, &layout).unwrap();
    filling.write("w", 0, &payload).unwrap();
    filling.commit().unwrap();
    let table = solver(&local);
    let wide =
        |at: usize| table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), [("prompt", text().into())]);
    let rows: Vec<Row> = (0..8).map(|at| wide(at).unwrap()).collect();
    let options = ConnectOptions::default()
        .call_time_max(Duration::from_secs(6))
        .outage_time_max(Duration::from_secs(30))
        .connect_time_max(Duration::from_secs(30));
    let client = Client::connect(&proxy.address(), &options).unwrap();
    stops_half_way_and_is_cut(&proxy, || client.object(&state), &payload);
    let held = client.objects().get("state", Which::Latest).unwrap();
    stops_half_way_and_is_cut(&proxy, || held.tensor("w")?.to_vec(), &payload);
    let prompts = vec![CellValue::Bytes(text().into()); rows.len()];
    let table = client.table_named("solver");
    stops_half_way_and_is_cut(&proxy, || table.cells(&rows, "prompt"), &prompts);
}

/// A long text.
fn text() -> String {
    "long".repeat(1 << 20)
}

/// The usual life of some rows, each thing said once.
fn work(client: &Client, rounds: usize) {
    let (table, judge, train) = (solver(client), judge(client), trainer(client));
    for round in 0..rounds {
        let new = NewRow::new(round as u64, &format!("q{round}_0_?")).unwrap();
        let rows = table.insert_rollouts(new, 2, [("prompt", "p".into())]).unwrap();
        table.append(rows[0], "response", vec![1_i32, 2].into()).unwrap();
        table.append(rows[0], "response", vec![3_i32].into()).unwrap();
        table.finalize(rows[0], "response").unwrap();
        table.write(rows[1], [("response", vec![4_i32].into())]).unwrap();
        let tokens: Vec<u8> = [1_i32, 2, 3].iter().flat_map(|token| token.to_le_bytes()).collect();
        assert_eq!(table.cell(rows[0], "response").unwrap(), CellValue::Bytes(tokens.into()));
        let claim = judge.claim(up_to(2), LONG).unwrap().expect("both are ready");
        assert_eq!(claim.rows(), rows);
        let verdict = verdicts(&claim, 1.0);
        claim.finish(&verdict).unwrap();
        let mut step = client.begin_step(&Plan::new().rows("train", 2)).unwrap();
        let batch = step.next(&train, up_to(2), LONG).unwrap().expect("both are ready");
        batch.accumulated().unwrap();
        let weights = client.put_object("weights", round as u64 + 1, &[round as u8; 5_000]).unwrap();
        assert_eq!(step.commit([("solver", vec![weights])]).unwrap().rows, 2);
    }
    let policy = client.policy("solver").unwrap();
    assert_eq!((policy.version, table.counts().unwrap().consumed), (rounds as u64, 2 * rounds as u64));
    assert_eq!(table.counts().unwrap().written, 2 * rounds as u64);
}

#[test]
fn what_the_server_hears_twice_is_made_once() {
    const ROUNDS: usize = 20;
    let (world, proxy) = behind_a_proxy(HOUR);
    proxy.set_twice(true);
    let client = connect(&proxy, HOUR);
    work(&client, ROUNDS);
    // What came again was read as far as what came first, and answered: else this would say nothing.
    let since = Instant::now();
    while proxy.answered().1 < proxy.answered().0 / 2 {
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", proxy.answered());
        std::thread::yield_now();
    }
    let local = Client::embedded(world.store.clone());
    let counts = local.table("solver").unwrap().counts().unwrap();
    assert_eq!((counts.written, counts.consumed), (2 * ROUNDS as u64, 2 * ROUNDS as u64));
    assert_eq!(local.policy("solver").unwrap().version, ROUNDS as u64);
    let report = local.admin().verify(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_network_whose_delays_vary_costs_time_and_nothing_else() {
    let (_world, proxy) = behind_a_proxy(HOUR);
    proxy.set_delay(Duration::from_millis(50));
    work(&connect(&proxy, HOUR), 3);
}

#[test]
fn nobody_there_is_told_in_time_and_by_name() {
    let options =
        ConnectOptions::default().connect_time_max(Duration::from_secs(2)).outage_time_max(Duration::ZERO);
    for address in ["grpc://127.0.0.1:1", "unix:///nowhere/grpc.sock"] {
        let error = Client::connect(address, &options).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Retry, "Connection"), "{error}");
        let told = error.to_string();
        assert!(told.contains(&format!("no server answers at {address} (")), "{told}");
        assert!(
            told.contains("os error") && told.contains("is `forebay serve --") && told.len() < 200,
            "{told}"
        );
    }
    assert_eq!(Client::connect("http://h:1", &options).unwrap_err().kind(), Kind::Input);
}

#[test]
fn an_address_of_another_door_is_told_from_that_of_clients() {
    let world = World::new(Way::Embedded);
    let builder =
        Server::builder().flight("127.0.0.1:0".parse().unwrap()).grpc("127.0.0.1:0".parse().unwrap());
    let server = builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (http, flight) = (server.address().unwrap(), server.flight_address().unwrap());
    for door in [http, flight] {
        let error = Client::connect(&format!("grpc://{door}"), &ConnectOptions::default()).unwrap_err();
        assert_eq!((error.kind(), error.cause()), (Kind::Input, "Protocol"), "{error}");
        let told = error.to_string();
        assert!(told.contains(&door.to_string()) && told.contains("`forebay serve --grpc`"), "{told}");
    }
}

#[test]
fn a_client_goes_on_with_a_server_that_was_restarted() {
    let (_dir, address, serve) = served_again();
    let (store, server) = serve();
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
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
