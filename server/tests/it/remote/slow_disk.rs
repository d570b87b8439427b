//! Pieces of objects that come in go to their files a few at a time, and of one caller fewer yet, however slow the disk is.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Client, Error};
use forebay_server::{Grant, Server, Token};
use forebay_store::{Disk, DiskFile, HeldLock, LocalDisk, LockKind, Mapping, ObjectRef, Options};

use super::limits::hasty;
use crate::client::loopback;
use crate::conformance::*;

/// How many objects one caller brings at the same time, and how many of these go to their files.
const BROUGHT: u64 = 8;
const OF_CALLER: usize = 3;
const OF_OTHERS: usize = 1;
/// A time that more would come in, if they could.
const SOON: Duration = Duration::from_millis(50);
/// Longer than anything here takes, on any machine.
const LONG: Duration = Duration::from_secs(60);

/// Who writes to the file of an object waits here until he may go on.
#[derive(Debug, Default)]
struct Gate {
    passing: Mutex<Passing>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Passing {
    is_open: bool,
    /// How many wait, by the keys of their objects.
    held_up: BTreeMap<String, usize>,
}

impl Gate {
    fn pass(&self, key: &str) {
        let mut passing = self.passing.lock().unwrap();
        *passing.held_up.entry(key.to_owned()).or_default() += 1;
        self.moved.notify_all();
        let mut passing = self.moved.wait_while(passing, |passing| !passing.is_open).unwrap();
        *passing.held_up.entry(key.to_owned()).or_default() -= 1;
    }

    fn set_open(&self, is_open: bool) {
        self.passing.lock().unwrap().is_open = is_open;
        self.moved.notify_all();
    }

    fn held_up(&self, key: &str) -> usize {
        self.passing.lock().unwrap().held_up.get(key).copied().unwrap_or_default()
    }

    fn until_held_up(&self, key: &str, count: usize) {
        let too_few = |passing: &mut Passing| passing.held_up.get(key).copied().unwrap_or_default() < count;
        let passing = self.passing.lock().unwrap();
        let (_, waited) = self.moved.wait_timeout_while(passing, LONG, too_few).unwrap();
        assert!(!waited.timed_out(), "fewer than {count} of {key} go to their files");
    }
}

/// The machine's disk, with a gate before the files of objects.
#[derive(Debug)]
struct Gated {
    disk: LocalDisk,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct GatedFile {
    file: Box<dyn DiskFile>,
    key: String,
    gate: Arc<Gate>,
}

impl DiskFile for GatedFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass(&self.key);
        self.file.append(bytes)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn allocate(&self, length: u64) -> io::Result<()> {
        self.file.allocate(length)
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.punch(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        self.file.map(length)
    }
}

impl Disk for Gated {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.create(path)?;
        let mut above = path.ancestors().skip(1).filter_map(Path::file_name);
        let (key, folder) = (above.next().unwrap_or_default(), above.next().unwrap_or_default());
        if folder != "objects" {
            return Ok(file);
        }
        let key = key.to_string_lossy().into_owned();
        Ok(Box::new(GatedFile { file, key, gate: self.gate.clone() }))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(path)
    }
    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_writable(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_directory(path)
    }
    fn boot(&self) -> u128 {
        self.disk.boot()
    }
    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        self.disk.lock(path, kind, note)
    }
}

/// A store on that disk, and clients with tokens of these names.
fn served<const N: usize>(gate: &Arc<Gate>, names: [&str; N]) -> (World, [Client; N]) {
    let disk = Gated { disk: LocalDisk, gate: gate.clone() };
    let mut world = World::with(Way::Embedded, Options::default().disk(Arc::new(disk)));
    let builder = names.iter().fold(Server::builder().grpc(loopback()), |builder, name| {
        builder.grant(Grant::new(name, Token::new(name).unwrap()))
    });
    world.server = Some(builder.bind(world.store.clone(), loopback()).unwrap());
    world.way = Way::Tcp;
    let clients = names.map(|name| Client::connect(&world.address(), &hasty().token(name)).unwrap());
    (world, clients)
}

/// Puts so many versions of an object at the same time.
fn put(
    client: &Client,
    key: &'static str,
    versions: Range<u64>,
) -> Vec<JoinHandle<Result<ObjectRef, Error>>> {
    let put = |version| {
        let client = client.clone();
        std::thread::spawn(move || client.put_object(key, version, b"weights"))
    };
    versions.map(put).collect()
}

#[test]
fn a_slow_disk_has_a_few_objects_written_at_a_time_and_of_one_caller_not_all_and_others_wait_their_turn() {
    let gate = Arc::new(Gate::default());
    let (_world, [greedy, other]) = served(&gate, ["greedy", "other"]);
    for round in 0..2 {
        gate.set_open(false);
        let versions = round * BROUGHT..(round + 1) * BROUGHT;
        let mut puts = put(&greedy, "greedy", versions.clone());
        gate.until_held_up("greedy", OF_CALLER);
        puts.extend(put(&other, "other", versions));
        gate.until_held_up("other", OF_OTHERS);
        std::thread::sleep(SOON);
        assert_eq!((gate.held_up("greedy"), gate.held_up("other")), (OF_CALLER, OF_OTHERS), "round {round}");
        gate.set_open(true);
        puts.into_iter().for_each(|put| _ = put.join().unwrap().unwrap());
    }
}
