//! A process of the campaign, seen from both sides: how it is begun and heard, and what it does when it is.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_client::{Client, ConnectOptions, Error};
use forebay_server::Server;
use forebay_store::{HostFolder, Kind, ObjectOptions, Options, Store};

use super::{judge, objects, rollout, trainer};

/// How long a client's call may take, and for how long it is sent again.
pub(super) const CALL_MAX: Duration = Duration::from_secs(20);
pub(super) const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Server,
    Rollout(u64),
    Judge(u64),
    Trainer,
    Setter(u64),
    Reader(u64),
}

impl Part {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Part::Server => "server",
            Part::Rollout(_) => "rollout",
            Part::Judge(_) => "judge",
            Part::Trainer => "trainer",
            Part::Setter(_) => "setter",
            Part::Reader(_) => "reader",
        }
    }

    fn number(self) -> u64 {
        match self {
            Part::Rollout(number) | Part::Judge(number) => number,
            Part::Setter(number) | Part::Reader(number) => number,
            Part::Server | Part::Trainer => 0,
        }
    }
}

/// A line that a part told; none when it has ended.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) part: Part,
    pub(super) line: Option<String>,
}

/// A process that lives, for as long as this does.
#[derive(Debug)]
pub(super) struct Life {
    part: Part,
    child: Child,
    listens: Option<JoinHandle<()>>,
}

impl Life {
    pub(super) fn begin(part: Part, dir: &Path, address: &str, from: &str, says: Sender<Heard>) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::process::process", "--ignored", "--nocapture"])
            .env("FOREBAY_PART", part.as_str())
            .env("FOREBAY_NUMBER", part.number().to_string())
            .env("FOREBAY_DIR", dir)
            .env("FOREBAY_ADDRESS", address)
            .env("FOREBAY_FROM", from)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let listen = move || {
            for line in out.lines().map_while(Result::ok) {
                if let Some(told) = line.strip_prefix("tells ") {
                    let _ = says.send(Heard { part, line: Some(told.to_owned()) });
                }
            }
            let _ = says.send(Heard { part, line: None });
        };
        Life { part, child, listens: Some(std::thread::spawn(listen)) }
    }

    /// Kills it, and waits until all that it told was heard.
    pub(super) fn kill(mut self, seed: u64) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "seed {seed}: {:?} ended by itself: {status}", self.part);
        self.listens.take().unwrap().join().unwrap();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait()); // killed already, unless the campaign failed
    }
}

/// Says something to the campaign. The line is in the pipe when this returns, whatever happens to the process.
pub(super) fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("tells {line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// A client's process: what it needs for its work.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) number: u64,
    /// What the life before was heard to begin last.
    pub(super) from: String,
    pub(super) dir: PathBuf,
}

impl Worker {
    /// Whether the campaign nears its end.
    pub(super) fn is_enough(&self) -> bool {
        self.dir.join("enough").exists()
    }

    /// Makes a call, and tells where it took longer than any may.
    pub(super) fn call<T>(
        &self,
        what: &str,
        call: impl FnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begun = Instant::now();
        let outcome = call(&self.client);
        if begun.elapsed() > CALL_MAX + OUTAGE_MAX + Duration::from_secs(60) {
            tell(&format!("late {what} {:?}", begun.elapsed()));
        }
        outcome
    }

    /// The same until somebody answers.
    pub(super) fn insist<T>(&self, what: &str, call: impl Fn(&Client) -> Result<T, Error>) -> T {
        loop {
            match self.call(what, &call) {
                Ok(done) => return done,
                Err(error) => assert_eq!(error.kind(), Kind::Retry, "{what}: {error}"),
            }
        }
    }

    /// Holds what it holds until it is killed.
    pub(super) fn hold<T>(&self, held: &T) -> ! {
        tell("holds");
        loop {
            let _ = &held;
            std::thread::park();
        }
    }
}

/// Connects as soon as there is somebody.
pub(super) fn connect(address: &str) -> Client {
    let options = ConnectOptions::default().call_time_max(CALL_MAX).outage_time_max(OUTAGE_MAX);
    loop {
        match Client::connect(address, &options) {
            Ok(client) => return client,
            Err(error) => assert_eq!(error.kind(), Kind::Retry, "{error}"),
        }
        std::thread::yield_now();
    }
}

pub(super) fn socket(dir: &Path) -> String {
    format!("unix://{}", dir.join("grpc.sock").display())
}

/// A process of the campaign: works until it is killed.
#[test]
#[ignore = "the processes that the campaign kills"]
fn process() {
    let Ok(part) = std::env::var("FOREBAY_PART") else { return };
    let text = |name: &str| std::env::var(name).unwrap();
    let (dir, address) = (PathBuf::from(text("FOREBAY_DIR")), text("FOREBAY_ADDRESS"));
    // Nobody is left where the campaign itself is killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    println!(); // ends the line that the test harness began
    if part == "server" {
        return serve(&dir, &address);
    }
    let number: u64 = text("FOREBAY_NUMBER").parse().unwrap();
    let address = if number.is_multiple_of(2) { socket(&dir) } else { format!("grpc://{address}") };
    let worker = Worker { client: connect(&address), number, from: text("FOREBAY_FROM"), dir };
    match &*part {
        "rollout" => rollout::work(&worker),
        "judge" => judge::work(&worker),
        "setter" => objects::set(&worker),
        "reader" => objects::read(&worker),
        _ => trainer::work(&worker),
    }
}

/// Where objects lie in memory: so that they are there again for the server's next life.
pub(super) fn host_memory(dir: &Path) -> ObjectOptions {
    ObjectOptions::default().host_folder(HostFolder::At(dir.join("host"))).host_bytes_max(256 << 20)
}

/// Leases are longer than the campaign: what comes back, comes back because its holder is gone.
fn serve(dir: &Path, address: &str) {
    let options = Options::default()
        .extent_bytes(1 << 16, 1 << 20)
        .segment_bytes_max(1 << 16)
        .lease(Duration::from_secs(3600))
        .objects(host_memory(dir));
    let store = Store::open(dir.join("store"), options).unwrap();
    super::promised::declare(&store);
    let _server = Server::builder()
        .grpc_socket(dir.join("grpc.sock"))
        .grpc(address.parse().unwrap())
        .session_grace(Duration::from_millis(500))
        .bind(store.clone(), "127.0.0.1:0".parse().unwrap())
        .unwrap();
    tell("serves");
    loop {
        store.run_once().unwrap();
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
