//! A version in a file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::ending::ASIDE;
use super::header::{self, HEADER_BYTES_MAX};
use super::is_ours;
use crate::disk::{Disk, DiskFile};
use crate::error::{Cause, Error, Result};
use crate::numbered::number_of;
use crate::object::ObjectRef;
use crate::object::host::HostExtent;
use crate::object::manifest::{Chunk, Manifest, OBJECT_CHUNK_BYTES, chunks_of};
use crate::object::named::path_in;
use crate::object::version::HostCopy;

/// What a file that is being written is called.
const UNFINISHED: &str = "spill";

/// A version's bytes in a file.
#[derive(Debug)]
pub(crate) struct DiskCopy {
    pub(crate) path: PathBuf,
    /// Where the payloads begin.
    starts: Vec<u64>,
    bytes: u64,
    /// The crc32c of what comes before the first payload; not known of a file that was found.
    header_crc: Option<u32>,
}

/// The way between memory and the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage<'a> {
    pub(crate) disk: &'a dyn Disk,
    /// Past the memory that the system keeps of files, where it can be.
    pub(crate) is_direct: bool,
}

impl Passage<'_> {
    fn create(&self, path: &Path) -> std::io::Result<Box<dyn DiskFile>> {
        if self.is_direct { self.disk.create_past_cache(path) } else { self.disk.create(path) }
    }

    /// What is in the system's cache already comes from there.
    fn open(&self, path: &Path, bytes: u64) -> Result<Box<dyn DiskFile>> {
        let opened = self.disk.open(path).and_then(|file| match self.is_direct && !file.is_cached(bytes) {
            true => self.disk.open_past_cache(path),
            false => Ok(file),
        });
        opened.map_err(|e| Cause::io("open", path, e).into())
    }
}

/// What a file turned out to be.
#[derive(Debug)]
pub(crate) enum Found {
    /// One of the object layer.
    Ours { manifest: Manifest, once: bool, copy: DiskCopy },
    /// A payload that a step names, or anything else.
    Other,
}

/// Why a version is in no file.
#[derive(Debug)]
pub(crate) struct NotWritten {
    pub(crate) error: Error,
    /// The file had its name for a moment, and may have it again after a power failure.
    pub(crate) may_come: bool,
}

impl From<Error> for NotWritten {
    fn from(error: Error) -> Self {
        NotWritten { error, may_come: false }
    }
}

impl From<Cause> for NotWritten {
    fn from(cause: Cause) -> Self {
        Error::from(cause).into()
    }
}

fn corrupt(path: &Path, offset: u64, reason: impl Into<String>) -> Cause {
    Cause::Corrupt { path: path.to_owned(), offset, reason: reason.into() }
}

impl DiskCopy {
    /// Writes a version: whole and on stable storage when this returns, and otherwise not there. Every chunk is checked on its
    /// way. A damaged file of the version is replaced, but for one that a step names (`named`) with other bytes. Tells whether it went past
    /// the system's cache.
    pub(crate) fn write(
        passage: Passage<'_>,
        objects: &Path,
        manifest: &Manifest,
        once: bool,
        host: &HostCopy,
        named: Option<&ObjectRef>,
    ) -> Result<(Self, bool), NotWritten> {
        let disk = passage.disk;
        let path = path_in(objects, &manifest.key, manifest.version);
        let encoded = header::encode(manifest, once).map_err(|reason| Cause::Argument {
            what: "object",
            reason: format!("{:?}: {reason}", manifest.key),
        })?;
        let folder = objects.join(&manifest.key);
        disk.create_directory_durably(&folder).map_err(|e| Cause::io("create", &folder, e))?;
        let is_there = disk.exists(&path).map_err(|e| Cause::io("look for", &path, e))?;
        let unfinished = path.with_extension(UNFINISHED);
        disk.remove_if_there(&unfinished).map_err(|e| Cause::io("remove", &unfinished, e))?;
        let header_crc = Some(crate::checksum::crc32c(&encoded.bytes));
        let copy = DiskCopy { path, starts: encoded.starts, bytes: encoded.file_bytes, header_crc };
        let is_meant = match named {
            Some(named) => copy.reference(disk, manifest)? == *named,
            None => true,
        };
        if is_there && !(is_meant && is_ours(disk, &copy.path)) {
            let name = format!("{} version {}", manifest.key, manifest.version);
            return Err(Cause::Exists { what: "object", name }.into());
        }
        let written = copy.write_all(passage, &unfinished, &encoded.bytes, manifest, host);
        let is_direct = written.inspect_err(|_| {
            let _ = disk.remove(&unfinished); // else whoever opens the store next does
        })?;
        let finished = disk.rename(&unfinished, &copy.path).and_then(|()| disk.sync_directory(&folder));
        finished.map_err(|error| {
            // It would be there again when the store is opened, deleted or not.
            let removed = disk.remove_if_there(&copy.path).and_then(|_| disk.sync_directory(&folder));
            let error = Cause::io("rename", &copy.path, error).into();
            NotWritten { error, may_come: removed.is_err() }
        })?;
        Ok((copy, is_direct))
    }

    fn write_all(
        &self,
        passage: Passage<'_>,
        path: &Path,
        header: &[u8],
        manifest: &Manifest,
        host: &HostCopy,
    ) -> Result<bool> {
        let failed = |e: std::io::Error| Cause::io("write", path, e);
        let file = passage.create(path).map_err(failed)?;
        file.append(header).map_err(failed)?;
        let mut at = header.len() as u64;
        let mut buffer = vec![0; OBJECT_CHUNK_BYTES as usize];
        for chunk in manifest.chunks() {
            let start = self.starts[chunk.payload] + chunk.range.start;
            if start > at {
                file.append(&vec![0; (start - at) as usize]).map_err(failed)?;
            }
            let extent = &host.extents[chunk.payload];
            let bytes = &mut buffer[..(chunk.range.end - chunk.range.start) as usize];
            extent.read(chunk.range.start, bytes);
            if crate::checksum::crc32c(bytes) != manifest.checksum(&chunk) {
                let (path, offset) = extent.name_of(chunk.range.start);
                return Err(corrupt(&path, offset, manifest.mismatch(&chunk)).into());
            }
            file.append(bytes).map_err(failed)?;
            at = start + bytes.len() as u64;
        }
        if self.bytes > at {
            file.append(&vec![0; (self.bytes - at) as usize]).map_err(failed)?;
        }
        file.sync().map_err(|e| Cause::io("sync", path, e))?;
        Ok(file.goes_past_cache())
    }

    /// Opens the file for reading.
    pub(crate) fn open(&self, disk: &dyn Disk) -> Result<Box<dyn DiskFile>> {
        disk.open(&self.path).map_err(|e| Cause::io("open", &self.path, e).into())
    }

    /// Fills `buffer` with a chunk, and checks it.
    pub(crate) fn read_chunk(
        &self,
        file: &dyn DiskFile,
        manifest: &Manifest,
        chunk: &Chunk,
        buffer: &mut [u8],
    ) -> Result<()> {
        let offset = self.starts[chunk.payload] + chunk.range.start;
        file.read_at(buffer, offset).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => corrupt(&self.path, offset, "the file ends before it"),
            _ => Cause::io("read", &self.path, e),
        })?;
        if crate::checksum::crc32c(buffer) != manifest.checksum(chunk) {
            return Err(corrupt(&self.path, offset, manifest.mismatch(chunk)).into());
        }
        Ok(())
    }

    /// Reads every chunk, checks it, and hands it on.
    pub(crate) fn read_all(
        &self,
        file: &dyn DiskFile,
        manifest: &Manifest,
        mut each: impl FnMut(&Chunk, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut buffer = vec![0; OBJECT_CHUNK_BYTES as usize];
        for chunk in manifest.chunks() {
            let bytes = &mut buffer[..(chunk.range.end - chunk.range.start) as usize];
            self.read_chunk(file, manifest, &chunk, bytes)?;
            each(&chunk, bytes)?;
        }
        Ok(())
    }

    /// Fills `buffer` with a range of a payload. Chunks are read whole, for only then they can be checked.
    pub(crate) fn read_range(
        &self,
        file: &dyn DiskFile,
        manifest: &Manifest,
        (payload, range): (usize, Range<u64>),
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut whole = Vec::new();
        for chunk in chunks_of(payload, range.clone(), manifest.layout.payloads()[payload].bytes) {
            let (start, end) = (range.start.max(chunk.range.start), range.end.min(chunk.range.end));
            let into = &mut buffer[(start - range.start) as usize..(end - range.start) as usize];
            if (start..end) == chunk.range {
                self.read_chunk(file, manifest, &chunk, into)?;
                continue;
            }
            whole.resize(OBJECT_CHUNK_BYTES as usize, 0);
            let bytes = &mut whole[..(chunk.range.end - chunk.range.start) as usize];
            self.read_chunk(file, manifest, &chunk, bytes)?;
            let from = (start - chunk.range.start) as usize;
            into.copy_from_slice(&bytes[from..from + into.len()]);
        }
        Ok(())
    }

    /// Copies the version to memory, every chunk checked. Tells whether it went past the system's cache.
    pub(crate) fn copy_to(
        &self,
        passage: Passage<'_>,
        manifest: &Manifest,
        extents: &[HostExtent],
    ) -> Result<bool> {
        let file = passage.open(&self.path, self.bytes)?;
        self.read_all(&*file, manifest, |chunk, bytes| {
            extents[chunk.payload].write_summed(chunk.range.start, bytes, 0);
            Ok(())
        })?;
        Ok(file.goes_past_cache())
    }

    pub(crate) fn verify(&self, disk: &dyn Disk, manifest: &Manifest) -> Result<()> {
        self.verify_while(disk, manifest, &mut |_| Ok(()))
    }

    /// The same for as long as `go_on`, which is told how many bytes more were read, does not fail.
    pub(crate) fn verify_while(
        &self,
        disk: &dyn Disk,
        manifest: &Manifest,
        go_on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        self.read_all(&*self.open(disk)?, manifest, |_, bytes| go_on(bytes.len() as u64))
    }

    /// How many bytes the file has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What a step calls it by.
    pub(crate) fn reference(&self, disk: &dyn Disk, manifest: &Manifest) -> Result<ObjectRef> {
        let data = self.starts.first().copied().unwrap_or(self.bytes);
        let mut crc = match self.header_crc {
            Some(crc) => crc,
            None => {
                let mut header = vec![0; data as usize];
                let file = self.open(disk)?;
                file.read_at(&mut header, 0).map_err(|e| Cause::io("read", &self.path, e))?;
                crate::checksum::crc32c(&header)
            }
        };
        let mut at = data;
        let zeros = |crc, count: u64| crate::checksum::crc32c_append(crc, &vec![0; count as usize]);
        for chunk in manifest.chunks() {
            let start = self.starts[chunk.payload] + chunk.range.start;
            crc = zeros(crc, start - at);
            let length = chunk.range.end - chunk.range.start;
            crc = crate::checksum::crc32c_combine(crc, manifest.checksum(&chunk), length);
            at = start + length;
        }
        let crc32c = zeros(crc, self.bytes - at);
        Ok(ObjectRef { key: manifest.key.clone(), version: manifest.version, bytes: self.bytes, crc32c })
    }
}

/// Looks at the header of a file.
///
/// # Errors
/// `corrupt` when it is the engine's and does not fit together.
pub(crate) fn look_at(disk: &dyn Disk, path: &Path) -> Result<Found> {
    let failed = |e: std::io::Error| Cause::io("read", path, e);
    let file = disk.open(path).map_err(failed)?;
    let bytes = file.length().map_err(failed)?;
    let mut length = [0; 8];
    if bytes < 8 {
        return Ok(Found::Other);
    }
    file.read_at(&mut length, 0).map_err(failed)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX || length > bytes - 8 {
        return Ok(Found::Other);
    }
    let mut text = vec![0; length as usize];
    file.read_at(&mut text, 8).map_err(failed)?;
    let ours = format!("\"{}\":", header::METADATA_KEY);
    let decoded = match header::decode(&text, bytes) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Ok(Found::Other),
        Err(_) if !contains(&text, ours.as_bytes()) => return Ok(Found::Other),
        Err(reason) => return Err(corrupt(path, 8, reason).into()),
    };
    let named = (path.parent().and_then(Path::file_name), number_of::<u64>(path));
    let said = (Some(decoded.manifest.key.as_ref()), Some(decoded.manifest.version));
    if named != said {
        let manifest = &decoded.manifest;
        let reason = format!("it holds object {:?} version {}", manifest.key, manifest.version);
        return Err(corrupt(path, 8, reason).into());
    }
    let (starts, bytes) = (decoded.starts, decoded.file_bytes);
    let copy = DiskCopy { path: path.to_owned(), starts, bytes, header_crc: None };
    Ok(Found::Ours { manifest: decoded.manifest, once: decoded.once, copy })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Removes what a process that died left half written, or half removed, in a key's folder.
pub(crate) fn remove_unfinished(disk: &dyn Disk, files: &[PathBuf]) {
    for path in files.iter().filter(|path| path.extension().is_some_and(|e| e == UNFINISHED || e == ASIDE)) {
        if let Err(error) = disk.remove(path) {
            tracing::warn!(path = %path.display(), %error, "what is left of a spill could not be removed");
        }
    }
}
