//! How far the writing of a part has come.

use std::io::{self, ErrorKind};

use crate::process_group::{Boundary, Observer};

/// Counts the bytes of a part that is written from its beginning on, and tells [`Boundary::HalfWritten`] once, between two writes, when
/// half of them are there.
#[derive(Debug)]
pub struct PartProgress<'a> {
    bytes: u64,
    written: u64,
    /// Where the boundary is, until it was told.
    half: Option<u64>,
    observer: &'a Observer,
}

impl<'a> PartProgress<'a> {
    /// Nothing is written of a part of so many bytes.
    pub fn new(bytes: u64, observer: &'a Observer) -> Self {
        Self { bytes, written: 0, half: Some(bytes / 2), observer }
    }

    /// How many bytes are written: where the next go.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many of the next `wanted` bytes are to be written in one go: none that lie behind the half, before it was told.
    pub fn next(&mut self, wanted: usize) -> usize {
        let until_half = self.half.map(|half| half.saturating_sub(self.written));
        if until_half == Some(0) {
            self.pass_half();
        }
        let most = until_half.filter(|&most| most > 0).unwrap_or(u64::MAX);
        usize::try_from(most).unwrap_or(usize::MAX).min(wanted)
    }

    /// So many more are there.
    pub fn add(&mut self, written: usize) {
        self.written += written as u64;
    }

    /// Whether all of it was written, and no more.
    ///
    /// # Errors
    /// `InvalidInput` if not.
    pub fn finish(&mut self) -> io::Result<()> {
        self.pass_half();
        if self.written == self.bytes {
            return Ok(());
        }
        let reason = format!("{} bytes were written, {} were said", self.written, self.bytes);
        Err(io::Error::new(ErrorKind::InvalidInput, reason))
    }

    fn pass_half(&mut self) {
        if self.half.take().is_some() {
            self.observer.reached(Boundary::HalfWritten);
        }
    }
}
