//! Pages files: images of pages, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::Pod;

use super::manifest::FileImage;
use crate::directory::Directory;
use crate::disk::{DiskFile, Mapping};
use crate::error::{Cause, Error, Result};
use crate::header::{HEADER_BYTES, Header, Magic};
use crate::numbered::Numbered;
use crate::page::{PART_ALIGN, PARTS_MAX, Rows, StoredAt, Window};

/// As every file begins, and nothing of its own.
pub(crate) const PAGES_HEADER_BYTES: usize = HEADER_BYTES;
const MAGIC: Magic = *b"FBPAGES\0";
/// A file that has grown to this is followed by another.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// What is gathered before it is written.
const BUFFER_BYTES: usize = 1 << 20;

fn header(store_id: u64, number: u32) -> [u8; PAGES_HEADER_BYTES] {
    Header::new(MAGIC, number, store_id).seal()
}

/// Bytes that an image with these parts takes in its file.
pub(crate) fn image_bytes(parts: [u32; PARTS_MAX]) -> u64 {
    parts.iter().map(|part| (*part as usize).next_multiple_of(PART_ALIGN) as u64).sum()
}

/// Writes images to new files.
pub(super) struct PagesWriter<'a> {
    directory: &'a Directory,
    open: Option<OpenFile>,
    next_number: u32,
    pub(super) finished: Vec<FileImage>,
}

struct OpenFile {
    number: u32,
    file: Box<dyn DiskFile>,
    /// Where the next image begins, what is gathered included.
    at: u64,
    gathered: Vec<u8>,
}

/// The greatest number that a pages file has.
pub(super) fn greatest(directory: &Directory) -> Result<u32> {
    let path = directory.pages();
    let files = directory.disk.list(&path).map_err(|e| Cause::io("list", &path, e))?;
    Ok(files.iter().filter_map(|path| Numbered::Pages.number(path)).max().unwrap_or(0))
}

impl<'a> PagesWriter<'a> {
    /// A writer of files with numbers that nothing has, be it what a checkpoint that failed has left.
    pub(super) fn new(directory: &'a Directory) -> Result<Self> {
        let next_number = greatest(directory)? + 1;
        Ok(PagesWriter { directory, open: None, next_number, finished: Vec::new() })
    }

    /// Stores an image. One without bytes needs no place.
    pub(super) fn write(&mut self, image: &[&[u8]]) -> Result<StoredAt> {
        let mut parts = [0; PARTS_MAX];
        for (length, part) in parts.iter_mut().zip(image) {
            *length = u32::try_from(part.len()).map_err(|_| Cause::TooMany {
                what: "bytes of one image of a checkpoint",
                limit: u32::MAX as usize,
                found: part.len(),
            })?;
        }
        if image_bytes(parts) == 0 {
            return Ok(StoredAt::default());
        }
        let open = self.file()?;
        let start = open.gathered.len();
        for part in image {
            open.gathered.extend_from_slice(part);
            open.gathered.resize(open.gathered.len().next_multiple_of(PART_ALIGN), 0);
        }
        let crc32c = crate::checksum::crc32c(&open.gathered[start..]);
        let at = StoredAt { file: open.number, crc32c, offset: open.at, parts };
        open.at += image_bytes(parts);
        if open.gathered.len() >= BUFFER_BYTES {
            self.hand_over()?;
        }
        Ok(at)
    }

    fn file(&mut self) -> Result<&mut OpenFile> {
        if self.open.as_ref().is_some_and(|open| open.at >= FILE_BYTES_MAX) {
            self.finish_file()?;
        }
        if self.open.is_none() {
            let number = self.next_number;
            self.next_number += 1;
            let path = self.directory.pages_path(number);
            let file = self.directory.disk.create(&path).map_err(|e| Cause::io("create", &path, e))?;
            let gathered = header(self.directory.store_id, number).to_vec();
            self.open = Some(OpenFile { number, file, at: gathered.len() as u64, gathered });
        }
        self.open.as_mut().ok_or_else(|| Cause::Closed { reason: "no pages file".into() }.into())
    }

    fn hand_over(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = self.directory.pages_path(open.number);
        open.file.append(&open.gathered).map_err(|e| Error::from(Cause::io("write", path, e)))?;
        open.gathered.clear();
        Ok(())
    }

    fn finish_file(&mut self) -> Result<()> {
        self.hand_over()?;
        let Some(open) = self.open.take() else { return Ok(()) };
        let path = self.directory.pages_path(open.number);
        open.file.sync().map_err(|e| Error::from(Cause::io("sync", path, e)))?;
        self.finished.push(FileImage { number: open.number, bytes: open.at });
        Ok(())
    }

    /// Makes everything that was written stable. Gives the files.
    pub(super) fn finish(mut self) -> Result<Vec<FileImage>> {
        self.finish_file()?;
        if !self.finished.is_empty() {
            let path = self.directory.pages();
            self.directory.disk.sync_directory(&path).map_err(|e| Cause::io("sync", &path, e))?;
        }
        Ok(self.finished)
    }
}

/// The mapped files of a manifest.
pub(super) struct PagesReader<'a> {
    directory: &'a Directory,
    mappings: BTreeMap<u32, Arc<Mapping>>,
}

impl<'a> PagesReader<'a> {
    /// Maps every file, its header and length checked.
    pub(super) fn open(directory: &'a Directory, files: &[FileImage]) -> Result<Self> {
        let mut mappings = BTreeMap::new();
        for image in files {
            mappings.insert(image.number, map(directory, *image)?);
        }
        Ok(PagesReader { directory, mappings })
    }

    /// Part `part` of an image.
    pub(super) fn rows<T: Pod>(&self, at: StoredAt, part: usize) -> Result<Rows<T>> {
        let bytes = at.parts[part] as usize;
        if bytes == 0 {
            return Ok(Rows::default());
        }
        let before = image_bytes(std::array::from_fn(|i| if i < part { at.parts[i] } else { 0 }));
        let rows = self.mappings.get(&at.file).and_then(|mapping| {
            let offset = usize::try_from(at.offset.checked_add(before)?).ok()?;
            Rows::mapped(Window { mapping: mapping.clone(), offset }, bytes / size_of::<T>())
        });
        let whole = bytes.is_multiple_of(size_of::<T>());
        rows.filter(|_| whole).ok_or_else(|| {
            self.corrupt(at, format!("an image of {bytes} bytes lies outside of the file or is cut wrongly"))
        })
    }

    /// The rows of an image of one part that has something of each of `expected` rows.
    pub(super) fn all_rows<T: Pod>(&self, at: StoredAt, expected: u32) -> Result<Rows<T>> {
        let rows = self.rows(at, 0)?;
        if rows.len() == expected as usize {
            return Ok(rows);
        }
        Err(self.corrupt(at, format!("an image is of {} rows where {expected} are due", rows.len())))
    }

    /// An image that is not what it should be.
    pub(super) fn corrupt(&self, at: StoredAt, reason: String) -> Error {
        Cause::Corrupt { path: self.directory.pages_path(at.file), offset: at.offset, reason }.into()
    }
}

fn map(directory: &Directory, image: FileImage) -> Result<Arc<Mapping>> {
    let path = directory.pages_path(image.number);
    let io = |verb| {
        let path = path.clone();
        move |e| Error::from(Cause::io(verb, path, e))
    };
    let corrupt = |reason: String| Error::from(Cause::Corrupt { path: path.clone(), offset: 0, reason });
    let file = directory.disk.open(&path).map_err(io("open"))?;
    let length = file.length().map_err(io("read"))?;
    if length < image.bytes || image.bytes < PAGES_HEADER_BYTES as u64 {
        return Err(corrupt(format!("it has {length} bytes, the manifest says {}", image.bytes)));
    }
    let mut found = [0; PAGES_HEADER_BYTES];
    file.read_at(&mut found, 0).map_err(io("read"))?;
    if found != header(directory.store_id, image.number) {
        return Err(corrupt("it does not begin with the header of this store's pages file".into()));
    }
    let length = usize::try_from(image.bytes).map_err(|_| corrupt("it is too long to map".into()))?;
    if directory.maps {
        return file.map(length).map_err(io("map"));
    }
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0).map_err(io("read"))?;
    let memory = Mapping::memory(length);
    memory.write(0, &bytes);
    Ok(Arc::new(memory))
}
