//! One segment: a file in memory, mapped whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::error::{Cause, Result};
use crate::numbered::Numbered;
use crate::object::Manifest;
use crate::object::memory::Memory;

/// A segment, for who passes it to another process.
#[derive(Debug)]
pub struct SegmentInfo {
    /// Its number, by which a place in it is named.
    pub number: u32,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where it lies; `None` for one without a name.
    pub path: Option<PathBuf>,
    /// A descriptor that may be passed on. It is opened for reading.
    pub descriptor: OwnedFd,
}

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(super) number: u32,
    pub(super) bytes: u64,
    path: Option<PathBuf>,
    file: File,
    pub(in crate::object) memory: Memory,
}

impl Segment {
    /// Makes one of that size, with memory reserved for all of it: what cannot be had is an error here, and not a signal
    /// when somebody stores into it. In `folder`, or without a name.
    pub(super) fn create(folder: Option<&Path>, number: u32, bytes: u64) -> io::Result<Self> {
        let path = folder.map(|folder| Numbered::HostSegment.path(folder, number));
        let file = match &path {
            Some(path) => {
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?
            }
            None => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                File::from(rustix::fs::memfd_create("forebay-segment", flags)?)
            }
        };
        let made = reserve(&file, bytes, path.is_none())
            .and_then(|()| Segment::mapped(file, path.clone(), number, bytes));
        if made.is_err() {
            path.iter().for_each(|path| _ = std::fs::remove_file(path)); // nothing is in it
        }
        made
    }

    /// Opens one that an earlier process made.
    pub(super) fn open(folder: &Path, number: u32) -> io::Result<Self> {
        let path = Numbered::HostSegment.path(folder, number);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Segment::mapped(file, Some(path), number, bytes)
    }

    fn mapped(file: File, path: Option<PathBuf>, number: u32, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let memory = Memory::mapped(&file, length)?;
        Ok(Segment { number, bytes, path, file, memory })
    }

    /// What names it in messages.
    pub(crate) fn name(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(|| PathBuf::from(format!("memory segment {}", self.number)))
    }

    pub(super) fn show(&self) -> io::Result<SegmentInfo> {
        use std::os::fd::AsRawFd;
        let itself = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let descriptor = OwnedFd::from(File::open(self.path.as_ref().unwrap_or(&itself))?);
        Ok(SegmentInfo { number: self.number, bytes: self.bytes, path: self.path.clone(), descriptor })
    }

    /// Gives its memory back to the machine once nobody has it mapped.
    pub(super) fn remove(&self) {
        let Some(path) = &self.path else { return };
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "a segment could not be removed");
        }
    }
}

/// Copies the payloads of a version out of segments that another process has, every chunk checked.
pub(crate) fn read_segment(
    folder: &Path,
    manifest: &Manifest,
    places: &[(u32, u64)],
) -> Result<Vec<Vec<u8>>> {
    let sizes = manifest.layout.payloads().iter().map(|payload| payload.bytes);
    let mut payloads: Vec<Vec<u8>> = Vec::with_capacity(places.len());
    for ((number, start), bytes) in places.iter().zip(sizes) {
        let path = Numbered::HostSegment.path(folder, *number);
        let mut payload = vec![0; bytes as usize];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut payload, *start));
        read.map_err(|error| Cause::Corrupt { path, offset: *start, reason: error.to_string() })?;
        payloads.push(payload);
    }
    for chunk in manifest.chunks() {
        let range = chunk.range.start as usize..chunk.range.end as usize;
        if crate::checksum::crc32c(&payloads[chunk.payload][range]) != manifest.checksum(&chunk) {
            let (number, start) = places[chunk.payload];
            let (path, offset) = (Numbered::HostSegment.path(folder, number), start + chunk.range.start);
            return Err(Cause::Corrupt { path, offset, reason: manifest.mismatch(&chunk) }.into());
        }
    }
    Ok(payloads)
}

fn reserve(file: &File, bytes: u64, seal: bool) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
        other => other?,
    }
    if seal {
        rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW)?;
    }
    Ok(())
}
