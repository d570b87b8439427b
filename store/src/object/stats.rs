//! Counters of the object layer.

use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};

/// What the object layer has done since the store was opened, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Versions that were committed.
    pub sets: u64,
    /// Their bytes.
    pub set_bytes: u64,
    /// Calls of get that gave an object in the host tier.
    pub host_gets: u64,
    /// The bytes of what they gave. A get copies nothing; these are bytes within reach.
    pub host_get_bytes: u64,
    /// Calls of get that gave an object in the disk tier.
    pub disk_gets: u64,
    /// The bytes of what they gave.
    pub disk_get_bytes: u64,
    /// Copies from the host tier to the disk tier.
    pub spills: u64,
    /// Their bytes.
    pub spilled_bytes: u64,
    /// Copies from the disk tier to the host tier.
    pub promotions: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Bytes of both that went past the memory which the system keeps of files.
    pub direct_bytes: u64,
    /// How many segments were ever mapped. It stands still from the second swap on.
    pub segments_mapped: u64,
    /// Their bytes.
    pub segment_bytes_mapped: u64,
    /// Bytes of segments that are mapped now.
    pub host_bytes: u64,
    /// Bytes of them that objects take.
    pub host_bytes_taken: u64,
    /// Payloads that went to heap memory, because the host tier was full.
    pub pageable_fallbacks: u64,
    /// Their bytes that are taken now.
    pub pageable_bytes: u64,
    /// Commits that were refused because another version had come.
    pub conflicts: u64,
    /// Reads and copies that were refused because bytes did not match their checksum.
    pub corrupt: u64,
    /// Gets that were refused because the reader meant another layout.
    pub layout_mismatches: u64,
    /// Leases that are held.
    pub leases: u64,
    /// For how long the oldest of them has been held.
    pub oldest_lease: Duration,
    /// Bytes that were let go by a process of which nobody knows yet that it has ended.
    pub quarantine_bytes: u64,
    /// Time spent in commits, all together.
    pub commit_time: Duration,
    /// Time spent in gets, waits left out, all together.
    pub get_time: Duration,
}

/// Numbers that only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sets: Counter,
    pub(super) set_bytes: Counter,
    pub(super) host_gets: Counter,
    pub(super) host_get_bytes: Counter,
    pub(super) disk_gets: Counter,
    pub(super) disk_get_bytes: Counter,
    pub(super) spills: Counter,
    pub(super) spilled_bytes: Counter,
    pub(super) promotions: Counter,
    pub(super) promoted_bytes: Counter,
    pub(super) direct_bytes: Counter,
    pub(super) conflicts: Counter,
    pub(super) corrupt: Counter,
    pub(super) layout_mismatches: Counter,
    pub(super) commit_microseconds: Counter,
    pub(super) get_microseconds: Counter,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
