//! Memory of the stand-in: host memory behind a handle, so that copies under way keep what they use.

use std::ops::{Deref, Range};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::device::cpu::CpuBuffer;

/// What undefined memory reads as: a NaN that no arithmetic makes.
pub const POISON_BITS: u32 = 0x7FDE_AD00;

/// A flat run of f32, in what stands for device memory or for pinned host memory.
#[derive(Debug)]
pub struct StandInBuffer {
    pub(super) id: u64,
    pub(super) values: Arc<RwLock<CpuBuffer>>,
}

/// What a reader sees: the memory, or a copy in which the undefined part is poison.
pub(super) enum Seen<'a> {
    Memory(RwLockReadGuard<'a, CpuBuffer>),
    Poisoned(CpuBuffer),
}

impl Deref for Seen<'_> {
    type Target = CpuBuffer;

    fn deref(&self) -> &CpuBuffer {
        match self {
            Self::Memory(guard) => guard,
            Self::Poisoned(buffer) => buffer,
        }
    }
}

impl StandInBuffer {
    pub(super) fn new(id: u64, values: CpuBuffer) -> Self {
        Self { id, values: Arc::new(RwLock::new(values)) }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, CpuBuffer> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, CpuBuffer> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory as a reader sees it when these parts of it are undefined.
    pub(super) fn seen(&self, undefined: &[Range<usize>]) -> Seen<'_> {
        if undefined.is_empty() {
            return Seen::Memory(self.read());
        }
        let guard = self.read();
        let mut copy = CpuBuffer::zeros(guard.len());
        copy.copy_from_slice(&guard);
        undefined.iter().for_each(|range| poison(&mut copy[range.clone()]));
        Seen::Poisoned(copy)
    }
}

pub(super) fn poison(values: &mut [f32]) {
    values.fill(f32::from_bits(POISON_BITS));
}
