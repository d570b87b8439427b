//! A part between its file and whoever writes or reads it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::digest::Summing;
use super::manifest::Entry;
use super::{PartProgress, StatesError};
use crate::process_group::Observer;

/// A part on its way into its file.
pub(super) struct PartWriter<'a> {
    file: File,
    sum: Summing,
    progress: PartProgress<'a>,
}

impl<'a> PartWriter<'a> {
    pub(super) fn new(file: File, bytes: u64, observer: &'a Observer) -> Self {
        Self { file, sum: Summing::new(), progress: PartProgress::new(bytes, observer) }
    }

    /// Brings it to stable storage, and gives the digest.
    pub(super) fn finish(mut self) -> io::Result<String> {
        self.progress.finish()?;
        self.file.sync_all()?;
        Ok(self.sum.digest())
    }
}

impl Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.progress.next(bytes.len());
        let written = self.file.write(&bytes[..most])?;
        self.sum.add(&bytes[..written]);
        self.progress.add(written);
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
