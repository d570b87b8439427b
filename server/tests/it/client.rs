//! The smallest HTTP client that will do, and a store to look at.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use forebay_server::{Builder, Server};
use forebay_store::{Consumer, DataType, MicroBatch, Options, Schema, StepPlan, Store, Wait};
use serde_json::Value as Json;
use tempfile::TempDir;

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The message of a failure, whose status and kind have to be these.
    pub(crate) fn failure(&self, status: u16, kind: &str) -> String {
        assert_eq!((self.status, &self.json()["kind"]), (status, &Json::from(kind)), "{self:?}");
        self.json()["message"].as_str().unwrap().to_owned()
    }
}

/// Sends one request on a connection of its own. A header named `Host` replaces the usual one.
pub(crate) fn send(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(to).unwrap();
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if headers.iter().all(|(name, _)| *name != "Host") {
        head += &format!("Host: {to}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let refused_early = stream.write_all(body).is_err(); // a body that is too large may not be taken
    let mut reply = Vec::new();
    let ended = stream.read_to_end(&mut reply);
    assert!(ended.is_ok() || !reply.is_empty() || refused_early, "{ended:?}");
    parse(&String::from_utf8(reply).unwrap())
}

fn parse(reply: &str) -> Reply {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no reply: {reply:?}"));
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    assert_ne!(field("transfer-encoding"), "chunked", "this client reads whole bodies only");
    Reply { status, content_type: field("content-type"), body: body.to_owned() }
}

/// A served store.
pub(crate) struct Served {
    pub(crate) store: Store,
    pub(crate) server: Server,
    _directory: TempDir,
}

impl Served {
    /// One table `solver`: a step trained on `q1`, `q2` waits, `q3` was left out.
    pub(crate) fn new(builder: Builder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
        fill(&store);
        Self::over(store, directory, builder)
    }

    /// A store that the caller has filled, in a directory that is gone with it.
    pub(crate) fn over(store: Store, directory: TempDir, builder: Builder) -> Self {
        let server = builder.bind(store.clone(), loopback()).unwrap();
        Served { store, server, _directory: directory }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        send(self.server.address().unwrap(), "GET", path, &[], b"")
    }

    pub(crate) fn sql(&self, sql: &str) -> Reply {
        send(self.server.address().unwrap(), "POST", "/sql", &[], sql.as_bytes())
    }

    pub(crate) fn sql_as(&self, accept: &str, sql: &str) -> Reply {
        send(self.server.address().unwrap(), "POST", "/sql", &[("Accept", accept)], sql.as_bytes())
    }
}

/// Any free port of this machine.
pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn fill(store: &Store) {
    let schema = Schema::new().data("prompt", DataType::Utf8).data("reward", DataType::Float32);
    let solver = store.create_table("solver", schema).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    let prompt = "longer than what fits into a view";
    solver.insert(0, "q1_0_0", [("prompt", prompt.into()), ("reward", 1.0.into())]).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    solver.insert(1, "q2_0_0", [("reward", 0.5.into())]).unwrap();
    let cut = solver.insert(1, "q3_0_0", []).unwrap();
    solver.exclude(cut, "too \"long\"").unwrap();
}

/// The metrics of a server by name and labels, after a check of the page's form.
pub(crate) fn samples_at(server: SocketAddr) -> BTreeMap<String, f64> {
    let reply = send(server, "GET", "/metrics", &[], b"");
    assert_eq!(
        (reply.status, reply.content_type.as_str()),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    let (mut samples, mut family, mut histogram) = (BTreeMap::new(), String::new(), false);
    for line in reply.body.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            family = head.split(' ').next().unwrap().to_owned();
            assert!(family.starts_with("forebay_"), "{line}");
        } else if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert_eq!((name, kind == "counter"), (family.as_str(), family.ends_with("_total")), "{line}");
            histogram = kind == "histogram";
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let of = name.split('{').next().unwrap();
            let part = of.strip_prefix(family.as_str()).unwrap_or("another");
            let parts: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(parts.contains(&part), "{line} of {family}");
            assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
    }
    samples
}
