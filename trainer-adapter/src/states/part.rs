//! A part between its file and whoever writes or reads it.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;

use super::StatesError;
use super::digest::Summing;
use super::manifest::Entry;
use crate::process_group::{Boundary, Observer};

/// A part on its way into its file.
pub(super) struct PartWriter<'a> {
    file: File,
    sum: Summing,
    bytes: u64,
    written: u64,
    /// Where the boundary is that is told once.
    half: Option<u64>,
    observer: &'a Observer,
}

impl<'a> PartWriter<'a> {
    pub(super) fn new(file: File, bytes: u64, observer: &'a Observer) -> Self {
        Self { file, sum: Summing::new(), bytes, written: 0, half: Some(bytes / 2), observer }
    }

    /// Brings it to stable storage, and gives the digest.
    pub(super) fn finish(mut self) -> io::Result<String> {
        self.pass_half();
        if self.written != self.bytes {
            let reason = format!("{} bytes were written, {} were said", self.written, self.bytes);
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        }
        self.file.sync_all()?;
        Ok(self.sum.digest())
    }

    fn pass_half(&mut self) {
        if self.half.take().is_some() {
            self.observer.reached(Boundary::HalfWritten);
        }
    }
}

impl Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until_half = self.half.map(|half| half.saturating_sub(self.written));
        if until_half == Some(0) {
            self.pass_half();
        }
        let most = until_half.filter(|&most| most > 0).unwrap_or(u64::MAX).min(bytes.len() as u64);
        let written = self.file.write(&bytes[..most as usize])?;
        self.sum.add(&bytes[..written]);
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A part on its way out of its file: its end is there only if the digest fits.
pub(super) struct PartReader {
    file: File,
    path: PathBuf,
    entry: Entry,
    sum: Summing,
    read: u64,
}

impl PartReader {
    pub(super) fn new(file: File, path: PathBuf, entry: Entry) -> Self {
        let sum = Summing::like(&entry.digest);
        Self { file, path, entry, sum, read: 0 }
    }
}

impl Read for PartReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.sum.add(&into[..read]);
        self.read += read as u64;
        let is_whole = || self.read == self.entry.bytes && self.sum.digest() == self.entry.digest;
        if read == 0 && !into.is_empty() && !is_whole() {
            let reason = "its bytes are not what was staged".into();
            return Err(StatesError::Damaged { path: self.path.clone(), reason }.into_io());
        }
        Ok(read)
    }
}
