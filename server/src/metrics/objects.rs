//! What is shown of objects, once somebody has used them.

use forebay_store::{ObjectStats, Store};

use super::Page;

/// The objects of a store.
pub(super) fn objects(page: &mut Page, store: &Store) {
    let Some(stats) = store.object_stats() else { return };
    memory(page, &stats);
    let moves = [
        ("set", stats.sets, stats.set_bytes),
        ("get_host", stats.host_gets, stats.host_get_bytes),
        ("get_disk", stats.disk_gets, stats.disk_get_bytes),
        ("spill", stats.spills, stats.spilled_bytes),
        ("promote", stats.promotions, stats.promoted_bytes),
    ];
    page.counter(
        "forebay_object_moves_total",
        "Versions of objects that were set, got, and copied between tiers.",
    );
    moves.iter().for_each(|(what, times, _)| page.sample(&[("what", what)], times));
    page.counter("forebay_object_move_bytes_total", "Their bytes; a get in the host tier copies none.");
    moves.iter().for_each(|(what, _, bytes)| page.sample(&[("what", what)], bytes));
    page.counter(
        "forebay_object_direct_bytes_total",
        "Those of spill and promote that went past the system's cache.",
    );
    page.sample(&[], stats.direct_bytes);
    let refused =
        [("conflict", stats.conflicts), ("corrupt", stats.corrupt), ("layout", stats.layout_mismatches)];
    page.counter("forebay_objects_refused_total", "Commits and reads that were refused, by why.");
    refused.iter().for_each(|(why, times)| page.sample(&[("why", why)], times));
    page.gauge("forebay_object_leases", "Versions that are held.");
    page.sample(&[], stats.leases);
    page.gauge("forebay_object_oldest_lease_seconds", "How long the one that is held longest has been held.");
    page.sample(&[], stats.oldest_lease.as_secs_f64());
    let times = [("commit", stats.commit_time), ("get", stats.get_time)];
    page.counter("forebay_object_seconds_total", "Time that commits and gets took, in all.");
    times.iter().for_each(|(what, time)| page.sample(&[("what", what)], time.as_secs_f64()));
}

fn memory(page: &mut Page, stats: &ObjectStats) {
    let bytes = [
        ("mapped", stats.host_bytes),
        ("taken", stats.host_bytes_taken),
        ("quarantine", stats.quarantine_bytes),
        ("pageable", stats.pageable_bytes),
    ];
    page.gauge(
        "forebay_object_memory_bytes",
        "Memory for objects: segments mapped and taken, quarantine, heap.",
    );
    bytes.iter().for_each(|(of, bytes)| page.sample(&[("of", of)], bytes));
    page.counter(
        "forebay_object_segments_mapped_total",
        "Segments that were mapped; it stands still from the second swap on.",
    );
    page.sample(&[], stats.segments_mapped);
    page.counter(
        "forebay_object_pageable_fallbacks_total",
        "Payloads that went to the heap because the host tier was full.",
    );
    page.sample(&[], stats.pageable_fallbacks);
}
