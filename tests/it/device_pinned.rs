//! The memory that objects lie in, pinned for a device: copies go to and from the objects themselves.

use forebay::client::Objects;
use forebay::store::*;
use forebay::trainer::device::stand_in::CopyWay;
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError};

use crate::device_tier::{
    CHUNK, SEEDS, copies_that_fail, damage, device, exchange, get, layout, loaded, overlap, read, set,
    values, ways,
};
use crate::support::World;

const MUCH: u64 = 1 << 40;

/// Moves pieces of one chunk, and pins up to so many bytes.
fn tier(device: &StandInDevice, objects: &Objects, pinned_bytes_max: u64) -> DeviceTier<StandInDevice> {
    DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1).pin_objects(pinned_bytes_max)
}

/// Sets a state of one device and gets it on another; bytes that went by themselves, and in pieces.
fn round(objects: &Objects, seed: u64, (weights, moments): (usize, usize), key: &str) -> (u64, u64) {
    let (left, came) = (device(seed), device(seed + 100));
    let state = [values(1, weights), values(2, moments)];
    let buffers = state.each_ref().map(|values| loaded(&left, values));
    let (out, back) = (tier(&left, objects, MUCH), tier(&came, objects, MUCH));
    let parts = [DevicePart::of("moments", &buffers[1]), DevicePart::of("weights", &buffers[0])];
    let version = out.set(key, Expected::Absent, &layout(weights, moments), &parts).unwrap();
    let [mut first, mut second] = [weights, moments].map(|count| came.allocate(count));
    let mut parts = [DevicePartMut::of("weights", &mut first), DevicePartMut::of("moments", &mut second)];
    assert_eq!(back.get(key, Which::Latest, &mut parts).unwrap(), version);
    assert_eq!([read(&came, &first), read(&came, &second)], state, "{key}");
    objects.get(key, Which::Latest).unwrap().verify().unwrap();
    let stats = [out.stats(), back.stats()];
    assert!(stats.iter().all(|stats| stats.mappings_refused == 0));
    (stats.iter().map(|stats| stats.direct_bytes).sum(), stats.iter().map(|stats| stats.staged_bytes).sum())
}

// FX-62, FX-66, FX-67
#[test]
fn what_left_one_device_is_on_another_bit_by_bit_without_a_piece_between() {
    let world = World::new();
    let lengths = [(1, 63), (64, 65), (CHUNK - 1, CHUNK), (CHUNK + 1, 3), (4 * CHUNK + 7, CHUNK)];
    for (way, objects) in ways(&world) {
        for (number, lengths) in lengths.into_iter().enumerate() {
            let (direct, staged) =
                round(&objects, number as u64 % SEEDS, lengths, &format!("{way}.{number}"));
            let bytes = 2 * 4 * (lengths.0 + lengths.1) as u64;
            // What is sent through a socket has no place here.
            let expected = if way == "sent" { (0, bytes) } else { (bytes, 0) };
            assert_eq!((direct, staged), expected, "{way}, {lengths:?}");
        }
    }
}

#[test]
fn later_swaps_pin_nothing_and_what_the_store_gives_up_is_unpinned() {
    let world = World::new();
    let objects = world.embedded();
    let device = device(1);
    let tier = tier(&device, &objects, MUCH);
    let mut buffer = loaded(&device, &values(3, 2 * CHUNK));
    let mut pinned = Vec::new();
    for _ in 0..4 {
        let version = set(&tier, "solver", &buffer, 2 * CHUNK).unwrap();
        get(&tier, "solver", &mut buffer).unwrap();
        objects.delete("solver", version).unwrap();
        pinned.push((tier.stats().mappings_pinned, tier.stats().mapping_bytes, device.pinned_bytes()));
    }
    assert_eq!(pinned, vec![pinned[0]; 4]);
    assert_eq!((pinned[0].0, pinned[0].1), (1, pinned[0].2));
    world.store.objects().unwrap().give_back_host().unwrap();
    set(&tier, "solver", &buffer, 2 * CHUNK).unwrap();
    let stats = tier.stats();
    assert_eq!((stats.mappings_pinned, stats.mapping_bytes), (2, device.pinned_bytes()));
    assert_eq!(stats.mapping_bytes, pinned[0].1, "the mapping that is gone is not pinned any more");
    drop(tier);
    assert_eq!(device.pinned_bytes(), 0);
}

#[test]
fn beyond_the_limit_and_where_the_device_refuses_moves_go_in_pieces_and_are_counted() {
    let world = World::new();
    let objects = world.embedded();
    let small = StandInDevice::new(StandInOptions { pinned_bytes_max: 1000, ..StandInOptions::default() });
    for (key, device, limit) in [("limit", device(2), 1000), ("device", small, MUCH), ("none", device(3), 0)]
    {
        let tier = tier(&device, &objects, limit);
        let all = values(4, 3 * CHUNK + 5);
        let buffer = loaded(&device, &all);
        for _ in 0..2 {
            set(&tier, key, &buffer, all.len()).unwrap();
            let mut target = device.allocate(all.len());
            get(&tier, key, &mut target).unwrap();
            assert!(read(&device, &target) == all, "{key}");
        }
        objects.get(key, Which::Latest).unwrap().verify().unwrap();
        let stats = tier.stats();
        assert_eq!((stats.direct_bytes, stats.staged_bytes), (0, 16 * all.len() as u64), "{key}");
        // Once a segment, of which two moves of each way have met two.
        assert_eq!((1..=2).contains(&stats.mappings_refused), limit > 0, "{key}: {stats:?}");
        assert_eq!((stats.mapping_bytes, device.pinned_bytes()), (0, 0), "{key}");
    }
}

// FX-66, FX-69
#[test]
fn a_copy_that_fails_leaves_no_version_and_the_next_try_does() {
    let world = World::new();
    let (_, neighbour) = ways(&world).into_iter().nth(1).unwrap();
    for (way, objects) in [("embedded", world.embedded()), ("neighbour", neighbour)] {
        copies_that_fail((way, &objects), (4 * CHUNK + 1, 5), |device, objects| tier(device, objects, MUCH));
    }
}

// FX-69
#[test]
fn a_byte_that_changed_in_pinned_memory_is_told_by_the_device_that_it_came_to() {
    let world = World::new();
    let objects = world.embedded();
    let device = device(2);
    let (tier, all) = (tier(&device, &objects, MUCH), values(9, 4 * CHUNK));
    set(&tier, "solver", &loaded(&device, &all), all.len()).unwrap();
    damage(&world, &all, 2 * CHUNK + 500);
    let mut target = device.allocate(all.len());
    let Err(DeviceTierError::Damaged { reason }) = get(&tier, "solver", &mut target) else {
        panic!("unnoticed")
    };
    assert!(reason.contains("chunk 2 of \"weights\""), "{reason}");
    // What was not changed comes as ever, and the device goes on.
    set(&tier, "verifier", &loaded(&device, &all), all.len()).unwrap();
    get(&tier, "verifier", &mut target).unwrap();
    assert!(read(&device, &target) == all);
}

// FX-58
#[test]
fn an_exchange_of_pinned_states_goes_both_ways_at_once() {
    for seed in 0..SEEDS {
        let world = World::new();
        let objects = world.embedded();
        let device = device(seed);
        let (old, new, length) = (values(1, 8 * CHUNK), values(2, 8 * CHUNK), 8 * CHUNK);
        let tier = tier(&device, &objects, MUCH);
        set(&tier, "verifier", &loaded(&device, &new), length).unwrap();
        let mut buffer = loaded(&device, &old);
        let before = device.trace().len();
        let done = exchange(&tier, length, &mut buffer).unwrap();
        assert!(read(&device, &buffer) == new, "seed {seed}");
        let mut target = device.allocate(length);
        assert_eq!(get(&tier, "solver", &mut target).unwrap(), done.set);
        assert!(read(&device, &target) == old, "seed {seed}");
        assert_eq!(tier.stats().staged_bytes, 0);
        let trace = &device.trace()[before..before + 16];
        let (out, back): (Vec<_>, Vec<_>) = trace.iter().partition(|entry| entry.way == CopyWay::ToHost);
        let beside = back.iter().filter(|came| out.iter().any(|left| overlap(left, came))).count();
        assert!(beside > 0, "seed {seed}: nothing went both ways at once");
    }
}

/// A sum that fails is a copy that has not come: no version, or the old one alone, and the next try does.
#[test]
fn a_sum_that_fails_leaves_no_version_and_the_next_try_does() {
    for fault in [0, 3, 7] {
        let world = World::new();
        let objects = world.embedded();
        let options = StandInOptions { seed: 3, sum_faults: vec![fault], ..StandInOptions::default() };
        let (device, all) = (StandInDevice::new(options), values(4, 8 * CHUNK));
        let (tier, mut buffer) = (tier(&device, &objects, MUCH), loaded(&device, &all));
        let failed = set(&tier, "solver", &buffer, all.len());
        assert!(matches!(failed, Err(DeviceTierError::Device(_))), "{failed:?}");
        assert!(objects.get("solver", Which::Latest).is_err());
        assert_eq!(set(&tier, "solver", &buffer, all.len()).unwrap(), 1);
        objects.get("solver", Which::Latest).unwrap().verify().unwrap();
        get(&tier, "solver", &mut buffer).unwrap();
        assert!(read(&device, &buffer) == all);
    }
}

#[test]
fn an_exchange_whose_sum_fails_has_set_the_old_state_or_says_that_it_is_lost() {
    let (mut kept, mut lost) = (0, 0);
    for fault in 0..16 {
        let world = World::new();
        let objects = world.embedded();
        let (old, new, length) = (values(1, 8 * CHUNK), values(2, 8 * CHUNK), 8 * CHUNK);
        let good = device(1);
        set(&tier(&good, &objects, MUCH), "verifier", &loaded(&good, &new), length).unwrap();
        let options = StandInOptions { seed: 3, sum_faults: vec![fault], ..StandInOptions::default() };
        let device = StandInDevice::new(options);
        let (tier, mut buffer) = (tier(&device, &objects, MUCH), loaded(&device, &old));
        let done = exchange(&tier, length, &mut buffer);
        match done {
            Err(DeviceTierError::Exchanged { set: 1, .. }) => {
                kept += 1;
                objects.get("solver", Which::Latest).unwrap().verify().unwrap();
            }
            Err(DeviceTierError::Overwritten { .. }) => {
                lost += 1;
                assert!(objects.get("solver", Which::Latest).is_err());
            }
            other => panic!("{fault}: {other:?}"),
        }
    }
    assert_eq!((kept, lost), (8, 8), "of the sums of either way");
}
