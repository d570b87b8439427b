//! No store at all: what the machine does with the same bytes. It is the limit of every other row.
//!
//! `memory`: a copy of each value with its crc32c into memory that is there, and a copy out of it. `logged`: one gathered
//! write a stage into a new file whose blocks are reserved. `synced`: the same, and `fdatasync` after each stage. Rows are
//! ready when a counter says so, and taken when another does; nothing is named, indexed or remembered.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::columns::{Buffers, Columns};
use crate::peer::{Level, Native, Peer, Taker, Writer};
use crate::workload::{BATCH, MICRO_BATCH, Workload};
use crate::{Outcome, limit};

pub(crate) const PEER: Native = Native {
    name: "bare",
    version: || Ok(String::new()),
    levels: &[Level::Memory, Level::Logged, Level::Synced],
    note: |level| match level {
        Level::Memory => "limit: copy with crc32c into warm memory, copy out",
        Level::Logged => "limit: gathered write into a new file, pread out",
        Level::Synced => "limit: the same with fdatasync after each stage",
    },
    open: |workload, directory, level| Ok(Box::new(Bare::open(workload, directory, level)?)),
};

/// A batch is laid out column by column: prompts, responses, log-probabilities.
struct Bare<'a> {
    workload: &'a Workload,
    level: Level,
    /// Where each batch starts in the file.
    starts: Vec<usize>,
    /// One buffer a batch, written before so that its pages are there; none where there is a file.
    memory: Vec<RwLock<Vec<u8>>>,
    file: Option<File>,
    ready: AtomicUsize,
    taken: AtomicUsize,
}

impl<'a> Bare<'a> {
    fn open(workload: &'a Workload, directory: &Path, level: Level) -> Outcome<Self> {
        let batches = workload.scale.ingest_samples / BATCH;
        let bytes = |batch: usize| column_bytes(workload, batch * BATCH, BATCH).iter().sum::<usize>();
        let mut starts = vec![0];
        for batch in 0..batches {
            starts.push(starts[batch] + bytes(batch));
        }
        let (memory, file) = match level {
            Level::Memory => ((0..batches).map(|batch| RwLock::new(vec![1; bytes(batch)])).collect(), None),
            _ => (Vec::new(), Some(limit::reserved(&directory.join("values"), starts[batches])?)),
        };
        let (ready, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Bare { workload, level, starts, memory, file, ready, taken })
    }

    fn copy_in(&self, first: usize) {
        let mut place = self.memory[first / BATCH].write().unwrap_or_else(PoisonError::into_inner);
        let (mut at, mut checksums) = (0, 0_u32);
        for column in 0..3 {
            for row in first..first + BATCH {
                let list = self.workload.sample(row).lists()[column];
                let place = &mut place[at..at + list.len()];
                place.copy_from_slice(list);
                checksums ^= crc32c::crc32c(place);
                at += list.len();
            }
        }
        std::hint::black_box(checksums);
    }

    fn write_out(&self, file: &File, first: usize) -> Outcome<()> {
        let column = |column: usize| {
            (first..first + BATCH).map(move |row| IoSlice::new(self.workload.sample(row).lists()[column]))
        };
        let stages: [Vec<IoSlice<'_>>; 2] = [column(0).collect(), column(1).chain(column(2)).collect()];
        let mut file = file; // it stands where the last batch ended
        for mut parts in stages {
            let mut rest = &mut parts[..];
            while !rest.is_empty() {
                let taken = file.write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, taken);
            }
            if self.level == Level::Synced {
                file.sync_data()?;
            }
        }
        Ok(())
    }

    /// Copies the columns of some rows of one batch.
    fn read(&self, first: usize, buffers: &mut Buffers) -> Outcome<()> {
        let batch = first / BATCH;
        let (before, own) = (
            column_bytes(self.workload, batch * BATCH, first % BATCH),
            column_bytes(self.workload, first, MICRO_BATCH),
        );
        let whole = column_bytes(self.workload, batch * BATCH, BATCH);
        let mut column_at = 0;
        for column in 0..3 {
            let (at, bytes) = (column_at + before[column], own[column]);
            let list = &mut buffers.lists[column];
            match &self.file {
                Some(file) => {
                    list.resize(bytes, 0);
                    file.read_exact_at(list, (self.starts[batch] + at) as u64)?;
                }
                None => {
                    let memory = self.memory[batch].read().unwrap_or_else(PoisonError::into_inner);
                    list.extend_from_slice(&memory[at..at + bytes]);
                }
            }
            column_at += whole[column];
        }
        for row in first..first + MICRO_BATCH {
            buffers.rows.push(row as u64);
            buffers.rewards.push(self.workload.sample(row).reward);
        }
        Ok(())
    }
}

impl Drop for Bare<'_> {
    /// Gives back what was reserved and not written, so that the disk column tells what rows hold.
    fn drop(&mut self) {
        let written = self.starts[*self.ready.get_mut() / BATCH];
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.set_len(written as u64)) {
            eprintln!("the reserved blocks stay: {error}");
        }
    }
}

/// The bytes of each column of some rows.
fn column_bytes(workload: &Workload, first: usize, rows: usize) -> [usize; 3] {
    let mut bytes = [0; 3];
    for row in first..first + rows {
        bytes.iter_mut().zip(workload.sample(row).lists()).for_each(|(sum, list)| *sum += list.len());
    }
    bytes
}

impl Peer for Bare<'_> {
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        Ok(Box::new(Hand { bare: self, buffers: Buffers::default() }))
    }

    fn taker(&self) -> Outcome<Box<dyn Taker + '_>> {
        Ok(Box::new(Hand { bare: self, buffers: Buffers::default() }))
    }
}

struct Hand<'a> {
    bare: &'a Bare<'a>,
    buffers: Buffers,
}

impl Writer for Hand<'_> {
    fn write(&mut self, first: usize) -> Outcome<()> {
        match &self.bare.file {
            Some(file) => self.bare.write_out(file, first)?,
            None => self.bare.copy_in(first),
        }
        self.bare.ready.store(first + BATCH, Ordering::Release);
        Ok(())
    }
}

impl Taker for Hand<'_> {
    fn take(&mut self, read: &mut dyn FnMut(Columns<'_>)) -> Outcome<usize> {
        let first = self.bare.taken.load(Ordering::Relaxed);
        if first + MICRO_BATCH > self.bare.ready.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.buffers.clear();
        self.bare.read(first, &mut self.buffers)?;
        read(self.buffers.columns());
        self.bare.taken.store(first + MICRO_BATCH, Ordering::Relaxed);
        Ok(MICRO_BATCH)
    }
}
