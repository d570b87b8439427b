//! Moves that several threads of the host share.

use forebay::client::Objects;
use forebay::store::*;
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError};

use crate::device_tier::{
    CHUNK, HOSTS_A_RING, SEEDS, copies_that_fail, damage, device, exchange, failing, get, layout, loaded,
    one, read, ring_bytes, set, values, ways,
};
use crate::support::World;

const THREADS: usize = 3;
/// Worth three threads, and no number of whole chunks.
const LONG: usize = 12 * CHUNK + 77;

/// Moves pieces of one chunk on up to three threads.
fn tier(device: &StandInDevice, objects: &Objects) -> DeviceTier<StandInDevice> {
    DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1).host_threads(THREADS)
}

// FX-62, FX-66, FX-67
#[test]
fn what_left_in_lanes_comes_bit_by_bit_whatever_the_way() {
    let world = World::new();
    for (number, (way, objects)) in ways(&world).into_iter().enumerate() {
        let (left, came) = (device(number as u64), device(number as u64 + 100));
        let state = [values(1, LONG), values(2, CHUNK - 3)];
        let buffers = state.each_ref().map(|values| loaded(&left, values));
        let (out, back) = (tier(&left, &objects), tier(&came, &objects));
        let parts = [DevicePart::of("moments", &buffers[1]), DevicePart::of("weights", &buffers[0])];
        let version = out.set(way, Expected::Absent, &layout(LONG, CHUNK - 3), &parts).unwrap();
        objects.get(way, Which::Latest).unwrap().verify().unwrap();
        let [mut first, mut second] = [LONG, CHUNK - 3].map(|count| came.allocate(count));
        let mut parts = [DevicePartMut::of("weights", &mut first), DevicePartMut::of("moments", &mut second)];
        assert_eq!(back.get(way, Which::Latest, &mut parts).unwrap(), version);
        let parts = [DevicePart::of("weights", &first), DevicePart::of("moments", &second)];
        assert_eq!(back.verify(way, Which::Latest, &parts).unwrap(), version);
        assert!([read(&came, &first), read(&came, &second)] == state, "{way}");
        assert_eq!([out.pinned_bytes(), back.pinned_bytes()], [THREADS * ring_bytes(1); 2], "{way}");
    }
}

// FX-58
#[test]
fn an_exchange_in_lanes_sets_the_old_state_and_brings_the_new_one_whichever_is_longer() {
    let lengths = [(LONG, LONG), (LONG, 3 * CHUNK), (3 * CHUNK, LONG + CHUNK)];
    for (seed, (old, new)) in (0..SEEDS).zip(lengths.into_iter().cycle()) {
        let world = World::new();
        let objects = world.embedded();
        let (device, old, new) = (device(seed), values(1, old), values(2, new));
        let tier = tier(&device, &objects);
        let newer = loaded(&device, &new);
        tier.set("verifier", Expected::Any, &one(new.len()), &[DevicePart::of("weights", &newer)]).unwrap();
        let mut buffer = device.allocate(old.len().max(new.len()));
        device.upload(&old, &mut buffer, 0);
        let done = exchange(&tier, old.len(), &mut buffer).unwrap();
        // Two rings for each thread, whichever state is the longer.
        assert_eq!(tier.pinned_bytes(), 2 * THREADS * ring_bytes(1), "seed {seed}");
        assert!(read(&device, &buffer)[..new.len()] == new, "seed {seed}");
        let mut target = device.allocate(old.len());
        assert_eq!(get(&tier, "solver", &mut target).unwrap(), done.set);
        assert!(read(&device, &target) == old, "seed {seed}");
    }
}

// FX-58
#[test]
fn lanes_go_to_and_from_pinned_objects_themselves() {
    let world = World::new();
    let objects = world.embedded();
    let device = device(3);
    let (old, new) = (values(1, LONG), values(2, LONG));
    let tier = tier(&device, &objects).pin_objects(1 << 40);
    set(&tier, "verifier", &loaded(&device, &new), LONG).unwrap();
    let mut buffer = loaded(&device, &old);
    let done = exchange(&tier, old.len(), &mut buffer).unwrap();
    assert!(read(&device, &buffer) == new);
    objects.get("solver", Which::Exact(done.set)).unwrap().verify().unwrap();
    get(&tier, "solver", &mut buffer).unwrap();
    assert!(read(&device, &buffer) == old);
    assert_eq!(tier.stats().staged_bytes, 0);
}

// FX-66, FX-69
#[test]
fn a_copy_that_fails_in_any_lane_leaves_no_version_and_the_next_try_does() {
    let world = World::new();
    copies_that_fail(("embedded", &world.embedded()), (LONG, 13), tier);
}

// FX-69
#[test]
fn an_exchange_in_lanes_whose_copy_fails_has_set_the_old_state_or_says_that_it_is_lost() {
    let (old, new, mut kept, mut lost) = (values(1, LONG), values(2, LONG), 0, 0);
    for copy in 0..26 {
        let world = World::new();
        let objects = world.embedded();
        let good = device(1);
        set(&tier(&good, &objects), "verifier", &loaded(&good, &new), LONG).unwrap();
        let device = failing(copy as u64, copy);
        let (tier, mut buffer) = (tier(&device, &objects), loaded(&device, &old));
        let error = exchange(&tier, old.len(), &mut buffer).unwrap_err();
        let mut target = device.allocate(LONG);
        match error {
            DeviceTierError::Exchanged { set, .. } => {
                assert_eq!(get(&tier, "solver", &mut target).unwrap(), set);
                assert!(read(&device, &target) == old, "copy {copy}");
                kept += 1;
            }
            DeviceTierError::Overwritten { .. } => {
                assert!(objects.get("solver", Which::Latest).is_err(), "copy {copy}: half of a state");
                lost += 1;
            }
            DeviceTierError::Device(_) => {
                assert!(objects.get("solver", Which::Latest).is_err(), "copy {copy}: half of a state");
                assert!(read(&device, &buffer) == old, "copy {copy}: nothing has come");
            }
            other => panic!("copy {copy}: {other:?}"),
        }
        get(&tier, "verifier", &mut buffer).unwrap();
        assert!(read(&device, &buffer) == new, "copy {copy}: the device goes on");
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

// FX-69
#[test]
fn a_byte_that_changed_is_told_whichever_lane_it_is_in() {
    let world = World::new();
    let objects = world.embedded();
    let device = device(2);
    let tier = tier(&device, &objects);
    for chunk in [0, 5, 11] {
        let all = values((chunk as u32) << 20, LONG);
        let mut buffer = loaded(&device, &all);
        set(&tier, "solver", &buffer, LONG).unwrap();
        damage(&world, &all, chunk * CHUNK + 500);
        let Err(DeviceTierError::Damaged { reason }) = get(&tier, "solver", &mut device.allocate(LONG))
        else {
            panic!("chunk {chunk}: unnoticed")
        };
        assert!(reason.contains(&format!("chunk {chunk} of \"weights\"")), "{reason}");

        set(&tier, "verifier", &buffer, LONG).unwrap();
        device.upload(&[0.5], &mut buffer, chunk * CHUNK + 500);
        let changed = tier.verify("verifier", Which::Latest, &[DevicePart::of("weights", &buffer)]);
        let Err(DeviceTierError::Damaged { reason }) = changed else { panic!("{changed:?}") };
        assert!(reason.contains(&format!("chunk {chunk} of \"weights\"")), "{reason}");
    }
}

// FX-58, FX-69
#[test]
fn where_host_memory_is_scarce_fewer_threads_share_a_move() {
    let world = World::new();
    let objects = world.embedded();
    // The first memory of the second thread.
    let options = StandInOptions { host_faults: vec![HOSTS_A_RING], ..StandInOptions::default() };
    let device = StandInDevice::new(options);
    let (tier, all) = (tier(&device, &objects), values(3, LONG));
    let buffer = loaded(&device, &all);
    set(&tier, "solver", &buffer, LONG).unwrap();
    assert_eq!(tier.pinned_bytes(), ring_bytes(1), "one thread");
    let mut target = device.allocate(LONG);
    get(&tier, "solver", &mut target).unwrap();
    assert!(read(&device, &target) == all);
    assert_eq!(tier.pinned_bytes(), THREADS * ring_bytes(1), "there is enough again");
}
