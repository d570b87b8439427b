//! What it costs that a store is in another process: the same calls embedded, as a neighbour that uses the store's files, over
//! a Unix socket and over TCP on loopback, beside bare sockets that carry as much.
//!
//! The process that measures is the server; each client is a process of its own, this program again (`--child`), which prints
//! its numbers as one line. A row and its limit are of one run.

mod bare;
mod bulk;
mod client;
mod crowd;
mod http2;
mod many;
pub mod objects;
pub mod swap;

use std::process::{Child, Command, Stdio};

use forebay_benches::{Goal, Outcome, Row};
use forebay_client::{Client, ConnectOptions};
use forebay_server::Server;
use forebay_store::{Consumer, DataType, Element, Options, Schema, Store};

pub use client::child;
pub use crowd::raise_open_files;
pub use many::{Size, many};

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Round trips and hand-overs.
    pub rounds: usize,
    /// Samples that are written and claimed.
    pub samples: usize,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { rounds: 5_000, samples: 64 * 400 }
    }
}

impl Scale {
    /// Only to see that it works.
    pub fn quick() -> Self {
        Scale { rounds: 50, samples: 64 * 4 }
    }
}

/// A store with the usual tables, and a server in front of it.
struct World {
    dir: tempfile::TempDir,
    store: Store,
    server: Server,
    /// The same store, where all values come in messages and none in frames.
    plain: Server,
}

impl World {
    fn new() -> Outcome<Self> {
        let dir = tempfile::tempdir()?;
        let store = Store::open(dir.path().join("store"), Options::default())?;
        let list = |element| DataType::list(element);
        let schema = Schema::new()
            .data("prompt", list(Element::Int32))
            .data("response", list(Element::Int32))
            .data("logprobs", list(Element::Float32))
            .data("reward", DataType::Float32);
        store.create_table("solver", schema)?;
        store.create_consumer("train", Consumer::task(["solver"]).ready(["response", "reward"]))?;
        store.create_table(
            "ping",
            Schema::new().data("sent", DataType::Int64).data("heard", DataType::Int64),
        )?;
        store.create_consumer("hear", Consumer::task(["ping"]).ready(["sent"]))?;
        store.create_consumer("answer", Consumer::task(["ping"]).ready(["heard"]))?;
        store.create_table("images", Schema::new().data("image", DataType::Binary))?;
        store.create_consumer("read", Consumer::task(["images"]).ready(["image"]))?;
        let builder =
            Server::builder().grpc_socket(dir.path().join("grpc.sock")).grpc("127.0.0.1:0".parse()?);
        let server = builder.bind(store.clone(), "127.0.0.1:0".parse()?)?;
        let plain = Server::builder().grpc("127.0.0.1:0".parse()?).bulk_bytes_max(0);
        let plain = plain.bind(store.clone(), "127.0.0.1:0".parse()?)?;
        Ok(World { dir, store, server, plain })
    }

    fn socket(&self) -> String {
        format!("unix://{}", self.dir.path().join("grpc.sock").display())
    }

    fn tcp(&self) -> String {
        tcp_of(&self.server)
    }

    fn tcp_plain(&self) -> String {
        tcp_of(&self.plain)
    }
}

fn tcp_of(server: &Server) -> String {
    format!("grpc://{}", server.grpc_address().map(|address| address.to_string()).unwrap_or_default())
}

/// What measures the rows of a group.
type Measures = fn(&Scale, &mut dyn FnMut(Row)) -> Outcome<()>;

/// The groups of rows, in the order in which they are measured.
const GROUPS: [(&str, Measures); 4] = [
    ("trips", round_trips),
    ("handovers", handovers),
    ("large", large_values),
    ("samples", ingest_and_claims),
];

/// The names of the groups of rows.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(name, _)| *name)
}

/// Measures every row, or those of one group, and gives each to `print` as soon as it is known.
///
/// # Errors
/// When a store, a socket or a process fails.
pub fn run(scale: &Scale, only: Option<&str>, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let wanted = GROUPS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    wanted.into_iter().try_for_each(|(_, measure)| measure(scale, print))
}

/// Large values over TCP, beside a bare copy of as many bytes, in turns.
fn large_values(scale: &Scale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let count = (scale.samples / TURNS / bulk::SAMPLES_PER_VALUE).max(1).next_multiple_of(bulk::AT_ONCE);
    let (mut moved, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let world = World::new()?;
        moved.push(numbers::<2>(spawn("large-values", &world.tcp(), count)?)?);
        bare.push([bare::tcp_copy(count * bulk::VALUE_BYTES)?]);
    }
    let ([written, read], [bare]) = (medians(&moved), medians(&bare));
    let kind = "a bare TCP copy on loopback";
    for (name, value) in [("written in frames", written), ("brought by claims", read)] {
        let name = format!("values of 1 MiB over TCP on loopback, {name}");
        print(Row::new(name, (value, "MB/s"), (bare, kind), Goal::RatioAtLeast(0.6)));
    }
    Ok(())
}

/// A way to a store for samples: its words, what its client does and where, and the least share of the embedded ingest.
type Way = (&'static str, &'static str, fn(&World) -> String, Goal);

/// How often each way is measured, in turns: the medians count, for a disk that catches up with one way slows the next.
const TURNS: usize = 5;

fn ingest_and_claims(scale: &Scale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let ways: [Way; 8] = [
        ("as a neighbour, one write at a time", "samples", World::socket, Goal::None),
        ("as a neighbour", "samples-ahead", World::socket, Goal::RatioAtLeast(0.6)),
        ("through slabs, one write at a time", "samples-slabs", World::socket, Goal::None),
        ("through slabs", "samples-slabs-ahead", World::socket, Goal::RatioAtLeast(0.4)),
        ("over a Unix socket, values sent, one write at a time", "samples-sent", World::socket, Goal::None),
        ("over a Unix socket, values sent", "samples-sent-ahead", World::socket, Goal::None),
        ("over TCP, values in messages", "samples-ahead", World::tcp_plain, Goal::None),
        ("over TCP on loopback", "samples-ahead", World::tcp, Goal::None),
    ];
    let count = (scale.samples / TURNS).next_multiple_of(client::BATCH);
    let (mut embedded, mut bare, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    let mut served = [const { Vec::new() }; 8];
    for _ in 0..TURNS {
        embedded.push(client::samples(&Client::embedded(World::new()?.store.clone()), count, 1)?);
        for ((_, what, of, _), measured) in ways.iter().zip(&mut served) {
            let world = World::new()?;
            measured.push(numbers::<3>(spawn(what, &of(&world), count)?)?);
        }
        bare.push([bare::tcp_copy(count * client::SAMPLE_BYTES)?]);
        streams.push([http2::copy(count * client::SAMPLE_BYTES)?]);
    }
    let ([ingest, p50, p99], [bare]) = (medians(&embedded), medians(&bare));
    let [stream] = medians(&streams);
    let (name, kind) = ("bytes over an HTTP/2 stream that nobody looks at", "a bare TCP copy on loopback");
    print(Row::new(name.to_owned(), (stream, "MB/s"), (bare, kind), Goal::None));
    let kind = "the same calls of a store in the same process";
    for ((way, _, _, goal), measured) in ways.into_iter().zip(&served) {
        let values = medians(measured);
        let name = format!("ingest of 10 KB samples {way}, batches of 64");
        print(Row::new(name, (values[0], "MB/s"), (ingest, kind), goal));
        for (which, value, limit) in [("p50", values[1], p50), ("p99", values[2], p99)] {
            print(Row::new(
                format!("claim 16 + Arrow {way}, {which}"),
                (value, "us"),
                (limit, kind),
                Goal::None,
            ));
        }
        if way.ends_with("loopback") {
            let (name, kind) = ("the same ingest, beside bare bytes", "a bare TCP copy on loopback");
            print(Row::new(name.to_owned(), (values[0], "MB/s"), (bare, kind), Goal::RatioAtLeast(0.6)));
        }
    }
    Ok(())
}

/// The median of each number.
fn medians<const N: usize>(measured: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|at| {
        let mut values: Vec<f64> = measured.iter().map(|numbers| numbers[at]).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    })
}

fn round_trips(scale: &Scale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let world = World::new()?;
    let echo = bare::Echo::new(&world.dir.path().join("echo.sock"))?;
    let [bare_p50, bare_p99] = numbers(spawn("echo", &echo.path(), scale.rounds)?)?;
    let [p50, p99] = numbers(spawn("trips", &world.socket(), scale.rounds)?)?;
    let kind = "a bare round trip of a byte over a Unix socket";
    print(Row::new(
        "a call for metadata over a Unix socket, p50".to_owned(),
        (p50, "us"),
        (bare_p50, kind),
        Goal::AtMost(150.0),
    ));
    print(Row::new(
        "a call for metadata over a Unix socket, p99".to_owned(),
        (p99, "us"),
        (bare_p99, kind),
        Goal::None,
    ));
    Ok(())
}

fn handovers(scale: &Scale, print: &mut dyn FnMut(Row)) -> Outcome<()> {
    let world = World::new()?;
    let echo = bare::Echo::new(&world.dir.path().join("echo.sock"))?;
    let [bare_p50, bare_p99] = numbers(spawn("echo", &echo.path(), scale.rounds)?)?;
    let hears = spawn("hear", &world.socket(), scale.rounds)?;
    let [] = numbers(spawn("send", &world.socket(), scale.rounds)?)?;
    let [p50, p99] = numbers(hears)?;
    let kind = "a bare round trip of a byte over a Unix socket";
    let name = |which| format!("last cell written by one process to claim held by another, {which}");
    print(Row::new(name("p50"), (p50, "us"), (bare_p50, kind), Goal::AtMost(400.0)));
    print(Row::new(name("p99"), (p99, "us"), (bare_p99, kind), Goal::AtMost(2000.0)));
    Ok(())
}

/// This program again, as a client.
fn spawn(what: &str, address: &str, count: usize) -> Outcome<Child> {
    Ok(child_of(what, address, count)?.spawn()?)
}

/// The same, for one that waits for words.
fn spawn_with_words(what: &str, address: &str, count: usize) -> Outcome<Child> {
    Ok(child_of(what, address, count)?.stdin(Stdio::piped()).spawn()?)
}

fn child_of(what: &str, address: &str, count: usize) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", what, address, &count.to_string()]).stdout(Stdio::piped());
    Ok(command)
}

/// What a client printed.
fn numbers<const N: usize>(child: Child) -> Outcome<[f64; N]> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(format!("a client ended with {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    numbers.try_into().map_err(|_| format!("a client printed {text:?}, not {N} numbers").into())
}

fn connect(address: &str) -> Outcome<Client> {
    Ok(Client::connect(address, &ConnectOptions::default())?)
}

/// As one who may not use the store's files.
fn connect_to_share(address: &str) -> Outcome<Client> {
    Ok(Client::connect(address, &ConnectOptions::default().neighbour(false))?)
}

/// As one who shares nothing with the server.
fn connect_to_send(address: &str) -> Outcome<Client> {
    Ok(Client::connect(address, &ConnectOptions::default().neighbour(false).slabs(false))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops where its benchmark fails")]
mod tests {
    use super::*;

    #[test]
    fn every_client_does_what_it_is_there_for() {
        let (scale, world) = (Scale::quick(), World::new().unwrap());
        let echo = bare::Echo::new(&world.dir.path().join("echo.sock")).unwrap();
        let count = scale.rounds.to_string();
        let run =
            |what: &str, address: &str| child(&[what.to_owned(), address.to_owned(), count.clone()]).unwrap();
        run("echo", &echo.path());
        run("trips", &world.socket());
        std::thread::scope(|scope| {
            scope.spawn(|| run("hear", &world.socket()));
            scope.spawn(|| run("send", &world.tcp()));
        });
        let [written, p50, p99] = client::samples(&connect(&world.tcp()).unwrap(), scale.samples, 4).unwrap();
        assert!(written > 0.0 && p50 > 0.0 && p99 >= p50);
        let [written, read] = bulk::values(&connect(&world.tcp()).unwrap(), bulk::AT_ONCE).unwrap();
        assert!(written > 0.0 && read > 0.0);
        assert!(bare::tcp_copy(1 << 20).unwrap() > 0.0 && http2::copy(1 << 20).unwrap() > 0.0);
        assert!(child(&["dance".to_owned(), world.tcp(), "1".to_owned()]).is_err());
        assert_eq!(world.store.table("solver").unwrap().counts().written, scale.samples as u64);
    }

    // Nobody starves: each has at least a fifth of a fair share, and at most five times it.
    #[test]
    fn many_subscribers_beside_many_idle_connections_each_get_their_share() {
        let world = World::new().unwrap();
        let mut idle = crowd::Crowd::enter(&world.tcp(), 200).unwrap();
        let mut takers = crowd::Crowd::enter(&world.tcp(), 50).unwrap();
        takers.subscribe();
        crowd::feed(&world.store, 50, 20).unwrap();
        while takers.took().iter().sum::<u64>() < 50 * 20 {
            std::thread::yield_now(); // the last answers are on their way
        }
        let [fewest, most] = crowd::spread(&takers.took());
        assert!(fewest >= many::FAIR[0] && most <= many::FAIR[1], "{:?}", takers.took());
        idle.is_there().unwrap();
    }
}
