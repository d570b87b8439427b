//! A disk in memory that fails when told to.
//!
//! It keeps every file twice, as processes see it and as stable storage has it ([`Inode`]), and the names of files likewise
//! ([`Names`]). It plays two kinds of death. When a *process* dies, what it wrote stays (the kernel has it), the operation
//! under way is done in part, and nothing after it happens at all. When the *power* fails, each sector that was not synced
//! is lost, kept or torn, independently of the others, names that were not synced are lost or kept, and the next process
//! finds another boot id. Besides, a call can fail while the process lives on: see [`DiskFault`].
//!
//! Each call that reads, writes, syncs, makes, renames, removes or maps, and each store into mapped memory, is one
//! point. [`SimulatedDisk::arm`] makes a fault strike at a point, [`SimulatedDisk::operations`] counts the points,
//! [`SimulatedDisk::history`] says what each was, and [`SimulatedDisk::restart`] gives the disk to the next process.
//! What is left to chance follows from the seed.
//!
//! Locks: the disk's own, then one file's; never two files'.

mod dice;
mod fault;
mod file;
mod inode;
mod lock;
mod names;
mod operation;
mod part;
mod room;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::dice::Dice;
pub use self::fault::DiskFault;
use self::file::SimulatedFile;
use self::inode::Inode;
use self::lock::Locks;
use self::names::{Entry, Names};
pub use self::operation::DiskOperation;
use self::part::Part;
use self::room::Room;
use super::{Disk, DiskFile, HeldLock, LockKind};
use crate::sync::{Mutex, Rank};

/// A file system in memory; clones share it.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    names: Names,
    locks: Locks,
    dice: Dice,
    history: Vec<DiskOperation>,
    /// How often it was asked whether a file is there, and the time that fails. It changes nothing, and is no point of its own.
    looks: u64,
    failing_look: Option<u64>,
    armed: Vec<(u64, DiskFault)>,
    lasting: Vec<DiskFault>,
    struck: Option<(u64, DiskFault)>,
    /// How the process of this life ended.
    death: Option<DiskFault>,
    /// Which process, counted over all boots.
    life: u64,
    boot: u128,
    capacity_bytes: Option<u64>,
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        SimulatedDisk::seeded(0)
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated process is dead")
}

fn boot(dice: &Dice) -> u128 {
    u128::from(dice.word()) + 1
}

impl SimulatedDisk {
    /// An empty disk; what is left to chance follows from `seed`.
    pub fn seeded(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let boot = boot(&dice);
        let inner = Inner {
            names: Names::default(),
            locks: Locks::default(),
            dice,
            history: Vec::new(),
            looks: 0,
            failing_look: None,
            armed: Vec::new(),
            lasting: Vec::new(),
            struck: None,
            death: None,
            life: 0,
            boot,
            capacity_bytes: None,
        };
        SimulatedDisk(Arc::new(Mutex::ranked(Rank::Disk, inner)))
    }

    /// How many operations that can fail have been asked for so far.
    pub fn operations(&self) -> u64 {
        self.0.lock().history.len() as u64
    }

    /// What each operation so far was.
    pub fn history(&self) -> Vec<DiskOperation> {
        self.0.lock().history.clone()
    }

    /// The process dies in its `operation`-th operation from the disk's first on (counted from 1).
    pub fn fail_at(&self, operation: u64) {
        self.arm(operation, DiskFault::ProcessDies);
    }

    /// The first operation from the `point`-th on (counted from 1, from the disk's first) that the fault fits meets it.
    pub fn arm(&self, point: u64, fault: DiskFault) {
        self.0.lock().armed.push((point, fault));
    }

    /// How many looks for a file ([`Disk::exists`]) there were so far.
    pub fn looks(&self) -> u64 {
        self.0.lock().looks
    }

    /// The `look`-th look for a file from the disk's first on (counted from 1) fails.
    pub fn fail_look(&self, look: u64) {
        self.0.lock().failing_look = Some(look);
    }

    /// The last fault that struck, with the point where it did.
    pub fn struck(&self) -> Option<(u64, DiskFault)> {
        self.0.lock().struck
    }

    /// Nothing fails any more that has not yet failed, and what lasted is over.
    pub fn mend(&self) {
        let mut inner = self.0.lock();
        inner.armed.clear();
        inner.lasting.clear();
        inner.capacity_bytes = None;
    }

    /// Files take at most this many bytes together.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity_bytes = Some(bytes);
    }

    /// The bytes that all files take.
    pub fn occupied(&self) -> u64 {
        self.0.lock().names.files().map(|inode| inode.lock().occupied()).sum()
    }

    /// Ends the process now.
    pub fn kill(&self) {
        self.0.lock().death.get_or_insert(DiskFault::ProcessDies);
    }

    /// Ends the boot now.
    pub fn cut_power(&self) {
        self.0.lock().death = Some(DiskFault::PowerFails);
    }

    /// The next process finds the disk as the last one, or the power failure that ended it, left it, with its locks
    /// released and nothing armed. Handles of processes before it do nothing any more.
    pub fn restart(&self) {
        let mut inner = self.0.lock();
        if inner.death == Some(DiskFault::PowerFails) {
            inner.names = inner.names.after_power_failure(&inner.dice);
            inner.boot = boot(&inner.dice);
        } else {
            inner.names.files().for_each(|inode| inode.lock().evict(&inner.dice));
        }
        inner.death = None;
        inner.life += 1;
        inner.locks.release_all();
        drop(inner);
        self.mend();
    }

    /// As [`restart`](Self::restart), after the machine was shut down and started again in good order: everything became
    /// stable before, but the next process cannot know that.
    pub fn reboot(&self) {
        self.restart();
        let mut inner = self.0.lock();
        inner.names.files().for_each(|inode| inode.lock().sync());
        inner.names.sync_all();
        inner.boot = boot(&inner.dice);
    }

    /// Changes one byte of a file, as a failing medium would.
    ///
    /// # Panics
    /// When there is no such file or byte.
    pub fn flip_byte(&self, path: &Path, offset: usize) {
        self.inode(path).lock().flip(offset);
    }

    /// Cuts a file to `length` bytes, as a torn append leaves it.
    ///
    /// # Panics
    /// When there is no such file.
    pub fn truncate(&self, path: &Path, length: usize) {
        let inode = self.inode(path);
        let mut inode = inode.lock();
        if length < inode.len() {
            // Shorter than it is, so there is nothing to reserve and nothing to fail.
            _ = inode.set_length(length);
        }
    }

    fn inode(&self, path: &Path) -> Arc<Mutex<Inode>> {
        let inner = self.0.lock();
        inner.names.file(path).unwrap_or_else(|| panic!("no file {}", path.display())).clone()
    }

    fn life(&self) -> u64 {
        self.0.lock().life
    }

    /// Counts one operation of a process on `length` bytes and says how much of it happens.
    fn ask(&self, life: u64, operation: DiskOperation, length: usize) -> io::Result<Part> {
        let mut inner = self.0.lock();
        if inner.death.is_some() || inner.life != life {
            return Err(dead());
        }
        inner.history.push(operation);
        let point = inner.history.len() as u64;
        let due = inner.armed.iter().position(|&(at, fault)| at <= point && fault.fits(operation));
        let fault = match due {
            Some(due) => inner.armed.swap_remove(due).1,
            None => match inner.lasting.iter().find(|fault| fault.fits(operation)) {
                Some(&fault) => return Ok(inner.part(fault, length)),
                None => return Ok(Part::WHOLE),
            },
        };
        inner.struck = Some((point, fault));
        if fault.lasts() {
            inner.lasting.push(fault);
        }
        if fault.is_death() {
            inner.death = Some(fault);
        }
        Ok(inner.part(fault, length))
    }

    /// As [`ask`](Self::ask), of the process that lives now, for an operation without parts.
    fn ask_now(&self, operation: DiskOperation) -> io::Result<(u64, Part)> {
        let life = self.life();
        Ok((life, self.ask(life, operation, 0)?))
    }

    fn with_dice<T>(&self, throw: impl FnOnce(&Dice) -> T) -> T {
        throw(&self.0.lock().dice)
    }

    /// Whether `bytes` more are to be had.
    fn room(&self, bytes: usize) -> Room {
        let capacity = self.0.lock().capacity_bytes;
        let left = capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.occupied()));
        Room { missing: bytes.saturating_sub(usize::try_from(left).unwrap_or(usize::MAX)) }
    }

    fn opened(&self, path: &Path, writable: bool) -> io::Result<Box<dyn DiskFile>> {
        let (life, part) = self.ask_now(DiskOperation::Open)?;
        part.end()?;
        let inode = self.0.lock().names.file(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), inode, writable, life }))
    }
}

impl Inner {
    fn part(&self, fault: DiskFault, length: usize) -> Part {
        if !fault.leaves_a_part() {
            return Part { fault: Some(fault), bytes: 0, happens: false };
        }
        // Only death leaves it open whether an operation without parts was still done.
        Part {
            fault: Some(fault),
            bytes: self.dice.up_to(length),
            happens: fault.is_death() && self.dice.once_in(2),
        }
    }
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (life, part) = self.ask_now(DiskOperation::Create)?;
        let inode = Arc::new(Mutex::new(Inode::default()));
        {
            let mut inner = self.0.lock();
            if inner.names.get(path).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            if part.whole() {
                inner.names.put(path, Entry::File(inode.clone()));
            }
        }
        part.end()?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), inode, writable: true, life }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.opened(path, false)
    }

    fn open_writable(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.opened(path, true)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (_, part) = self.ask_now(DiskOperation::CreateDirectory)?;
        let mut inner = self.0.lock();
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for directory in above.into_iter().filter(|_| part.whole()) {
            if !inner.names.has_directory(directory) {
                inner.names.put(directory, Entry::Directory);
            }
        }
        part.end()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.ask_now(DiskOperation::List)?.1.end()?;
        let inner = self.0.lock();
        if !inner.names.has_directory(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(inner.names.in_directory(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut inner = self.0.lock();
        inner.looks += 1;
        if inner.failing_look == Some(inner.looks) || inner.lasting.contains(&DiskFault::IoErrors) {
            return Err(DiskFault::IoError.error());
        }
        Ok(inner.names.get(path).is_some())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, part) = self.ask_now(DiskOperation::Rename)?;
        let mut inner = self.0.lock();
        inner.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if part.whole() {
            inner.names.rename(from, to);
        }
        part.end()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (_, part) = self.ask_now(DiskOperation::Remove)?;
        let mut inner = self.0.lock();
        inner.names.file(path).ok_or(io::ErrorKind::NotFound)?;
        if part.whole() {
            inner.names.remove(path);
        }
        part.end()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let (_, part) = self.ask_now(DiskOperation::SyncDirectory)?;
        let mut inner = self.0.lock();
        if !inner.names.has_directory(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if part.whole() {
            inner.names.sync(path);
        }
        part.end()
    }

    fn boot(&self) -> u128 {
        self.0.lock().boot
    }

    /// Counted from 1, so that the same calls leave the same bytes whatever process makes them.
    fn process(&self) -> u32 {
        u32::try_from(self.0.lock().life).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn lock(&self, path: &Path, kind: LockKind, note: &str) -> io::Result<Option<Box<dyn HeldLock>>> {
        self.ask_now(DiskOperation::Lock)?.1.end()?;
        let mut inner = self.0.lock();
        if kind == LockKind::Shared && inner.names.get(path).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let Some(lock) = inner.locks.take(path, kind) else { return Ok(None) };
        if kind == LockKind::Exclusive {
            if inner.names.get(path).is_none() {
                inner.names.put(path, Entry::File(Arc::default()));
            }
            if let Some(inode) = inner.names.file(path) {
                let mut inode = inode.lock();
                inode.set_length(0)?;
                inode.write(0, note.as_bytes())?;
            }
        }
        Ok(Some(Box::new(lock)))
    }
}
