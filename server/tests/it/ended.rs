//! What a client of this machine held comes back as soon as its process has ended, however long the grace of its session is; while it
//! is stopped, it keeps what it has, until it was silent for too long.

use std::any::Any;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use forebay_client::{Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::{
    Dtype, Expected, HostFolder, Layout, ObjectOptions, Objects, Options, Store, TensorBytes, Wait, Which,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::conformance::{judge, row, solver, up_to};

const GRACE: Duration = Duration::from_secs(600);
/// What is measured is that nobody waits for a clock: the grace is minutes.
const AT_ONCE: Duration = Duration::from_secs(1);
const BYTES: usize = 3 << 20;

fn tensor(bytes: &[u8]) -> [TensorBytes<'_>; 1] {
    [TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[BYTES as u64], bytes }]
}

/// A client that does one thing, says so, and lives until it is killed.
#[test]
#[ignore = "the process that the other tests here kill"]
fn client() {
    let (Ok(address), Ok(does)) = (std::env::var("FOREBAY_ADDRESS"), std::env::var("FOREBAY_DOES")) else {
        return;
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let client = Client::connect(&address, &ConnectOptions::default()).unwrap();
    let objects = client.objects();
    let _kept: Box<dyn Any> = match &*does {
        "holds" => Box::new(objects.get("solver", Which::Latest).unwrap()),
        "claims" => Box::new(client.consumer("judge").unwrap().claim(up_to(1), Wait::No).unwrap().unwrap()),
        "receives" => Box::new(objects.receive("news", Wait::No).unwrap()),
        _ => {
            let bytes = vec![7; BYTES];
            let filling =
                objects.begin("judge", Expected::Any, &Layout::of(&tensor(&bytes)).unwrap()).unwrap();
            filling.write("w", 0, &bytes).unwrap();
            Box::new(filling)
        }
    };
    println!("\ntells {does}");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

struct Other(Child);

impl Other {
    fn that(does: &str, dir: &Path) -> Self {
        Self::at(&format!("unix://{}", dir.join("grpc.sock").display()), does)
    }

    fn at(address: &str, does: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ended::client", "--ignored", "--nocapture"])
            .env("FOREBAY_ADDRESS", address)
            .env("FOREBAY_DOES", does)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == format!("tells {does}")), "it ended before it {does}");
        Other(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn kill(mut self) -> Instant {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        Instant::now()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait()); // killed already, unless the test failed
    }
}

struct Served {
    _server: Server,
    objects: Objects,
    dir: tempfile::TempDir,
}

fn served() -> Served {
    let dir = tempfile::tempdir().unwrap();
    let objects = ObjectOptions::default().host_folder(HostFolder::At(dir.path().join("host")));
    let store = Store::open(dir.path().join("store"), Options::default().objects(objects)).unwrap();
    let server = Server::builder().grpc_socket(dir.path().join("grpc.sock")).session_grace(GRACE);
    let (server, objects) = (server.bind_without_http(store.clone()).unwrap(), store.objects().unwrap());
    objects.set("solver", &tensor(&vec![1; BYTES])).unwrap();
    objects.publish("news", &tensor(&vec![2; BYTES])).unwrap();
    Served { _server: server, objects, dir }
}

impl Served {
    /// Versions that are held, and bytes that are taken in memory or kept back.
    fn taken(&self) -> (u64, u64, u64) {
        let stats = self.objects.stats();
        (stats.leases, stats.host_bytes_taken, stats.quarantine_bytes)
    }

    /// Waits until that is taken and no more.
    fn check_back(&self, meant: (u64, u64, u64), since: Instant, what: &str) {
        while self.taken() != meant {
            let late = since.elapsed() > AT_ONCE;
            assert!(!late, "what the dead {what} is out: {:?}, not {meant:?}", self.taken());
            std::thread::yield_now();
        }
    }
}

// Leases end with the process of their holder, never with a clock.
#[test]
fn what_a_killed_client_had_comes_back_at_once() {
    let served = served();
    let quiet = served.taken();
    for does in ["holds", "receives", "fills"] {
        let other = Other::that(does, served.dir.path());
        assert_ne!(served.taken(), quiet, "it {does}");
        served.check_back(quiet, other.kill(), does);
    }
    assert_eq!(served.objects.receive("news", Wait::No).unwrap().version(), 1, "the next one has it");
}

#[test]
fn a_stopped_client_keeps_what_it_has() {
    let served = served();
    let quiet = served.taken();
    let stopped = Other::that("receives", served.dir.path());
    let with_it = served.taken();
    stopped.signal(Signal::STOP);
    for does in ["holds", "fills"] {
        let other = Other::that(does, served.dir.path());
        served.check_back(with_it, other.kill(), does); // ends of others are looked for meanwhile
    }
    assert!(served.objects.receive("news", Wait::No).is_err(), "it is being received");
    served.check_back(quiet, stopped.kill(), "receives");
}

// It says nothing when it is asked whether it is there; its lease is far longer than this takes.
#[test]
fn the_session_of_a_stopped_client_ends_when_it_was_silent_for_too_long_and_the_grace_is_over() {
    let (alive, grace) = (Duration::from_secs(1), Duration::from_secs(1));
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("store"), Options::default().lease(GRACE)).unwrap();
    let builder = Server::builder().grpc_socket(dir.path().join("grpc.sock")).grpc(crate::client::loopback());
    let builder = builder.alive_time_max(alive).session_grace(grace);
    let server = builder.bind_without_http(store.clone()).unwrap();
    let local = Client::embedded(store);
    let (table, judge) = (solver(&local), judge(&local));
    let tcp = format!("grpc://{}", server.grpc_address().unwrap());
    for (sample, address) in
        [("q_0_0", format!("unix://{}", dir.path().join("grpc.sock").display())), ("q_0_1", tcp)]
    {
        row(&table, 0, sample, None);
        let stopped = Other::at(&address, "claims");
        stopped.signal(Signal::STOP);
        let since = Instant::now();
        let again =
            judge.claim(up_to(1), Wait::For(Duration::from_secs(60))).unwrap().expect("the row comes back");
        assert_eq!(again.sample_ids()[0].to_string(), sample, "{address}");
        assert!(since.elapsed() >= grace, "{address}: it had its grace");
        drop(again);
        stopped.kill();
        local
            .admin()
            .evict("solver", &[table.find(0, &sample.parse().unwrap()).unwrap().unwrap()], "done")
            .unwrap();
    }
}
