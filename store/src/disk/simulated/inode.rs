//! One file: its bytes as processes see them, and as stable storage has them.
//!
//! The two are compared sector by sector when the power fails, so nothing need be noted when a byte changes; that holds
//! for stores into mapped memory too, which nobody announces.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::dice::Dice;
use crate::disk::memory::Memory;

/// What a disk writes at once, or tears.
pub(super) const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct Inode {
    /// The pages. Written with the inode locked only.
    memory: Arc<Memory>,
    length: usize,
    /// Somebody stores into the pages through a mapping, so they cannot be moved.
    pinned: bool,
    stable: Vec<u8>,
    /// Sectors that a failed sync took for written, with a checksum of what they held. While they hold it and nobody writes
    /// it again, no sync writes them.
    forgotten: BTreeMap<usize, u32>,
    /// Sectors whose space was given back.
    holes: BTreeSet<usize>,
}

impl Default for Inode {
    fn default() -> Self {
        Inode::holding(Vec::new())
    }
}

/// How the changed sectors of one file fare.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Each,
}

impl Inode {
    /// A file with these bytes, all stable.
    fn holding(stable: Vec<u8>) -> Self {
        let memory = Arc::new(Memory::holding(&stable, stable.len().next_multiple_of(4096)));
        let (forgotten, holes) = (BTreeMap::new(), BTreeSet::new());
        Inode { memory, length: stable.len(), pinned: false, stable, forgotten, holes }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The bytes that take space.
    pub(super) fn occupied(&self) -> u64 {
        self.length.saturating_sub(self.holes.len() * SECTOR_BYTES) as u64
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.memory.bytes(self.length)
    }

    /// Writes, past the end too.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.reserve(end)?;
        self.memory.write(offset, bytes);
        self.length = self.length.max(end);
        self.touched(offset, end);
        Ok(())
    }

    /// A store into mapped memory; unlike a write it never makes the file longer.
    pub(super) fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(offset, bytes);
        self.touched(offset, offset + bytes.len());
    }

    /// Sectors that are written take space, and are to be brought to stable storage.
    fn touched(&mut self, start: usize, end: usize) {
        for sector in start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            self.holes.remove(&sector);
            self.forgotten.remove(&sector);
        }
    }

    /// Bytes before `length` whose space was given back.
    pub(super) fn holes_before(&self, length: usize) -> usize {
        self.holes.range(..length / SECTOR_BYTES).count() * SECTOR_BYTES
    }

    /// Makes the file at least `length` bytes long, with space for all of them.
    pub(super) fn reserve_space(&mut self, length: usize) -> io::Result<()> {
        self.holes = self.holes.split_off(&(length / SECTOR_BYTES));
        self.set_length(length.max(self.length))
    }

    pub(super) fn set_length(&mut self, length: usize) -> io::Result<()> {
        self.reserve(length)?;
        if length < self.length {
            let zeros = vec![0; self.length - length];
            self.memory.write(length, &zeros);
            self.holes.retain(|sector| sector * SECTOR_BYTES < length);
        }
        self.length = length;
        Ok(())
    }

    /// Zeros a range and gives the space of the sectors inside it back.
    pub(super) fn punch(&mut self, offset: usize, length: usize) {
        let end = offset.saturating_add(length).min(self.length);
        if offset < end {
            self.memory.write(offset, &vec![0; end - offset]);
            self.holes.extend(offset.div_ceil(SECTOR_BYTES)..end / SECTOR_BYTES);
        }
    }

    /// Room in memory for `length` bytes.
    fn reserve(&mut self, length: usize) -> io::Result<()> {
        if length <= self.memory.len() {
            return Ok(());
        }
        if self.pinned {
            return Err(io::Error::other("a simulated file cannot outgrow the mapping that is stored into"));
        }
        let room = length.max(2 * self.memory.len()).next_multiple_of(4096);
        self.memory = Arc::new(Memory::holding(self.bytes(), room));
        Ok(())
    }

    /// The pages, at least `length` bytes of them.
    pub(super) fn pages(&mut self, length: usize, writable: bool) -> io::Result<Arc<Memory>> {
        self.reserve(length)?;
        self.pinned |= writable;
        Ok(self.memory.clone())
    }

    /// Brings what processes see to stable storage.
    pub(super) fn sync(&mut self) {
        self.stable.resize(self.length, 0);
        if self.forgotten.is_empty() {
            self.stable.copy_from_slice(self.memory.bytes(self.length));
            return;
        }
        for sector in 0..self.length.div_ceil(SECTOR_BYTES) {
            let seen = sector_of(self.memory.bytes(self.length), sector);
            if self.forgotten.get(&sector) != Some(&crate::checksum::crc32c(seen)) {
                self.forgotten.remove(&sector);
                self.stable[sector * SECTOR_BYTES..][..seen.len()].copy_from_slice(seen);
            }
        }
    }

    /// A sync that fails after it wrote some sectors; the others are taken for written all the same.
    pub(super) fn sync_some_and_forget(&mut self, dice: &Dice) {
        let grown = self.length > self.stable.len() && dice.once_in(2);
        if grown {
            self.stable.resize(self.length, 0);
        }
        for sector in 0..self.length.div_ceil(SECTOR_BYTES) {
            let seen = sector_of(self.memory.bytes(self.length), sector);
            let at = sector * SECTOR_BYTES;
            let fits = at + seen.len() <= self.stable.len();
            if fits && self.stable[at..at + seen.len()] == *seen {
                continue;
            }
            if fits && dice.once_in(2) {
                self.stable[at..at + seen.len()].copy_from_slice(seen);
            } else {
                self.forgotten.insert(sector, crate::checksum::crc32c(seen));
            }
        }
    }

    /// The page cache as the next process finds it: what a failed sync took for written may be as it was before.
    pub(super) fn evict(&mut self, dice: &Dice) {
        self.evict_where(|| dice.once_in(2));
    }

    /// The same when a process asks for it. Pages that are stored into through a mapping stay, and so may others.
    pub(super) fn drop_cached(&mut self, dice: &Dice) {
        if !self.pinned {
            self.evict_where(|| !dice.once_in(4));
        }
    }

    fn evict_where(&mut self, mut goes: impl FnMut() -> bool) {
        if self.forgotten.is_empty() {
            return;
        }
        let mut bytes = self.bytes().to_vec();
        for (&sector, &held) in &self.forgotten {
            let seen = sector_of(&bytes, sector);
            if crate::checksum::crc32c(seen) == held && goes() {
                let at = sector * SECTOR_BYTES;
                let old = old_sector(&self.stable, sector, seen.len());
                bytes[at..at + old.len()].copy_from_slice(&old);
            }
        }
        // Pages of their own, for the process that is gone may hold views of these.
        self.memory = Arc::new(Memory::holding(&bytes, self.memory.len()));
        self.pinned = false;
    }

    /// The file as the next boot finds it. Every changed sector is old, new or torn; the length is somewhere between
    /// what it was and what it became.
    pub(super) fn after_power_failure(&self, dice: &Dice) -> Inode {
        let seen = self.bytes();
        let fate = [Fate::Lost, Fate::Kept, Fate::Each, Fate::Each][dice.up_to(3)];
        let (shorter, longer) = (seen.len().min(self.stable.len()), seen.len().max(self.stable.len()));
        let length = match fate {
            Fate::Lost => self.stable.len(),
            Fate::Kept => seen.len(),
            Fate::Each => match dice.up_to(3) {
                0 => self.stable.len(),
                1 => seen.len(),
                2 => (shorter + dice.up_to(longer - shorter)).next_multiple_of(SECTOR_BYTES).min(longer),
                _ => shorter + dice.up_to(longer - shorter),
            },
        };
        let mut after = vec![0; length];
        for (sector, slot) in after.chunks_mut(SECTOR_BYTES).enumerate() {
            let old = old_sector(&self.stable, sector, slot.len());
            let new = old_sector(seen, sector, slot.len());
            slot.copy_from_slice(&old);
            if old == new
                || self.forgotten.get(&sector) == Some(&crate::checksum::crc32c(sector_of(seen, sector)))
            {
                continue;
            }
            match fate {
                Fate::Lost => {}
                Fate::Kept => slot.copy_from_slice(&new),
                Fate::Each => tear(slot, &new, dice),
            }
        }
        Inode::holding(after)
    }

    /// Changes one byte, here and on stable storage.
    pub(super) fn flip(&mut self, offset: usize) {
        let flipped = self.bytes()[offset] ^ 0x5A;
        self.memory.write(offset, &[flipped]);
        if let Some(byte) = self.stable.get_mut(offset) {
            *byte ^= 0x5A;
        }
    }
}

/// A changed sector of a file: lost, kept, or a part of it kept.
fn tear(slot: &mut [u8], new: &[u8], dice: &Dice) {
    let cut = dice.up_to(slot.len());
    match dice.up_to(3) {
        0 => {}
        1 => slot.copy_from_slice(new),
        2 => slot[..cut].copy_from_slice(&new[..cut]),
        _ => slot[cut..].copy_from_slice(&new[cut..]),
    }
}

fn sector_of(bytes: &[u8], sector: usize) -> &[u8] {
    let start = (sector * SECTOR_BYTES).min(bytes.len());
    &bytes[start..bytes.len().min(start + SECTOR_BYTES)]
}

/// A sector as it was, with zeros where there was nothing.
fn old_sector(bytes: &[u8], sector: usize, length: usize) -> Vec<u8> {
    let mut old = sector_of(bytes, sector).to_vec();
    old.resize(length, 0);
    old
}
