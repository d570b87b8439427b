//! The host tier of another process's store, as a neighbour has it: segments that it maps itself, by the places that the owner
//! names.
//!
//! A neighbour may harm the files anyway, so nothing here protects the owner from it: a neighbour sums up what it writes while it
//! writes it, and the owner takes over these checksums, and reads nothing. What is checked is what keeps this process whole: that a
//! place lies inside of its segment.
//!
//! What is to be written has its pages mapped at once, and is remembered, for a fault a page takes longer than to fill the page. A
//! segment is mapped once and kept, for reading and for writing apart, for as long as its name stands for the same file. Mappings are not inherited by forked children: memory
//! that this process was given is its own for as long as it lives, and no longer.

use std::collections::HashMap;
use std::fs::{Metadata, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::ObjectBytes;
use super::filling::FillingRange;
use super::filling::filled::{Filled, Piece, check_filled};
use super::filling::lent::Lender;
use super::filling::write::write_pieces;
use super::layout::Layout;
use super::mapping::{Home, ObjectMapping};
use super::memory::Memory;
use crate::error::{Cause, Result};
use crate::numbered::Numbered;
use crate::sync::Mutex;

/// The segments of another process's store.
#[derive(Debug)]
pub struct NeighbourSegments {
    folder: PathBuf,
    /// By number, and whether it is mapped to be written; with what tells the file from a later one of the same name.
    mapped: Mutex<Mapped>,
}

impl NeighbourSegments {
    /// The segments in that folder. None is mapped yet.
    pub fn of(folder: &Path) -> Self {
        NeighbourSegments { folder: folder.to_owned(), mapped: Mutex::default() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The bytes of a payload that the owner holds for this process.
    ///
    /// # Errors
    /// `input` when the place does not lie inside of its segment, or that cannot be mapped.
    pub fn bytes(&self, (segment, offset): (u32, u64), length: u64) -> Result<ObjectBytes> {
        let (memory, start) = self.place(segment, offset, length, false)?;
        Ok(ObjectBytes::mapped(memory, start, length))
    }

    /// The payloads of a version that this process is to fill.
    ///
    /// # Errors
    /// As for [`bytes`](Self::bytes).
    pub fn filling(&self, key: &str, layout: &Layout, places: &[(u32, u64)]) -> Result<NeighbourFilling> {
        let payloads = layout.payloads().iter();
        let homes = payloads
            .zip(places)
            .map(|(payload, (segment, offset))| self.place(*segment, *offset, payload.bytes, true));
        let homes: Vec<(Arc<Memory>, usize)> = homes.collect::<Result<_>>()?;
        homes.iter().zip(layout.payloads()).for_each(|((memory, start), payload)| {
            memory.populate(*start, payload.bytes as usize);
        });
        if homes.len() != layout.payloads().len() {
            let reason = format!("{} places for {} payloads", homes.len(), layout.payloads().len());
            return Err(Cause::Argument { what: "places", reason }.into());
        }
        let filled = layout.payloads().iter().map(|payload| Filled::new(payload.bytes)).collect();
        Ok(NeighbourFilling {
            key: key.to_owned(),
            layout: layout.clone(),
            homes,
            filled: Mutex::new(filled),
        })
    }

    fn place(&self, segment: u32, offset: u64, length: u64, writable: bool) -> Result<(Arc<Memory>, usize)> {
        let memory = self.segment(segment, writable)?;
        match offset.checked_add(length).is_some_and(|end| end <= memory.length() as u64) {
            true => Ok((memory, offset as usize)),
            false => {
                let has = memory.length();
                let reason = format!("{length} bytes at {offset} of segment {segment}, which has {has}");
                Err(Cause::Argument { what: "place", reason }.into())
            }
        }
    }

    fn segment(&self, number: u32, writable: bool) -> Result<Arc<Memory>> {
        let path = Numbered::HostSegment.path(&self.folder, number);
        let there = std::fs::metadata(&path).map_err(|e| Cause::io("look at", &path, e))?;
        let mut mapped = self.mapped.lock();
        if let Some((_, memory)) = mapped.get(&(number, writable)).filter(|(id, _)| *id == id_of(&there)) {
            return Ok(memory.clone());
        }
        // A new one may be there in place of others: those that the owner has removed are of no use any more.
        mapped.retain(|(number, _), _| Numbered::HostSegment.path(&self.folder, *number).exists());
        let file = OpenOptions::new().read(true).write(writable).open(&path);
        let file = file.map_err(|e| Cause::io("open", &path, e))?;
        let opened = file.metadata().map_err(|e| Cause::io("look at", &path, e))?;
        let memory = Memory::of_another(&file, writable).map_err(|e| Cause::io("map", &path, e))?;
        let memory = Arc::new(memory);
        mapped.insert((number, writable), (id_of(&opened), memory.clone()));
        Ok(memory)
    }
}

type Mapped = HashMap<(u32, bool), (FileId, Arc<Memory>)>;

/// Device and inode of a file.
type FileId = (u64, u64);

fn id_of(file: &Metadata) -> FileId {
    (file.dev(), file.ino())
}

/// A version that this process fills in another's memory. Any number of threads, each its own ranges.
#[derive(Debug)]
pub struct NeighbourFilling {
    key: String,
    layout: Layout,
    homes: Vec<(Arc<Memory>, usize)>,
    filled: Mutex<Vec<Filled>>,
}

impl NeighbourFilling {
    /// Fills a part of a payload: `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// `input` when the bytes reach beyond it; `state` when another thread is filling a part of the range now.
    pub fn write(&self, payload: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let (range, _, mut pieces) = self.take(payload, offset, bytes.len() as u64)?;
        let (memory, start) = &self.homes[payload];
        write_pieces(&mut pieces, offset, bytes, |at, data, crc| {
            memory.write_summed(start + at as usize, data, crc)
        });
        self.filled.lock()[payload].written(range, &pieces);
        Ok(())
    }

    /// Lends a part of a payload to a device, as [`Filling::lend_class`](super::Filling::lend_class).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn lend(self: &Arc<Self>, payload: usize, offset: u64, bytes: u64) -> Result<Option<FillingRange>> {
        let (range, end, pieces) = self.take(payload, offset, bytes)?;
        Ok(FillingRange::new(self.clone(), payload, (range, end), pieces))
    }

    /// Takes a range to write it, up to where the next tensor may begin: that, the end of what is to be written, and its pieces.
    fn take(&self, payload: usize, offset: u64, bytes: u64) -> Result<(Range<u64>, u64, Vec<Piece>)> {
        let class = &self.layout.payloads()[payload];
        let Some(end) = offset.checked_add(bytes).filter(|end| *end <= class.bytes) else {
            let found = format!("{bytes} bytes at {offset}");
            let (tensor, limit) = (class.class.clone(), class.bytes);
            return Err(Cause::TensorLength { tensor, found, limit }.into());
        };
        let range = offset..end + self.layout.pad_after(payload, end, bytes as usize);
        let pieces = self.filled.lock()[payload].take(range.clone()).map_err(|busy| {
            let (key, class) = (self.key.clone(), class.class.clone());
            Cause::FillOverlap { key, class, start: busy.start, end: busy.end }
        })?;
        Ok((range, end, pieces))
    }

    /// The crc32c of every chunk of every payload, taken as it was written: what a commit needs. A chunk that was not written from
    /// its start on, or twice, is summed up now, and nobody writes meanwhile.
    ///
    /// # Errors
    /// `state` when something was not filled (the tensor is named), or is being filled now.
    pub fn checksums(&self) -> Result<Vec<Vec<u32>>> {
        let mut filled = self.filled.lock();
        check_filled(&self.key, &self.layout, &filled)?;
        let sums = filled.iter_mut().zip(&self.homes).map(|(filled, (memory, start))| {
            filled.checksums(|range| {
                memory.sum(start + range.start as usize, (range.end - range.start) as usize, 0)
            })
        });
        Ok(sums.collect())
    }
}

impl Lender for NeighbourFilling {
    fn mapping(&self, payload: usize) -> Option<(ObjectMapping, usize)> {
        let (memory, start) = &self.homes[payload];
        Some((ObjectMapping::of(Home::Neighbour(memory.clone())), *start))
    }

    fn sum(&self, payload: usize, range: Range<u64>, crc: u32) -> u32 {
        let (memory, start) = &self.homes[payload];
        memory.sum(start + range.start as usize, (range.end - range.start) as usize, crc)
    }

    fn put(&self, payload: usize, offset: u64, bytes: &[u8], crc: u32) -> u32 {
        let (memory, start) = &self.homes[payload];
        memory.write_summed(start + offset as usize, bytes, crc)
    }

    fn written(&self, payload: usize, range: Range<u64>, pieces: &[Piece]) {
        self.filled.lock()[payload].written(range, pieces);
    }

    fn left(&self, payload: usize, range: Range<u64>, pieces: &[Piece]) {
        self.filled.lock()[payload].left(&range, pieces);
    }
}
