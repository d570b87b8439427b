//! `system.stats`: counters of the store, a row each.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use forebay_store::Stats;

use super::Moment;
use super::fields::Fields;

pub(super) fn make(moment: &Moment) -> Result<RecordBatch, ArrowError> {
    let counters = counters(&moment.store.stats());
    Fields::default()
        .texts("name", counters.iter().map(|(name, _)| name))
        .numbers("value", counters.iter().map(|(_, value)| *value))
        .batch(counters.len())
}

fn counters(stats: &Stats) -> Vec<(&'static str, u64)> {
    // Taken apart, so that a counter that is added is missed here.
    let Stats {
        commits,
        log_bytes,
        syncs,
        durable_commits,
        value_bytes_written,
        value_reads,
        extents,
        extent_bytes,
        memory_bytes,
        free_extent_bytes,
        extents_recycled,
        extents_never_synced,
        duties_failed,
    } = *stats;
    vec![
        ("commits", commits),
        ("durable_commits", durable_commits),
        ("log_bytes", log_bytes),
        ("syncs", syncs),
        ("value_bytes_written", value_bytes_written),
        ("value_reads", value_reads),
        ("extents", extents),
        ("extent_bytes", extent_bytes),
        ("free_extent_bytes", free_extent_bytes),
        ("extents_recycled", extents_recycled),
        ("extents_never_synced", extents_never_synced),
        ("duties_failed", duties_failed),
        ("memory_bytes", memory_bytes),
    ]
}
