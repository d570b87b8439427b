//! `forebay serve` with grants and with a certificate.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use forebay::store::{Options, Store};

use crate::support::{Scratch, Served, forebay, stderr};

/// What a message of TLS begins with that says what is wrong.
const TLS_ALERT: u8 = 21;

#[test]
fn grants_hold_for_those_who_read_also_where_nobody_writes() {
    let scratch = Scratch::new();
    let dir = scratch.path("store");
    let _store = Store::open(&dir, Options::default()).unwrap();
    let grants = scratch.path("grants.toml");
    let text = "[looker]\ntoken = \"glass\"\nscopes = [\"read\"]\n[rollouts]\ntoken = \"sesame\"\nscopes = [\"write\"]\n";
    std::fs::write(&grants, text).unwrap();
    let served = Served::new(&dir, &["--grants", &grants], None);
    for (header, status) in [
        ("", "HTTP/1.1 401"),
        ("Authorization: Bearer wrong\r\n", "HTTP/1.1 401"),
        ("Authorization: Bearer sesame\r\n", "HTTP/1.1 403"),
        ("Authorization: Bearer glass\r\n", "HTTP/1.1 200"),
    ] {
        let reply = served.ask("SELECT 1", header);
        assert!(reply.starts_with(status), "{header:?}: {reply}");
    }
}

/// What `forebay serve` says first, with a certificate of its own.
fn said_first(dir: &str, more: &[&str], count: usize) -> (Child, Vec<String>) {
    let mut command = forebay(&[&["serve", "--dir", dir], more].concat());
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(process.stderr.take().unwrap()).lines();
    let said = said.take(count).map(Result::unwrap).collect();
    (process, said)
}

#[test]
fn with_a_certificate_no_address_speaks_in_clear_text() {
    let scratch = Scratch::new();
    let (dir, certificate, key) = (scratch.path("store"), scratch.path("a.pem"), scratch.path("a.key"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
    let any = "127.0.0.1:0";
    let doors = ["--grpc", any, "--listen", any, "--flight", any];
    let (mut process, said) = said_first(&dir, &[&tls[..], &doors].concat(), 3);
    let addresses =
        said.iter().zip(["listening on https://", "Flight SQL on grpc+tls://", "clients on grpcs://"]);
    for (line, begins) in addresses {
        let address = line.strip_prefix(begins).unwrap_or_else(|| panic!("{line} is not {begins}"));
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply); // it may be reset
        assert!(reply.is_empty() || reply[0] == TLS_ALERT, "{line}: {}", String::from_utf8_lossy(&reply));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let refused = |more: &[&str], named: &str| {
        let output = forebay(&[&["serve", "--dir", &dir], &tls[..2], more].concat()).output().unwrap();
        assert!(output.status.code() == Some(2) && stderr(&output).contains(named), "{}", stderr(&output));
    };
    refused(&[], "--tls-key");
    refused(&["--tls-key", &certificate], "the key is none in PEM");
    let socket = scratch.path("fb.sock");
    refused(
        &["--tls-key", &key, "--socket", &socket, "--listen", "none", "--flight", "none"],
        "a socket needs no TLS",
    );
}
