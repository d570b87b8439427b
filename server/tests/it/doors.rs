//! Who may stay at the doors of those who read: so many connections, and none over which nobody was let in.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use forebay_server::{Server, Token};

use crate::client::{Served, loopback};

/// A connection that is kept.
struct Kept(TcpStream);

impl Kept {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Kept(stream)
    }

    /// The answer's body; none once the connection was closed.
    fn asks(&mut self, path: &str, token: &str) -> Option<String> {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        self.0.write_all(request.as_bytes()).ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).ok()?;
            head.extend_from_slice(&byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).ok()?;
        Some(String::from_utf8(body).unwrap())
    }

    /// Waits until the other side has closed it.
    fn is_closed(&mut self) -> bool {
        let read = self.0.read_to_end(&mut Vec::new());
        read.map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |_| true)
    }
}

/// Checks that a line is on the page of metrics.
fn shows(page: &str, line: &str) {
    assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
}

#[test]
fn one_connection_more_than_may_be_is_closed_at_once_at_each_door() {
    let served = Served::new(Server::builder().reader_connections_max(1).flight(loopback()));
    let mut first = Kept::to(served.server.address().unwrap());
    assert!(first.asks("/health", "").is_some());
    assert!(Kept::to(served.server.address().unwrap()).asks("/health", "").is_none());
    let flight = served.server.flight_address().unwrap();
    let [mut one, mut other] = [Kept::to(flight), Kept::to(flight)];
    one.0.set_nonblocking(true).unwrap();
    assert!(other.is_closed() && !matches!(one.0.read(&mut [0]), Ok(0)), "the first stays");
    let page = first.asks("/metrics", "").unwrap();
    shows(&page, "forebay_connections_refused_total{door=\"http\",reason=\"too_many\"} 1");
    shows(&page, "forebay_connections_refused_total{door=\"flight\",reason=\"too_many\"} 1");
    shows(&page, "forebay_connections{door=\"http\"} 1");
    drop(first);
    while Kept::to(served.server.address().unwrap()).asks("/health", "").is_none() {} // once the server sees that it is gone
}

// Its client went without a word, or forgot it: the place is for others.
#[test]
fn a_connection_that_carries_nothing_for_too_long_is_closed() {
    let served =
        Served::new(Server::builder().reader_idle_time_max(Duration::from_millis(200)).first_call_time_max(
            Duration::from_millis(100), // looked at before, which ends nothing
        ));
    let mut reader = Kept::to(served.server.address().unwrap());
    assert!(reader.asks("/ready", "").is_some() && reader.is_closed());
    let page = Kept::to(served.server.address().unwrap()).asks("/metrics", "").unwrap();
    shows(&page, "forebay_connections_refused_total{door=\"http\",reason=\"idle\"} 1");
    assert!(!page.contains("silent"), "{page}");
}

#[test]
fn a_connection_over_which_nobody_is_let_in_is_closed_and_who_was_let_in_stays() {
    let token = Token::new("shown").unwrap();
    let builder = Server::builder().token(token).first_call_time_max(Duration::from_secs(3));
    let served = Served::new(builder.flight(loopback()));
    let mut reader = Kept::to(served.server.address().unwrap());
    assert!(reader.asks("/ready", "shown").is_some());
    let mut stranger = Kept::to(served.server.address().unwrap());
    assert!(stranger.asks("/health", "guessed").is_some(), "everybody may ask that");
    let mut silent = Kept::to(served.server.address().unwrap());
    let mut silent_at_flight = Kept::to(served.server.flight_address().unwrap());
    assert!(stranger.is_closed() && silent.is_closed() && silent_at_flight.is_closed());
    assert!(reader.asks("/ready", "shown").is_some(), "over the connection of before");
    let page = reader.asks("/metrics", "shown").unwrap();
    shows(&page, "forebay_connections_refused_total{door=\"http\",reason=\"silent\"} 2");
    shows(&page, "forebay_connections_refused_total{door=\"flight\",reason=\"silent\"} 1");
}
