//! Mappings that objects lie in, pinned for a device: its copies go to and from the objects themselves then.
//!
//! Pinning takes longer than copying, about a second for a few GiB. So a mapping is pinned whole when the first move meets it, and stays so
//! for as long as the store has it: later moves pin nothing. What is pinned never exceeds a limit; beyond it, and where the device
//! refuses, moves go through the ring as they would without, and are counted ([`DeviceTierStats`]).
//!
//! One lock, held while a mapping is pinned: who meets the same mapping meanwhile waits for it.

use std::any::Any;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::store::ObjectMapping;
use crate::trainer::device::{Copies, ForeignMemory};

/// What a device tier has moved, and what is pinned for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTierStats {
    /// Bytes that the device copied to or from where objects lie.
    pub direct_bytes: u64,
    /// Bytes that passed through pieces of host memory.
    pub staged_bytes: u64,
    /// Mappings that were ever pinned. It stands still from the second swap on.
    pub mappings_pinned: u64,
    /// Bytes of mappings that are pinned now.
    pub mapping_bytes: u64,
    /// Mappings that were not pinned, since there would have been too much of them or the device refused.
    pub mappings_refused: u64,
}

/// The mappings of a device.
pub(super) struct Pins<D: Copies> {
    bytes_max: u64,
    mappings: Mutex<Vec<Met<D>>>,
    direct_bytes: AtomicU64,
    staged_bytes: AtomicU64,
    pinned: AtomicU64,
    refused: AtomicU64,
}

/// A mapping that was met.
struct Met<D: Copies> {
    place: usize,
    bytes: usize,
    /// Alive as long as it is mapped; what is pinned here keeps it so itself.
    watch: Weak<dyn Any + Send + Sync>,
    memory: Option<D::Pinned>,
}

impl<D: Copies> Met<D> {
    /// Whether anybody but us has it mapped.
    fn is_of_use(&self) -> bool {
        self.watch.strong_count() > usize::from(self.memory.is_some())
    }
}

impl<D: Copies> Pins<D> {
    /// At most so many bytes are pinned at a time.
    pub(super) fn new(bytes_max: u64) -> Self {
        Pins {
            bytes_max,
            mappings: Mutex::default(),
            direct_bytes: AtomicU64::new(0),
            staged_bytes: AtomicU64::new(0),
            pinned: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Whether anything may be pinned.
    pub(super) fn are_wanted(&self) -> bool {
        self.bytes_max > 0
    }

    /// A mapping as copies use it, which is pinned if it was not; nothing where it cannot be.
    pub(super) fn of(&self, device: &D, mapping: &ObjectMapping) -> Option<D::Pinned> {
        let (place, bytes) = (mapping.place().addr().get(), mapping.bytes());
        let mut mappings = self.mappings.lock();
        let over: Vec<Met<D>> = mappings.extract_if(.., |met| !met.is_of_use()).collect();
        drop(over); // before more is pinned
        if let Some(met) = mappings.iter().find(|met| (met.place, met.bytes) == (place, bytes)) {
            return met.memory.clone();
        }
        let taken: usize = mappings.iter().filter(|met| met.memory.is_some()).map(|met| met.bytes).sum();
        let memory = match (taken + bytes) as u64 > self.bytes_max {
            true => Err(format!("{bytes} bytes beside {taken} are more than {}", self.bytes_max)),
            false => device.pin(foreign(mapping)).map_err(|error| error.to_string()),
        };
        let counter = if memory.is_ok() { &self.pinned } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        let memory = memory.inspect_err(|reason| {
            tracing::warn!(bytes, reason, "objects are moved through pieces of host memory");
        });
        let memory = memory.ok();
        mappings.push(Met { place, bytes, watch: mapping.watch(), memory: memory.clone() });
        memory
    }

    pub(super) fn count(&self, is_direct: bool, bytes: u64) {
        let counter = if is_direct { &self.direct_bytes } else { &self.staged_bytes };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> DeviceTierStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mappings = self.mappings.lock();
        let pinned = mappings.iter().filter(|met| met.memory.is_some());
        DeviceTierStats {
            direct_bytes: read(&self.direct_bytes),
            staged_bytes: read(&self.staged_bytes),
            mappings_pinned: read(&self.pinned),
            mapping_bytes: pinned.map(|met| met.bytes as u64).sum(),
            mappings_refused: read(&self.refused),
        }
    }
}

impl<D: Copies> std::fmt::Debug for Pins<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pins({:?})", self.stats())
    }
}

#[allow(unsafe_code, reason = "the store's memory, given to copies of a device")]
fn foreign(mapping: &ObjectMapping) -> ForeignMemory {
    let (place, bytes, is_writable) = (mapping.place(), mapping.bytes(), mapping.is_writable());
    // SAFETY: it is mapped as long as `keep` is held, and begins at a page. Copies write ranges that a filling has lent alone
    // (`FillingRange`), of which the store makes no references; others they only read.
    unsafe { ForeignMemory::new(place, bytes, is_writable, mapping.keep()) }
}
