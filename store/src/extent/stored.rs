//! Values as their files hold them, without any mapping: for recovery, which must not trust what it has not read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::view::View;
use super::{ExtentHeader, HEADER_BYTES, TRAILER_BYTES, Trailer};
use crate::directory::Directory;
use crate::disk::DiskFile;
use crate::numbered::Numbered;

/// How much of a value is held at once.
const PIECE_BYTES: usize = 1 << 20;
/// How many files are held open at once.
const FILES_MAX: usize = 64;

/// How many bytes a value takes with the zeros and the trailer that follow it.
pub(crate) fn stored_bytes(view: View) -> usize {
    (view.offset() + view.length()).next_multiple_of(8) + TRAILER_BYTES - view.offset()
}

/// Reads and mends the files of values.
#[derive(Debug)]
pub(crate) struct StoredValues<'a> {
    directory: &'a Directory,
    /// With the generation that each holds.
    files: HashMap<u32, (Box<dyn DiskFile>, u32)>,
    /// Generations that files are going to hold, whatever they hold now.
    promised: HashMap<u32, u32>,
    /// The file that was last written again.
    being_written: Option<(u32, Box<dyn DiskFile>)>,
}

/// Writes a range of a file as it stands there.
pub(crate) fn write_again(file: &dyn DiskFile, start: u64, length: u64) -> io::Result<()> {
    let end = start + length;
    let mut piece = vec![0; length.min(PIECE_BYTES as u64) as usize];
    let mut at = start;
    while at < end {
        let part = &mut piece[..(end - at).min(PIECE_BYTES as u64) as usize];
        file.read_at(part, at)?;
        file.write_at(at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

impl<'a> StoredValues<'a> {
    pub(crate) fn new(directory: &'a Directory) -> Self {
        StoredValues { directory, files: HashMap::new(), promised: HashMap::new(), being_written: None }
    }

    /// Whether a value is there: its bytes match the trailer behind them, and that is the trailer of such a value. If not, in words,
    /// what is wrong.
    ///
    /// # Errors
    /// When that cannot be told now: a file could not be opened or read. Nobody may give a value up for that.
    pub(crate) fn check(&mut self, view: View) -> io::Result<Result<(), String>> {
        let found = self.check_bytes(view).or_else(|error| absence(error).map(Err))?;
        Ok(found.map_err(|why| {
            format!(
                "a value of {} bytes in extent {} at {}: {why}",
                view.length(),
                view.extent(),
                view.offset()
            )
        }))
    }

    fn check_bytes(&mut self, view: View) -> io::Result<Result<(), String>> {
        let file = self.file(view)?;
        let (start, length) = (view.offset() as u64, view.length() as u64);
        let mut trailer = [0; TRAILER_BYTES];
        file.read_at(&mut trailer, (start + length).next_multiple_of(8))?;
        let Some(trailer) = Trailer::decode(&trailer, view.extent()) else {
            return Ok(Err("it has no sound trailer".into()));
        };
        if !trailer.is_of(view) {
            return Ok(Err("its trailer speaks of another value".into()));
        }
        let crc = crate::checksum::crc32c_of(file, start..start + length)?;
        Ok(if crc == trailer.crc32c { Ok(()) } else { Err("its bytes do not match their checksum".into()) })
    }

    /// In words, that the file of a value has been used again since, where that is so.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn used_again(&mut self, view: View) -> io::Result<Option<String>> {
        let generation = match self.opened(view.extent()) {
            Ok((_, generation)) => *generation,
            Err(error) => return absence(error).map(|_| None),
        };
        let words =
            || format!("the file of a value in extent {} holds generation {generation}", view.extent());
        Ok((generation > view.generation()).then(words))
    }

    /// A value is going to be put back where it lies, and the header of its file with it where that was lost.
    pub(crate) fn will_hold(&mut self, view: View) {
        self.promised.insert(view.extent(), view.generation());
        if let Some((_, generation)) = self.files.get_mut(&view.extent()) {
            *generation = view.generation();
        }
    }

    /// Whether exactly `bytes` stand where the value lies.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn holds(&mut self, view: View, bytes: &[u8]) -> io::Result<bool> {
        let mut found = vec![0; bytes.len()];
        let read = self.file(view).and_then(|file| file.read_at(&mut found, view.offset() as u64));
        read.map(|()| found == bytes).or_else(|error| absence(error).map(|_| false))
    }

    /// Writes a value with its trailer back to where it lies; makes its file again where that is gone too.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(crate) fn put_back(&mut self, view: View, bytes: &[u8]) -> io::Result<()> {
        let number = view.extent();
        self.files.remove(&number);
        let path = self.directory.extent_path(number);
        let disk = &self.directory.disk;
        let file = if disk.exists(&path)? { disk.open_writable(&path)? } else { disk.create(&path)? };
        let least = (view.offset() + bytes.len()).next_multiple_of(4096) as u64;
        if file.length()? < least {
            file.allocate(least)?;
        }
        let mut found = [0; HEADER_BYTES];
        file.read_at(&mut found, 0)?;
        // A header that was lost, or that of the generation before: the new one was on its way with the value. One of a file
        // that was made again here is behind, for the file grows with each value.
        let (generation, store_id, capacity) = (view.generation(), self.directory.store_id, file.length()?);
        let fits = |header: ExtentHeader| header.generation == generation && header.capacity >= capacity;
        if !ExtentHeader::decode(&found).is_ok_and(fits) {
            file.write_at(0, &ExtentHeader { number, generation, store_id, capacity }.encode())?;
        }
        file.write_at(view.offset() as u64, bytes)
    }

    /// Writes a value with its trailer, and the header of its file, as they stand there. Nothing where the file has been used
    /// again since.
    pub(crate) fn write_again(&mut self, view: View) -> io::Result<()> {
        let number = view.extent();
        if self.opened(number)?.1 != view.generation() {
            return Ok(());
        }
        if self.being_written.as_ref().is_none_or(|(of, _)| *of != number) {
            let file = self.directory.disk.open_writable(&self.directory.extent_path(number))?;
            write_again(&*file, 0, HEADER_BYTES as u64)?;
            self.being_written = Some((number, file));
        }
        match &self.being_written {
            Some((_, file)) => write_again(&**file, view.offset() as u64, stored_bytes(view) as u64),
            None => Ok(()),
        }
    }

    /// Files that are long enough for a header and have none that is sound, by number.
    ///
    /// # Errors
    /// When the files cannot be listed or read.
    pub(crate) fn without_header(&self) -> io::Result<Vec<(u32, PathBuf)>> {
        let mut found = Vec::new();
        for path in self.directory.disk.list(&self.directory.extents())? {
            let number = Numbered::Extent.number(&path);
            let file = self.directory.disk.open(&path)?;
            let mut header = [0; HEADER_BYTES];
            if let Some(number) = number
                && file.length()? >= HEADER_BYTES as u64
            {
                file.read_at(&mut header, 0)?;
                if ExtentHeader::decode(&header).is_err() {
                    found.push((number, path));
                }
            }
        }
        Ok(found)
    }

    fn opened(&mut self, number: u32) -> io::Result<&(Box<dyn DiskFile>, u32)> {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&number) {
            self.files.clear();
        }
        Ok(match self.files.entry(number) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(free) => {
                free.insert(open(self.directory, number, self.promised.get(&number).copied())?)
            }
        })
    }

    /// The file of a value, which holds the value's generation.
    fn file(&mut self, view: View) -> io::Result<&dyn DiskFile> {
        let (file, generation) = self.opened(view.extent())?;
        // Values may have reached the disk before the header that makes them readable.
        if *generation != view.generation() {
            return Err(misses(format!("its file holds generation {generation}")));
        }
        Ok(&**file)
    }
}

/// A file, and the generation that it holds, or is going to hold.
fn open(directory: &Directory, number: u32, promised: Option<u32>) -> io::Result<(Box<dyn DiskFile>, u32)> {
    let file = directory.disk.open(&directory.extent_path(number))?;
    let mut header = [0; HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    let found = ExtentHeader::decode(&header).map(|header| header.generation);
    match found.ok().max(promised) {
        Some(generation) => Ok((file, generation)),
        None => Err(misses("its file has no sound header".to_owned())),
    }
}

/// The error of a file that was read and does not hold what is looked for.
fn misses(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// In words, why something is not there, where an error says so; the error, where it says only that nobody could look: the next
/// attempt may find it.
pub(crate) fn absence(error: io::Error) -> io::Result<String> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Ok(error.to_string()),
        _ => Err(error),
    }
}
