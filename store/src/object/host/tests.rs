//! The arena against what it promises.

use std::sync::Arc;

use super::arena::{Arena, HostExtent};
use crate::error::Kind;
use crate::object::options::ObjectOptions;
use crate::object::stats::ObjectStats;
use crate::randomness::{Randomness, SeededRandomness};

const MIB: u64 = 1 << 20;

fn arena(limit: u64, pageable: bool) -> Arc<Arena> {
    let options = ObjectOptions::default().host_bytes_max(limit).segment_bytes(8 * MIB);
    Arena::new(None, &options.pageable_bytes_max(if pageable { 4 * MIB } else { 0 }))
}

fn stats(arena: &Arena) -> ObjectStats {
    let mut stats = ObjectStats::default();
    arena.count_into(&mut stats);
    stats
}

#[test]
fn extents_that_were_given_back_are_used_again_and_nothing_is_mapped_for_them() {
    let arena = arena(64 * MIB, false);
    let swap = || [3 * MIB, 5 * MIB, 100, 7 * MIB].map(|bytes| arena.allocate(bytes).unwrap());
    drop(swap());
    let first = stats(&arena);
    for _ in 0..10 {
        drop(swap());
    }
    assert_eq!(stats(&arena), first);
    assert_eq!((first.host_bytes_taken, first.pageable_fallbacks), (0, 0));
}

#[test]
fn a_full_host_tier_falls_back_to_heap_memory_where_it_may() {
    let strict = arena(8 * MIB, false);
    let held = strict.allocate(8 * MIB).unwrap();
    let error = strict.allocate(1).unwrap_err();
    assert_eq!(error.kind(), Kind::Capacity);
    assert!(error.to_string().contains("8388608"), "{error}");
    drop(held);
    strict.allocate(1).unwrap();

    let pageable = arena(8 * MIB, true);
    let _held = pageable.allocate(8 * MIB).unwrap();
    let heap = pageable.allocate(100).unwrap();
    assert_eq!((heap.place(), stats(&pageable).pageable_bytes), (None, 100));
    drop(heap);
    assert_eq!((stats(&pageable).pageable_fallbacks, stats(&pageable).pageable_bytes), (1, 0));
}

#[test]
fn free_segments_make_way_for_a_larger_one() {
    let arena = arena(32 * MIB, false);
    drop([4, 4, 8].map(|size| arena.allocate(size * MIB).unwrap()));
    assert_eq!(arena.allocate(30 * MIB).unwrap().bytes(), 30 * MIB);
    assert!(stats(&arena).host_bytes <= 32 * MIB);
}

#[test]
fn extents_never_overlap_and_all_comes_back() {
    let seed = 5;
    let dice = SeededRandomness::new(seed);
    let arena = arena(48 * MIB, false);
    let mut held: Vec<(HostExtent, u64)> = Vec::new();
    for turn in 0..2000 {
        if dice.next_u64().is_multiple_of(2) && !held.is_empty() {
            held.swap_remove(dice.next_u64() as usize % held.len());
        } else if let Ok(extent) = arena.allocate(1 + dice.next_u64() % (4 * MIB)) {
            extent.write_summed(0, &u64::to_le_bytes(turn)[..extent.bytes().min(8) as usize], 0);
            held.push((extent, turn));
        }
    }
    let mut ranges: Vec<_> = held
        .iter()
        .map(|(extent, turn)| {
            let mut seen = [0; 8];
            extent.read(0, &mut seen[..extent.bytes().min(8) as usize]);
            assert!(extent.bytes() < 8 || u64::from_le_bytes(seen) == *turn, "seed {seed}: overwritten");
            let (segment, offset) = extent.place().unwrap();
            (segment, offset, offset + extent.bytes())
        })
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|w| w[0].0 != w[1].0 || w[0].2 <= w[1].1), "seed {seed}");
    held.clear();
    assert_eq!(stats(&arena).host_bytes_taken, 0);
    arena.give_back();
    assert_eq!(stats(&arena).host_bytes, 0, "seed {seed}: every segment is free");
}
