//! What is secret is in no log, however much is logged: tokens that are known and that are not, and keys.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use forebay::client::{Client, ConnectOptions};
use forebay::store::Schema;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Scratch, forebay};

const KNOWN: &str = "a8K2known3Token5of7the9boss";
const UNKNOWN: &str = "b4Q6unknown8Token0of2nobody";

/// A process that logs everything to a file; killed with the test.
struct Logging {
    process: Child,
    log: String,
}

impl Logging {
    fn new(scratch: &Scratch, arguments: &[&str], token: Option<&str>) -> Self {
        let log = scratch.path("log");
        let file = File::create(&log).unwrap();
        let mut command = forebay(arguments);
        command.env("FOREBAY_LOG", "trace");
        token.into_iter().for_each(|token| _ = command.env("FOREBAY_TOKEN", token));
        let process = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Logging { process, log }
    }

    /// What stands behind those words in the log, once it does.
    fn said(&mut self, words: &str) -> String {
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(line) = whole.lines().find_map(|line| line.strip_prefix(words)) {
                return line.to_owned();
            }
            assert!(self.process.try_wait().unwrap().is_none(), "{log}");
            std::thread::yield_now();
        }
    }

    /// All that it logged, once it has ended as it is asked to.
    fn ended(mut self) -> String {
        let process = Pid::from_child(&self.process);
        if self.process.try_wait().unwrap().is_none() {
            let _ = kill_process(process, Signal::TERM);
        }
        self.process.wait().unwrap();
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait()); // it has ended already, unless the test failed
    }
}

/// Holds a log against what may not be in it.
fn is_silent(log: &str, secrets: &[&str], who: &str) {
    assert!(log.contains("TRACE"), "{who} logs everything");
    for secret in secrets {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{who} says {secret:?}: {line:?}");
    }
}

fn over_http(address: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "POST /sql HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    write!(stream, "{head}Authorization: {header}\r\nContent-Length: 8\r\n\r\nSELECT 1").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn grants(scratch: &Scratch) -> String {
    let path = scratch.path("grants.toml");
    std::fs::write(&path, format!("[boss]\ntoken = \"{KNOWN}\"\nscopes = [\"admin\"]\n")).unwrap();
    path
}

/// What a client does that is let in, and one that is not.
fn work(address: &str, options: &ConnectOptions) {
    let client = Client::connect(address, &options.clone().token(KNOWN)).unwrap();
    client.create_table("solver", Schema::new()).unwrap();
    client.query("SELECT count(*) FROM solver").unwrap();
    client.query("SELECT no such thing").unwrap_err();
    let options = options.clone().outage_time_max(Duration::ZERO);
    Client::connect(address, &options.token(UNKNOWN)).unwrap_err();
}

#[test]
fn no_token_is_in_a_server_s_log_nor_in_a_client_s() {
    let scratch = Scratch::new();
    let (dir, grants) = (scratch.path("store"), grants(&scratch));
    let any = "127.0.0.1:0";
    let doors = ["--listen", any, "--flight", any, "--grpc", any, "--grants", &grants];
    let mut served = Logging::new(&scratch, &[&["serve", "--dir", &dir], &doors[..]].concat(), None);
    let (http, grpc) = (served.said("listening on http://"), served.said("clients on "));
    work(&grpc, &ConnectOptions::default());
    // What a browser or a script sends of a token, in each form, and of what is nearly one.
    let password = "YTpiNFE2dW5rbm93bjhUb2tlbjBvZjJub2JvZHk="; // a:UNKNOWN in base64
    for (header, status) in [
        (format!("Bearer {KNOWN}"), "200"),
        (format!("Bearer {UNKNOWN}"), "401"),
        (UNKNOWN.to_owned(), "401"),
        (format!("Basic {password}"), "401"),
        (format!("Bearer {KNOWN} {UNKNOWN}"), "401"),
    ] {
        let reply = over_http(&http, &header);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{header}: {reply}");
        assert!(!reply.contains(KNOWN) && !reply.contains(UNKNOWN), "nor in a reply: {reply}");
    }
    let beside = Scratch::new();
    for token in [KNOWN, UNKNOWN] {
        let asks = Logging::new(&beside, &["admin", "overview", "--connect", &grpc], Some(token));
        let mut asks = asks;
        asks.process.wait().unwrap();
        is_silent(&asks.ended(), &[KNOWN, UNKNOWN], "a client");
    }
    is_silent(&served.ended(), &[KNOWN, UNKNOWN, password], "the server");
}

#[test]
fn no_key_is_in_a_server_s_log() {
    let scratch = Scratch::new();
    let (dir, grants) = (scratch.path("store"), grants(&scratch));
    let (certificate, key) = (scratch.path("a.pem"), scratch.path("a.key"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = made.signing_key.serialize_pem();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, &pem).unwrap();
    let any = "127.0.0.1:0";
    let doors = ["--listen", any, "--flight", any, "--grpc", any, "--grants", &grants];
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
    let serve = ["serve", "--dir", &dir];
    let mut served = Logging::new(&scratch, &[&serve[..], &doors, &tls].concat(), None);
    let address = served.said("clients on ").replace("127.0.0.1", "localhost");
    work(&address, &ConnectOptions::default().authority_certificate(&made.cert.pem()));
    let lines: Vec<&str> = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.len() > 20));
    is_silent(&served.ended(), &[&lines[..], &[KNOWN, UNKNOWN]].concat(), "the server");
    // Nor where the key is refused.
    let spoilt = scratch.path("spoilt.key");
    std::fs::write(&spoilt, pem.replace("-----END", "----END")).unwrap();
    let refused = [&serve[..], &doors, &["--tls-certificate", &certificate, "--tls-key", &spoilt]].concat();
    let output = forebay(&refused).env("FOREBAY_LOG", "trace").stdout(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    lines.iter().for_each(|line| assert!(!said.contains(line), "{said}"));
}
