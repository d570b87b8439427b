//! Set and get between two processes: this one serves, the other one calls.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use forebay::client::{Client, Objects};
use forebay_benches::{Goal, ObjectScale, Outcome, Pair, Row, noise, sum, typical};
use forebay_server::Server;
use forebay_store::{Dtype, Expected, HostFolder, Layout, ObjectOptions, Options, Store, Which};

use super::other::{CHILD, CLASS, TENSOR};

/// A store with its host tier in shared memory, and its server; gone with this.
pub(super) struct Served {
    pub(super) objects: Objects,
    pub(super) folder: tempfile::TempDir,
    server: Option<Server>,
}

impl Served {
    /// One that may take so many bytes of shared memory.
    pub(super) fn new(host_bytes_max: u64) -> Outcome<Self> {
        let folder = tempfile::tempdir_in("/dev/shm")?;
        let host = HostFolder::At(folder.path().join("host"));
        let objects = ObjectOptions::default()
            .host_folder(host)
            .versions_kept(1)
            .pageable_bytes_max(0)
            .host_bytes_max(host_bytes_max);
        let store = Store::open(folder.path().join("store"), Options::default().objects(objects))?;
        let server = Server::builder().grpc_socket(folder.path().join("grpc.sock"));
        let server = Some(server.bind_without_http(store.clone())?);
        Ok(Served { objects: Client::embedded(store).objects(), folder, server })
    }

    fn address(&self) -> String {
        format!("unix://{}", self.folder.path().join("grpc.sock").display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.server.take()); // before its store
    }
}

/// The other process.
struct Other {
    process: Child,
    ask: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// This program again, told where the store and a bare file of as many bytes are.
    fn start(served: &Served, bare: &Path, bytes: usize) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args([CHILD, &served.address(), &bytes.to_string()])
            .arg(bare)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
        Ok(Other { process, ask, answers })
    }

    /// Has it do something; gives what it measured.
    fn ask<const N: usize>(&mut self, what: &str) -> Outcome<[u64; N]> {
        writeln!(self.ask.as_mut().ok_or("no input")?, "{what}")?;
        let answer = self.answers.next().ok_or("the other process is gone")??;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().map_err(|_| format!("to {what:?} the other process said {answer:?}").into())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.ask.take()); // nothing more is asked: it ends
        let _ = self.process.wait();
    }
}

pub(super) fn layout(bytes: usize) -> Outcome<Layout> {
    Ok(Layout::builder().tensor(CLASS, TENSOR, Dtype::U8, &[bytes as u64]).build()?)
}

/// Measures set and get of another process, and gives each row to `print`.
///
/// # Errors
/// When the store, its server or the other process fails.
pub fn between(scale: &ObjectScale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let (bytes, source) = (scale.state_bytes(), noise(scale.state_bytes()));
    let (served, meant) = (Served::new(16 << 30)?, sum(&source));
    let bare = served.folder.path().join("bare");
    std::fs::write(&bare, &source)?;
    let mut other = Other::start(&served, &bare, bytes)?;
    let first = Round::of(&served, &mut other, &source, meant)?.read; // pages that the other process has never seen
    let mut rounds = Vec::new();
    for _ in 0..scale.repetitions() {
        rounds.push(Round::of(&served, &mut other, &source, meant)?);
    }
    let of = |pair: fn(&Round) -> Pair| typical(rounds.iter().map(pair).collect());
    let size = if bytes >= 1 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) };
    let mut row = |measure: String, pair: Pair, unit, kind, goal| {
        print(Row::new(measure, (pair.value, unit), (pair.limit, kind), goal).of(meant | 1));
    };
    let set = format!("set of {size} by another process, at the server's socket");
    let kind = "a bare memcpy there into warm shared memory";
    row(set, of(|round| round.set), "MB/s", kind, Goal::RatioAtLeast(0.85));
    let get = format!("get of {size} in another process, at the server's socket");
    let kind = "opening and mapping a file of that size there";
    row(get, of(|round| round.get), "ms", kind, Goal::AtMost(1.0));
    let read = format!("get of {size} in another process and read of every byte");
    let kind = "reading warm shared memory there";
    row(read, of(|round| round.read), "MB/s", kind, Goal::RatioAtLeast(0.7));
    let read = format!("get of {size} in another process and first read, pages not known");
    row(read, first, "MB/s", kind, Goal::None);
    Ok(())
}

/// What the other process took once for each, beside what it took for bare bytes.
struct Round {
    set: Pair,
    get: Pair,
    read: Pair,
}

impl Round {
    /// The other process sets a version that this one reads, and reads one that this one sets.
    fn of(served: &Served, other: &mut Other, source: &[u8], meant: u64) -> Outcome<Self> {
        let [set, copied] = other.ask("set")?;
        let theirs = served.objects.get("theirs", Which::Latest)?;
        if sum(&theirs.tensor(TENSOR)?.to_vec()?) != meant {
            return Err("what the other process has set is not what it was told to".into());
        }
        drop(theirs);
        let mut ours = served.objects.begin("ours", Expected::Any, &layout(source.len())?)?;
        ours.write(TENSOR, 0, source)?;
        ours.commit()?;
        let [got, mapped, read, bare_read, found] = other.ask("get")?;
        if found != meant {
            return Err("the other process has got other bytes than were set".into());
        }
        let speed = |nanoseconds: u64| source.len() as f64 / nanoseconds as f64 * 1e3;
        Ok(Round {
            set: Pair { value: speed(set), limit: speed(copied) },
            get: Pair { value: got as f64 / 1e6, limit: mapped as f64 / 1e6 },
            read: Pair { value: speed(got + read), limit: speed(bare_read) },
        })
    }
}
