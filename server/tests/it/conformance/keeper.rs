//! A process that has a store, seen from both sides: it serves the store or works with it, until it is killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use forebay_server::Server;

use super::*;

/// What a process of that kind does before it tells that it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Serves the store to others.
    Serves,
    /// Works with it itself: the first half of a case of [`survived`](super::survived).
    Works,
}

/// A process that lives for as long as this does.
pub(super) struct Keeper {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Keeper {
    /// Begins one, which is ready when this returns. `address` is where it serves over TCP.
    pub(super) fn begin(part: Part, dir: &Path, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "conformance::keeper::process", "--ignored", "--nocapture"])
            .env("FOREBAY_KEEPER", format!("{part:?}"))
            .env("FOREBAY_DIR", dir)
            .env("FOREBAY_ADDRESS", address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut keeper = Keeper { child, said };
        keeper.until_ready();
        keeper
    }

    fn until_ready(&mut self) {
        let mut line = String::new();
        while line.trim_end() != "ready" {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it ended before it was ready");
        }
    }

    /// Kills it as `kill -9` does.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9), "it had ended by itself");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait()); // killed already, unless the case failed
    }
}

/// Leases are longer than the case: what comes back, comes back because its holder is gone.
pub(super) fn options(dir: &Path) -> Options {
    let objects = ObjectOptions::default()
        .host_folder(HostFolder::At(dir.join("host")))
        .host_bytes_max(64 << 20)
        .pageable_bytes_max(0);
    Options::default().lease(Duration::from_secs(3_600)).objects(objects)
}

/// The processes that are killed.
#[test]
#[ignore = "the processes that cases kill"]
fn process() {
    let Ok(part) = std::env::var("FOREBAY_KEEPER") else { return };
    let text = |name: &str| std::env::var(name).unwrap();
    let dir = PathBuf::from(text("FOREBAY_DIR"));
    // Nobody is left where the test itself is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let store = Store::open(dir.join("store"), options(&dir)).unwrap();
    if part == format!("{:?}", Part::Works) {
        let client = Client::embedded(store);
        let held = survived::first_half(&client);
        ready();
        return until_killed(&held);
    }
    let server = Server::builder()
        .grpc_socket(dir.join("grpc.sock"))
        .grpc(text("FOREBAY_ADDRESS").parse().unwrap())
        .bind(store, "127.0.0.1:0".parse().unwrap())
        .unwrap();
    ready();
    until_killed(&server);
}

fn ready() {
    let mut out = std::io::stdout().lock();
    out.write_all(b"\nready\n").unwrap(); // behind what the test harness began
    out.flush().unwrap();
}

fn until_killed<T>(held: &T) {
    loop {
        let _ = &held;
        std::thread::park();
    }
}
