//! Pieces of objects that come in go to their files a few at a time, and of one caller fewer yet, however slow the disk is.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{Client, Error};
use forebay_server::{Grant, Server, Token};
use forebay_store::{Disk, DiskFile, HeldLock, LocalDisk, LockKind, Mapping, ObjectRef, Options};

use super::limits::hasty;
use crate::client::loopback;
use crate::conformance::*;

/// How many objects each caller brings at the same time, and how many of these go to their files: of one caller, and of all.
const BROUGHT: u64 = 8;
const OF_CALLER: usize = 3;
const OF_ALL: usize = 4;
/// How often it is looked whether all have passed while nobody comes.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
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
    /// One of those who wait may go on.
    lets_one_through: bool,
    /// How many wait, by the keys of their objects.
    held_up: BTreeMap<String, usize>,
    /// The most that ever did.
    most: BTreeMap<String, usize>,
    most_of_all: usize,
}

impl Passing {
    fn comes(&mut self, key: &str) {
        let waiting = self.held_up.entry(key.to_owned()).or_default();
        *waiting += 1;
        let most = self.most.entry(key.to_owned()).or_default();
        *most = (*most).max(*waiting);
        self.most_of_all = self.most_of_all.max(self.held_up.values().sum());
    }
}

impl Gate {
    fn pass(&self, key: &str) {
        let mut passing = self.passing.lock().unwrap();
        passing.comes(key);
        self.moved.notify_all();
        let shut = |passing: &mut Passing| !passing.is_open && !passing.lets_one_through;
        let mut passing = self.moved.wait_while(passing, shut).unwrap();
        passing.lets_one_through = false;
        *passing.held_up.entry(key.to_owned()).or_default() -= 1;
        self.moved.notify_all();
    }

    /// Lets one go on that waits, if any does: what comes in its place is seen while all others are still there.
    fn let_one_through(&self) {
        let nobody = |passing: &mut Passing| passing.held_up.values().sum::<usize>() == 0;
        let passing = self.passing.lock().unwrap();
        let (mut passing, waited) = self.moved.wait_timeout_while(passing, LOOK_INTERVAL, nobody).unwrap();
        if waited.timed_out() {
            return;
        }
        passing.lets_one_through = true;
        self.moved.notify_all();
        drop(self.moved.wait_while(passing, |passing| passing.lets_one_through).unwrap());
    }

    fn most(&self, key: &str) -> usize {
        self.passing.lock().unwrap().most[key]
    }

    fn until_held_up(&self, key: &str, count: usize) {
        let too_few = |passing: &mut Passing| passing.held_up.get(key).copied().unwrap_or_default() < count;
        let passing = self.passing.lock().unwrap();
        let (passing, waited) = self.moved.wait_timeout_while(passing, LONG, too_few).unwrap();
        drop(passing);
        assert!(!waited.timed_out(), "fewer than {count} of {key} go to their files");
    }
}

/// Opens the gate in the end, also of a test that fails: the server waits for who is before it.
struct OpensAtTheEnd(Arc<Gate>);

impl Drop for OpensAtTheEnd {
    fn drop(&mut self) {
        self.0.passing.lock().unwrap_or_else(PoisonError::into_inner).is_open = true;
        self.0.moved.notify_all();
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
fn put(client: &Client, key: &'static str) -> Vec<JoinHandle<Result<ObjectRef, Error>>> {
    let put = |version| {
        let client = client.clone();
        std::thread::spawn(move || client.put_object(key, version, b"weights"))
    };
    (0..BROUGHT).map(put).collect()
}

#[test]
fn a_slow_disk_has_a_few_objects_written_at_a_time_and_of_one_caller_not_all_and_others_wait_their_turn() {
    let gate = Arc::new(Gate::default());
    let (_world, [greedy, other]) = served(&gate, ["greedy", "other"]);
    let _opens = OpensAtTheEnd(gate.clone());
    let mut puts = put(&greedy, "greedy");
    gate.until_held_up("greedy", OF_CALLER);
    puts.extend(put(&other, "other"));
    gate.until_held_up("other", OF_ALL - OF_CALLER);
    while !puts.iter().all(JoinHandle::is_finished) {
        gate.let_one_through();
    }
    puts.into_iter().for_each(|put| _ = put.join().unwrap().unwrap());
    let most_of_all = gate.passing.lock().unwrap().most_of_all;
    assert_eq!((gate.most("greedy"), most_of_all), (OF_CALLER, OF_ALL));
    assert!(gate.most("other") <= OF_CALLER, "{}", gate.most("other"));
}
