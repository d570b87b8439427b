//! What bare hardware does with the same bytes in the same batches.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Seek, Write};
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use forebay_store::{Disk, LocalDisk};
use memmap2::MmapMut;

use crate::Outcome;
use crate::workload::{BATCH, Workload};

/// A new file with its blocks reserved, as the store reserves an extent's.
pub(crate) fn reserved(path: &Path, bytes: usize) -> Outcome<File> {
    LocalDisk.create(path)?.allocate(bytes as u64)?;
    Ok(OpenOptions::new().read(true).write(true).open(path)?)
}

/// A new mapped file.
pub(crate) fn mapped(path: &Path, bytes: usize) -> Outcome<MmapMut> {
    let file = reserved(path, bytes)?;
    #[allow(unsafe_code, reason = "the limit is a bare mapped file")]
    // SAFETY: the file was created by the call before in a temporary folder of this run, so nobody else truncates or
    // writes it while it is mapped.
    let map = unsafe { MmapMut::map_mut(&file)? };
    Ok(map)
}

/// Copies rows to the mapped bytes from `at` on, round and round, with a checksum of each value when asked for.
pub(crate) fn copy(
    workload: &Workload,
    rows: impl Iterator<Item = usize>,
    (to, at): (&mut [u8], &mut usize),
    checksum: bool,
) -> u64 {
    let mut digest = 0_u64;
    for row in rows {
        for list in workload.sample(row).lists() {
            if *at + list.len() > to.len() {
                *at = 0;
            }
            let place = &mut to[*at..*at + list.len()];
            place.copy_from_slice(list);
            let seen = if checksum {
                forebay_store::checksum::crc32c(place)
            } else {
                u32::from(place[list.len() - 1])
            };
            digest = digest.wrapping_add(seen.into());
            *at += list.len().next_multiple_of(64);
        }
    }
    digest
}

/// Hands the rows of one writer to the kernel: one gathered write a stage of a batch, round and round in the file's first
/// `span` bytes.
pub(crate) fn gather(
    workload: &Workload,
    batches: impl Iterator<Item = usize>,
    mut file: &File,
    span: usize,
) -> Outcome<u64> {
    let (mut written, mut at) = (0, 0);
    for batch in batches {
        let samples = || (batch * BATCH..(batch + 1) * BATCH).map(|row| workload.sample(row));
        let prompts: Vec<IoSlice<'_>> = samples().map(|sample| IoSlice::new(&sample.prompt)).collect();
        let responses =
            samples().flat_map(|s| [IoSlice::new(&s.response), IoSlice::new(&s.logprobs)]).collect();
        for mut parts in [prompts, responses] {
            let length: usize = parts.iter().map(|part| part.len()).sum();
            if at + length > span {
                file.rewind()?;
                at = 0;
            }
            at += length;
            let mut rest = &mut parts[..];
            while !rest.is_empty() {
                let taken = file.write_vectored(rest)?;
                written += taken as u64;
                IoSlice::advance_slices(&mut rest, taken);
            }
        }
    }
    Ok(written)
}

/// Two threads, one condition variable: how long a bare wake-up takes.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Option<Instant>>,
    bell: Condvar,
}

impl Bell {
    /// Wakes the thread that waits.
    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.bell.notify_one();
    }

    /// Waits to be woken. Gives when the ringing began.
    pub(crate) fn wait(&self) -> Instant {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match rung.take() {
                Some(at) => return at,
                None => rung = self.bell.wait(rung).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
