//! A part between the object that it is and whoever writes or reads it.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use forebay_trainer_adapter::process_group::Observer;
use forebay_trainer_adapter::states::{PartProgress, StatesError};

use super::{CLASS, TENSOR};
use crate::client::{HeldObject, ObjectFilling};
use crate::store::OBJECT_CHUNK_BYTES;

/// Chunks that are asked for at a time where the object lies behind a connection. One, where it is mapped: it is summed up while it is in
/// the processor's cache.
const CHUNKS_SENT: u64 = 16;

/// Fills an object from its beginning on.
pub(super) struct PartWriter<'a> {
    filling: &'a ObjectFilling,
    progress: PartProgress<'a>,
}

impl<'a> PartWriter<'a> {
    pub(super) fn new(filling: &'a ObjectFilling, bytes: u64, observer: &'a Observer) -> Self {
        PartWriter { filling, progress: PartProgress::new(bytes, observer) }
    }

    /// Whether all of it was written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.progress.finish()
    }
}

impl Write for PartWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.progress.next(bytes.len());
        let at = self.progress.written();
        self.filling.write(TENSOR, at, &bytes[..most]).map_err(io::Error::other)?;
        self.progress.add(most);
        Ok(most)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads an object from its beginning on, and compares every chunk with its checksum before anybody has it.
pub(super) struct PartReader {
    held: HeldObject,
    /// Of the part; the payload is filled up behind it.
    bytes: u64,
    at: u64,
    piece_bytes: u64,
    /// A piece that was asked for in smaller parts, and where it begins.
    piece: Vec<u8>,
    piece_at: u64,
}

impl PartReader {
    pub(super) fn new(held: HeldObject, bytes: u64) -> Self {
        let is_mapped = held.bytes(CLASS).is_ok_and(|bytes| bytes.is_some());
        let piece_bytes = if is_mapped { OBJECT_CHUNK_BYTES } else { CHUNKS_SENT * OBJECT_CHUNK_BYTES };
        PartReader { held, bytes, at: 0, piece_bytes, piece: Vec::new(), piece_at: 0 }
    }

    /// Takes whole chunks, checked.
    fn take_whole(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.held.read_class(CLASS, at, into).map_err(io::Error::other)?;
        match self.held.manifest().damage(CLASS, at, into).map_err(io::Error::other)? {
            None => Ok(()),
            Some(reason) => {
                Err(StatesError::Damaged { path: PathBuf::from(self.held.key()), reason }.into_io())
            }
        }
    }

    /// Takes the piece that begins here, to be handed out in smaller parts.
    fn refill(&mut self) -> io::Result<()> {
        let payload = self.held.manifest().bytes();
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(self.piece_bytes.min(payload.saturating_sub(self.at)) as usize, 0);
        self.take_whole(self.at, &mut piece)?;
        (self.piece, self.piece_at) = (piece, self.at);
        Ok(())
    }
}

impl Read for PartReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = (self.bytes - self.at).min(into.len() as u64);
        let is_in_piece = self.at < self.piece_at + self.piece.len() as u64;
        let whole = (wanted / OBJECT_CHUNK_BYTES * OBJECT_CHUNK_BYTES).min(self.piece_bytes);
        if !is_in_piece && whole > 0 {
            self.take_whole(self.at, &mut into[..whole as usize])?;
            self.at += whole;
            return Ok(whole as usize);
        }
        if wanted > 0 && !is_in_piece {
            self.refill()?;
        }
        let there = &self.piece[(self.at - self.piece_at).min(self.piece.len() as u64) as usize..];
        let read = there.len().min(wanted as usize);
        into[..read].copy_from_slice(&there[..read]);
        self.at += read as u64;
        Ok(read)
    }
}
