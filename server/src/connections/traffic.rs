//! What is counted of the connections of one door.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What went through a door. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: AtomicU64,
    accepted: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// Counts at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrafficCounts {
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    /// By reason.
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Traffic {
    pub(crate) fn counts(&self) -> TrafficCounts {
        TrafficCounts {
            open: self.0.open.load(Relaxed),
            accepted: self.0.accepted.load(Relaxed),
            refused: self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(), // counts stay counts
            bytes_in: self.0.bytes_in.load(Relaxed),
            bytes_out: self.0.bytes_out.load(Relaxed),
        }
    }

    pub(super) fn came_in(&self, bytes: usize) {
        self.0.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn went_out(&self, bytes: usize) {
        self.0.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn connected(&self) {
        self.0.accepted.fetch_add(1, Relaxed);
        self.0.open.fetch_add(1, Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.0.open.fetch_sub(1, Relaxed);
    }

    pub(super) fn refused(&self, reason: &'static str) {
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }
}
