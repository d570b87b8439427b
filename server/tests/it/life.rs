//! Starting, ending, and who is served.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Changes, Client, ConnectOptions};
use forebay_server::{Error, Server};
use forebay_store::{
    Clock, Consumer, DataType, EventListener, MicroBatch, NewRow, Options, RateLimiter, Schema,
    SimulatedDisk, Store, SystemClock, Timestamp, Wait,
};

use crate::client::{Served, loopback, send};

#[test]
fn it_is_healthy_and_ready_beside_a_working_program() {
    let served = Served::new(Server::builder());
    assert_eq!((served.get("/health").status, served.get("/ready").status), (200, 200));
    let solver = served.store.table("solver").unwrap();
    for row in 0..3 {
        solver.insert(1, &format!("new{row}_0_0"), []).unwrap();
        let reply = served.sql("SELECT count(*) AS rows FROM solver");
        assert_eq!(reply.json()[0]["rows"], 4 + row);
    }
}

#[test]
fn a_closed_store_is_not_ready_but_can_still_be_looked_into() {
    let disk = SimulatedDisk::default();
    let options = Options::default().disk(Arc::new(disk.clone()));
    let store = Store::open(Path::new("/store"), options).unwrap();
    let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    table.insert(0, "q1_0_0", [("reward", 1.0.into())]).unwrap();
    let server = Server::bind(store, loopback()).unwrap();
    disk.fail_at(disk.operations() + 1);
    table.insert(0, "q2_0_0", []).unwrap_err();

    let reply = send(server.address().unwrap(), "GET", "/ready", &[], b"");
    assert!(reply.failure(503, "closed").contains("open it again"), "{reply:?}");
    assert_eq!(send(server.address().unwrap(), "GET", "/health", &[], b"").status, 200);
    let reply = send(
        server.address().unwrap(),
        "POST",
        "/sql",
        &[],
        b"SELECT reward FROM solver WHERE reward_status",
    );
    assert_eq!(reply.json()[0]["reward"], 1.0);
}

#[test]
fn a_store_that_is_only_read_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path().join("store"), Options::default()).unwrap());
    let store = Store::open(directory.path().join("store"), Options::default().read_only(true)).unwrap();
    let server = Server::bind(store, loopback()).unwrap();
    assert_eq!(send(server.address().unwrap(), "GET", "/ready", &[], b"").status, 200);
}

#[test]
fn shutting_down_frees_the_address_and_the_store() {
    let Served { store, .. } = Served::new(Server::builder());
    // Of an address that no other test uses, so that none of them takes the port in between.
    let server = Server::bind(store.clone(), "127.0.0.73:0".parse().unwrap()).unwrap();
    let address = server.address().unwrap();
    assert!(matches!(Server::bind(store.clone(), address), Err(Error::Listen { .. })), "taken by the first");
    server.shutdown();
    assert!(TcpStream::connect(address).is_err());
    let second = Server::bind(store, address).unwrap();
    assert_eq!(send(second.address().unwrap(), "GET", "/health", &[], b"").status, 200);
    drop(second);
    assert!(TcpStream::connect(address).is_err(), "dropping ends it too");
}

#[test]
fn it_can_be_ended_from_another_thread() {
    let served = Served::new(Server::builder());
    let stopper = served.server.stopper();
    let signal = std::thread::spawn(move || stopper.stop());
    served.server.wait();
    signal.join().unwrap();
}

#[test]
fn an_idle_connection_does_not_hold_up_the_end() {
    let served = Served::new(Server::builder());
    let _idle = TcpStream::connect(served.server.address().unwrap()).unwrap();
    assert_eq!(served.get("/health").status, 200);
    served.server.shutdown();
}

#[test]
fn other_machines_are_served_only_when_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let error = Server::bind(store.clone(), everywhere).unwrap_err();
    assert!(matches!(error, Error::Remote { address } if address == everywhere));
    assert!(error.to_string().contains("allow_remote"), "{error}");

    let server = Server::builder().allow_remote(true).bind(store, everywhere).unwrap();
    let address = SocketAddr::new([127, 0, 0, 1].into(), server.address().unwrap().port());
    let reply = send(address, "GET", "/health", &[("Host", "trainer-3.example.org")], b"");
    assert_eq!(reply.status, 200);
}

#[test]
fn a_web_page_that_points_its_name_here_reads_nothing() {
    let served = Served::new(Server::builder());
    let headers = [("Host", "rebound.example.org")];
    let reply = send(served.server.address().unwrap(), "POST", "/sql", &headers, b"SELECT * FROM solver");
    assert!(reply.failure(403, "input").contains("rebound.example.org"), "{reply:?}");
}

#[test]
fn a_server_beside_a_writer_keeps_up_also_while_nobody_asks() {
    let writer = Served::new(Server::builder());
    let reader = Store::open_read_only(writer.store.path()).unwrap();
    let rows = || reader.table("solver").unwrap().counts().written;
    let before = rows();
    let server = Server::builder().refresh(true).bind(reader.clone(), loopback()).unwrap();
    writer.store.table("solver").unwrap().insert(1, "q9_0_0", []).unwrap();
    while rows() == before {
        std::thread::yield_now();
    }
    server.shutdown();
}

#[test]
fn what_is_named_is_served_without_http_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
    let nothing = Server::builder().bind_without_http(store.clone()).unwrap_err();
    assert!(matches!(nothing, Error::Nothing) && nothing.to_string().contains("grpc_socket"), "{nothing}");
    let socket = directory.path().join("grpc.sock");
    let server = Server::builder().grpc_socket(&socket).bind_without_http(store.clone()).unwrap();
    assert_eq!((server.address(), server.flight_address(), server.grpc_address()), (None, None, None));
    let address = format!("unix://{}", socket.display());
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
    client.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    assert_eq!(store.tables(), ["solver"]);
    assert_eq!(client.query("SELECT count(*) AS n FROM solver").unwrap().1.len(), 1);
    drop(client);
    server.shutdown();
    assert!(!socket.exists());
    // Who keeps up with a writer does that without HTTP, too.
    let reader = Store::open_read_only(directory.path().join("store")).unwrap();
    let flight =
        Server::builder().refresh(true).flight(loopback()).bind_without_http(reader.clone()).unwrap();
    store.create_table("checker", Schema::new()).unwrap();
    while reader.tables().len() < 2 {
        std::thread::yield_now();
    }
    assert!(flight.address().is_none() && flight.flight_address().is_some());
}

/// The machine's clock, which tells when somebody begins to wait.
#[derive(Debug)]
struct Telling(SystemClock, Mutex<Sender<()>>);

impl Clock for Telling {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wait(&self, listener: EventListener, deadline: Option<Timestamp>) -> bool {
        _ = self.1.lock().unwrap().send(()); // the test may be over
        self.0.wait(listener, deadline)
    }
}

#[test]
fn a_call_that_is_under_way_when_the_server_is_told_to_stop_is_answered_and_no_other_comes_in() {
    const LONG: Duration = Duration::from_secs(30);
    let ((tell, told), directory) = (channel(), tempfile::tempdir().unwrap());
    let options = Options::default().clock(Arc::new(Telling(SystemClock, Mutex::new(tell))));
    let store = Store::open(directory.path().join("store"), options).unwrap();
    store.create_table("solver", Schema::new()).unwrap();
    let limited = Consumer::task(["solver"]).rate_limiter(RateLimiter::new(1.0, 1, 1.0));
    let read = store.create_consumer("read", limited).unwrap();
    let server = Server::builder().grpc(loopback()).bind_without_http(store.clone()).unwrap();
    let address = server.grpc_address().unwrap();
    let client = Client::connect(&format!("grpc://{address}"), &ConnectOptions::default()).unwrap();
    let insert = |id: &str| {
        let mut changes = Changes::new();
        changes.wait(Wait::For(LONG)).insert("solver", NewRow::new(0, id).unwrap(), []);
        client.write(&changes)
    };
    ["q_0_0", "q_0_1"].into_iter().for_each(|id| _ = insert(id).unwrap());
    std::thread::scope(|scope| {
        let under_way = scope.spawn(|| insert("q_0_2"));
        told.recv_timeout(LONG).unwrap(); // it waits for who takes
        server.stopper().stop();
        while TcpStream::connect(address).is_ok() {
            std::thread::yield_now();
        }
        assert!(!under_way.is_finished());
        let claim = read.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
        claim.finish(|_| Ok(())).unwrap();
        assert_eq!(under_way.join().unwrap().unwrap().len(), 1, "it is answered");
    });
    server.wait();
    assert_eq!(store.table("solver").unwrap().counts().written, 3);
}
