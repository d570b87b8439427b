//! Readers over HTTP who send half of what they ask, and such as take nothing of their answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use forebay_server::Server;
use forebay_store::{Options, Store};

use crate::client::{Served, loopback, samples_at};

/// Some tens of megabytes.
const LARGE: &str = "SELECT value, repeat('x', 1000) AS text FROM generate_series(1, 40000)";

/// A request of which so much of the body is sent.
fn begun(to: SocketAddr, body: &str, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let sent = &body[..sent];
    write!(stream, "POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{sent}")
        .unwrap();
    stream
}

#[test]
fn a_body_that_does_not_come_is_waited_for_no_longer_than_a_piece_may_take() {
    let served = Served::new(Server::builder().piece_time_max(Duration::from_millis(200)));
    let mut half = begun(served.server.address().unwrap(), "SELECT 1", 4);
    let mut reply = [0; 12];
    half.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"HTTP/1.1 408");
}

#[test]
fn a_reader_who_takes_nothing_is_let_go_of() {
    let served = Served::new(Server::builder().piece_time_max(Duration::from_millis(500)));
    let address = served.server.address().unwrap();
    let _reader = begun(address, LARGE, LARGE.len());
    let refused = "forebay_connections_refused_total{door=\"http\",reason=\"untaken\"}";
    let since = Instant::now();
    while samples_at(address).get(refused) != Some(&1.0) {
        assert!(since.elapsed() < Duration::from_secs(120), "it is still there");
    }
}

#[test]
fn neither_holds_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
    let server = Server::bind(store, loopback()).unwrap();
    let address = server.address().unwrap();
    let _half = begun(address, "SELECT 1", 4);
    let mut reader = begun(address, LARGE, LARGE.len());
    reader.read_exact(&mut [0; 100]).unwrap(); // it is being answered
    let since = Instant::now();
    server.shutdown();
    assert!(
        since.elapsed() < Duration::from_secs(60),
        "{:?}: half a minute for a piece, ten for the idle",
        since.elapsed()
    );
    Store::open(directory.path().join("store"), Options::default()).unwrap();
}
