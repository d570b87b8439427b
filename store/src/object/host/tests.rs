//! The arena against what it promises.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::arena::Arena;
use super::extent::HostExtent;
use crate::error::Kind;
use crate::object::options::ObjectOptions;
use crate::object::stats::ObjectStats;
use crate::randomness::{Randomness, SeededRandomness};
use crate::sync::Mutex;

const MIB: u64 = 1 << 20;

type Call = Arc<dyn Fn(u64) + Send + Sync>;

/// What a test does before a segment is made.
#[derive(Default)]
pub(super) struct Hook(Mutex<Option<Call>>);

impl Hook {
    fn set(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(hook));
    }

    pub(super) fn call(&self, bytes: u64) {
        let hook = self.0.lock().clone();
        hook.iter().for_each(|hook| hook(bytes));
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

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

/// Who makes a segment stands still, with all of its memory to be cleared: nobody who finds room, or gives some back, waits.
#[test]
fn who_finds_room_waits_for_nobody_who_makes_some() {
    let arena = arena(64 * MIB, false);
    let first = arena.allocate(MIB).unwrap();
    let (tell, told) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    arena.before_making.set(move |bytes| {
        tell.send(bytes).unwrap();
        let _ = may_go.lock().recv();
    });
    std::thread::scope(|scope| {
        let large = [16, 24].map(|size| {
            let arena = &arena;
            let making = scope.spawn(move || arena.allocate(size * MIB).unwrap());
            assert_eq!(told.recv().unwrap(), size * MIB, "also beside another that is being made");
            making
        });
        drop(first);
        let found = [MIB, MIB / 8].map(|bytes| arena.allocate(bytes).unwrap());
        assert!(found.iter().all(|extent| extent.place().unwrap().0 == 1));
        assert_eq!(stats(&arena).host_bytes, (4 + 16 + 24) * MIB, "what is being made is counted");
        (0..2).for_each(|_| go.send(()).unwrap());
        drop(go);
        let large = large.map(|making| making.join().unwrap());
        assert_ne!(large[0].place().unwrap().0, large[1].place().unwrap().0);
    });
}

#[test]
fn who_needs_room_that_is_being_made_waits_for_it_and_makes_no_more() {
    for limit in [8 * MIB, 64 * MIB] {
        let arena = arena(limit, true);
        drop(arena.allocate(4 * MIB).unwrap());
        let _held = arena.allocate(4 * MIB).unwrap();
        let extents: Vec<HostExtent> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| arena.allocate(MIB / 4).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(extents.iter().all(|extent| extent.place().is_some()), "none lies in heap memory");
        assert_eq!((stats(&arena).segments_mapped, stats(&arena).host_bytes), (2, 8 * MIB));
    }
}

#[test]
fn the_limit_holds_at_every_moment_whoever_makes_and_unmaps_segments() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let options =
            ObjectOptions::default().host_bytes_max(40 * MIB).segment_bytes(8 * MIB).pageable_bytes_max(0);
        let arena = Arena::new(Some(folder.path()), &options);
        let watched = arena.clone();
        let limit_holds = move || assert!(stats(&watched).host_bytes <= 40 * MIB, "seed {seed}");
        arena.before_making.set({
            let limit_holds = limit_holds.clone();
            move |_| limit_holds()
        });
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (arena, limit_holds) = (&arena, &limit_holds);
                scope.spawn(move || {
                    let dice = SeededRandomness::new(seed * 10 + thread);
                    let mut held = Vec::new();
                    for _ in 0..60 {
                        let large = dice.next_u64().is_multiple_of(3);
                        let most = if large { 20 * MIB } else { MIB };
                        held.extend(arena.allocate(1 + dice.next_u64() % most).ok());
                        held.truncate(dice.next_u64() as usize % 4);
                        limit_holds();
                    }
                });
            }
        });
        let files = std::fs::read_dir(folder.path()).unwrap();
        let there: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!((stats(&arena).host_bytes, stats(&arena).host_bytes_taken), (there, 0), "seed {seed}");
        arena.allocate(40 * MIB).unwrap();
        arena.before_making.set(|_| {}); // it knows the arena
    }
}

#[test]
fn a_segment_that_cannot_be_made_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let options = ObjectOptions::default().host_bytes_max(16 * MIB).pageable_bytes_max(0);
    let arena = Arena::new(Some(&folder.path().join("nowhere")), &options);
    for _ in 0..3 {
        assert_eq!(arena.allocate(MIB).unwrap_err().kind(), Kind::Capacity);
        assert_eq!((stats(&arena).host_bytes, stats(&arena).segments_mapped), (0, 0));
    }
    std::fs::create_dir(folder.path().join("nowhere")).unwrap();
    assert_eq!(arena.allocate(16 * MIB).unwrap().bytes(), 16 * MIB);
}
