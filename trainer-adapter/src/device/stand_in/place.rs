//! Where a copy reads and where it writes.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use super::memory::poison;
use crate::device::ForeignMemory;
use crate::device::cpu::CpuBuffer;
use crate::device::cpu::shared::ImportedMemory;

/// Some values of a memory.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) values: Values,
    pub(super) range: Range<usize>,
}

/// A memory, kept by the copies that use it.
#[derive(Debug, Clone)]
pub(super) enum Values {
    Own(Arc<RwLock<CpuBuffer>>),
    /// Another process's: nothing is written there.
    Imported(Arc<ImportedMemory>),
    /// Somebody else's that is pinned.
    Pinned(Arc<ForeignMemory>),
}

impl Place {
    pub(super) fn overlaps(&self, id: u64, range: &Range<usize>) -> bool {
        self.id == id && self.range.start < range.end && range.start < self.range.end
    }

    pub(super) fn read(&self) -> Vec<f32> {
        match &self.values {
            Values::Own(values) => {
                values.read().unwrap_or_else(PoisonError::into_inner)[self.range.clone()].to_vec()
            }
            Values::Imported(memory) => {
                let mut values = vec![0.0; self.range.len()];
                memory.read(self.range.start, &mut values);
                values
            }
            Values::Pinned(memory) => {
                let mut values = vec![0.0; self.range.len()];
                memory.read(self.range.start, &mut values);
                values
            }
        }
    }

    pub(super) fn write(&self, work: impl FnOnce(&mut [f32])) {
        match &self.values {
            Values::Own(values) => {
                work(&mut values.write().unwrap_or_else(PoisonError::into_inner)[self.range.clone()]);
            }
            Values::Imported(_) => {}
            Values::Pinned(memory) => {
                let mut values = vec![0.0; self.range.len()];
                work(&mut values);
                memory.write(self.range.start, &values);
            }
        }
    }

    /// What a copy leaves that failed or raced.
    pub(super) fn spoil(&self) {
        self.write(poison);
    }
}
