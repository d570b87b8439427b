//! A large file that goes past the memory which the system keeps of files: written once from its start, or read once.
//!
//! Bytes pass through a window of [`WINDOW_BYTES`] that begins at an aligned address and lies at an aligned offset of the file, as
//! `O_DIRECT` wants it. What is behind the last whole block of a file that is written goes the ordinary way when it is synced. Where the
//! file system refuses (memory file systems do), everything goes the ordinary way, and [`DiskFile::goes_past_cache`] says so.
//!
//! One lock, of the window, held during a write or a read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::local::LocalFile;
use super::{DiskFile, Mapping};
use crate::sync::Mutex;

/// What addresses, offsets and lengths are multiples of.
const ALIGN_BYTES: usize = 4096;
const WINDOW_BYTES: usize = 4 << 20;

/// A file, and a second descriptor of it that goes past the cache.
#[derive(Debug)]
pub(super) struct PastCache {
    file: LocalFile,
    direct: File,
    window: Mutex<Window>,
}

/// Bytes on their way to the file, or from it.
struct Window {
    memory: Vec<u8>,
    /// Where in `memory` it begins.
    start: usize,
    /// How many bytes of it are not written yet.
    filled: usize,
    /// Where they go.
    offset: u64,
    /// The file system has refused.
    is_refused: bool,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({} bytes at {})", self.filled, self.offset)
    }
}

impl Window {
    fn new() -> Self {
        let memory = vec![0; WINDOW_BYTES + ALIGN_BYTES];
        let start = memory.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Window { memory, start, filled: 0, offset: 0, is_refused: false }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..WINDOW_BYTES]
    }
}

impl PastCache {
    /// The file past the cache; as it is where the file system has no such way.
    pub(super) fn of(file: LocalFile, is_written: bool) -> Box<dyn DiskFile> {
        // By its descriptor: whatever its name stands for by now.
        let itself = format!("/proc/self/fd/{}", file.file().as_raw_fd());
        let mut options = OpenOptions::new();
        options.read(true).write(is_written).custom_flags(OFlags::DIRECT.bits().cast_signed());
        match options.open(itself) {
            Ok(direct) => Box::new(PastCache { file, direct, window: Mutex::new(Window::new()) }),
            Err(error) => {
                tracing::debug!(%error, "a file goes through the system's cache");
                Box::new(file)
            }
        }
    }

    /// Writes the first `length` bytes of the window, which are whole blocks unless the file system has refused.
    fn write_window(&self, window: &mut Window, length: usize) -> io::Result<()> {
        let (offset, is_refused) = (window.offset, window.is_refused);
        let bytes = &window.bytes()[..length];
        if !is_refused {
            match self.direct.write_all_at(bytes, offset) {
                Ok(()) => return Ok(()),
                Err(error) if is_refusal(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.file.write_at(offset, bytes)?;
        window.is_refused = true;
        Ok(())
    }

    /// Reads from an aligned offset on, at most a window, and gives how many bytes there were.
    fn read_window(&self, window: &mut Window, offset: u64, length: usize) -> io::Result<usize> {
        let mut there = 0;
        while there < length {
            match rustix::io::pread(&self.direct, &mut window.bytes()[there..length], offset + there as u64) {
                Ok(0) => break,
                Ok(more) => there += more,
                Err(Errno::INTR) => {}
                // Behind the end of a file that ends in the middle of a block.
                Err(Errno::INVAL) if there > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(there)
    }
}

fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP];
    refusals.iter().any(|refusal| error.raw_os_error() == Some(refusal.raw_os_error()))
}

impl DiskFile for PastCache {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let (mut window, mut rest) = (self.window.lock(), bytes);
        while !rest.is_empty() {
            let (filled, room) = (window.filled, WINDOW_BYTES - window.filled);
            let (now, later) = rest.split_at(room.min(rest.len()));
            window.bytes()[filled..][..now.len()].copy_from_slice(now);
            window.filled += now.len();
            rest = later;
            if window.filled == WINDOW_BYTES {
                self.write_window(&mut window, WINDOW_BYTES)?;
                window.offset += WINDOW_BYTES as u64;
                window.filled = 0;
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (mut window, mut at) = (self.window.lock(), 0);
        while at < buffer.len() {
            let from = offset + at as u64;
            let before = (from % ALIGN_BYTES as u64) as usize;
            let length = (before + buffer.len() - at).next_multiple_of(ALIGN_BYTES).min(WINDOW_BYTES);
            let there = match window.is_refused {
                true => 0,
                false => match self.read_window(&mut window, from - before as u64, length) {
                    Err(error) if is_refusal(&error) => {
                        window.is_refused = true;
                        0
                    }
                    read => read?,
                },
            };
            if window.is_refused {
                return self.file.read_at(&mut buffer[at..], from);
            }
            let count = there.saturating_sub(before).min(buffer.len() - at);
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer[at..][..count].copy_from_slice(&window.bytes()[before..][..count]);
            at += count;
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let window = self.window.lock();
        Ok(self.file.length()?.max(window.offset + window.filled as u64))
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
        let mut window = self.window.lock();
        let whole = window.filled - window.filled % ALIGN_BYTES;
        if whole > 0 {
            self.write_window(&mut window, whole)?;
        }
        let (offset, rest) = (window.offset + whole as u64, whole..window.filled);
        if !rest.is_empty() {
            self.file.write_at(offset, &window.bytes()[rest.clone()])?;
            window.bytes().copy_within(rest.clone(), 0); // what is appended next goes on in its block
        }
        (window.offset, window.filled) = (offset, rest.len());
        self.file.sync()
    }

    fn map(&self, length: usize) -> io::Result<Arc<Mapping>> {
        self.file.map(length)
    }

    fn goes_past_cache(&self) -> bool {
        !self.window.lock().is_refused
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, LocalDisk};

    const LENGTHS: [usize; 12] = [
        0,
        1,
        511,
        512,
        4095,
        4096,
        4097,
        (1 << 20) + 3,
        WINDOW_BYTES - 1,
        WINDOW_BYTES,
        WINDOW_BYTES + 4096,
        2 * WINDOW_BYTES + 5000,
    ];

    fn values(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// Whether the file went past the cache.
    fn round(path: &Path, length: usize, piece: usize) -> bool {
        let (values, file) = (values(length), LocalDisk.create_past_cache(path).unwrap());
        values.chunks(piece).for_each(|piece| file.append(piece).unwrap());
        assert_eq!(file.length().unwrap(), length as u64);
        file.sync().unwrap();
        assert!(std::fs::read(path).unwrap() == values, "{length} bytes in pieces of {piece}");
        // A sync ends nothing.
        file.append(b"and more").unwrap();
        file.sync().unwrap();
        let all = [&values[..], b"and more"].concat();
        assert!(std::fs::read(path).unwrap() == all, "{length} bytes and more");
        let read = LocalDisk.open_past_cache(path).unwrap();
        for start in [0, 1, 4095, 4096, length / 2, length].into_iter().filter(|start| *start <= length) {
            let mut buffer = vec![0; all.len() - start];
            read.read_at(&mut buffer, start as u64).unwrap();
            assert!(buffer == all[start..], "{length} bytes from {start} on");
            let beyond = read.read_at(&mut vec![0; all.len() - start + 1], start as u64).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof, "{length} bytes from {start} on");
        }
        assert_eq!(file.goes_past_cache(), read.goes_past_cache());
        read.goes_past_cache()
    }

    #[test]
    fn files_have_what_was_appended_whatever_its_length_and_the_pieces() {
        for folder in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                for piece in [1000, 1 << 20] {
                    round(&folder.path().join(format!("{number}.{piece}")), length, piece);
                }
            }
        }
    }

    #[test]
    fn what_went_past_the_cache_is_not_in_it() {
        let folder = tempfile::tempdir_in(".").unwrap(); // on the disk that the tests are built on
        let path = folder.path().join("spilled");
        if !round(&path, 8 * WINDOW_BYTES, 1 << 20) {
            return eprintln!("nothing was tried: the file system here has no way past its cache");
        }
        let file = LocalDisk.open(&path).unwrap();
        let is_cached = |at: u64| LocalFile::of(File::open(&path).unwrap(), false).has_cached(at);
        let cached = || (0..8).filter(|at| is_cached(at * WINDOW_BYTES as u64)).count();
        // To look for a page that is not there has the kernel read it, at times before it answers: one round of some has to show none.
        let mut counted = Vec::new();
        let shows_none = (0..50).any(|_| {
            file.drop_cached().unwrap(); // the test itself has read it
            let again = LocalDisk.open_past_cache(&path).unwrap();
            again.read_at(&mut vec![0; 8 * WINDOW_BYTES], 0).unwrap();
            counted.push(cached());
            counted.ends_with(&[0])
        });
        assert!(shows_none, "{counted:?}");
    }
}
