//! Moves for which there is no host memory or no stream: refused before anything moves, and made when there is.

use forebay::client::Objects;
use forebay::store::*;
use forebay::trainer::Error;
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::{DevicePart, DeviceTier, DeviceTierError};

use crate::device_tier::{
    CHUNK, HOSTS_A_RING, device, exchange, get, loaded, one, read, ring_bytes, set, values,
};
use crate::support::World;

const LENGTH: usize = 4 * CHUNK + 3;

/// A device that does not get the host memory of this number, and its tier.
fn scarce(objects: &Objects, fault: usize) -> (StandInDevice, DeviceTier<StandInDevice>) {
    let options = StandInOptions { seed: 3, host_faults: vec![fault], ..StandInOptions::default() };
    let device = StandInDevice::new(options);
    (device.clone(), DeviceTier::new(device, objects.clone()).piece_chunks(1))
}

/// Says how much was asked for, and the way out.
fn is_refused<T: std::fmt::Debug>(outcome: Result<T, DeviceTierError>, fault: usize) {
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("piece_chunks"), "{error}");
    let DeviceTierError::HostMemory { source: Error::HostMemory { values, .. } } = &error else {
        panic!("{error:?}")
    };
    let is_piece = fault % HOSTS_A_RING < 3;
    assert_eq!(*values, if is_piece { CHUNK } else { 8 }, "host memory {fault}");
}

// FX-66, FX-69
#[test]
fn a_move_without_host_memory_is_refused_and_the_next_try_does() {
    let world = World::new();
    let objects = world.embedded();
    let all = values(7, LENGTH);
    for fault in 0..HOSTS_A_RING {
        let key = format!("solver.{fault}");
        let (left, out) = scarce(&objects, fault);
        let buffer = loaded(&left, &all);
        is_refused(set(&out, &key, &buffer, LENGTH), fault);
        assert!(objects.get(&key, Which::Latest).is_err(), "{key}");
        assert_eq!((left.check(), out.pinned_bytes()), (Ok(()), 0));
        assert_eq!(set(&out, &key, &buffer, LENGTH).unwrap(), 1);

        let (came, back) = scarce(&objects, fault);
        let mut target = came.allocate(LENGTH);
        is_refused(get(&back, &key, &mut target), fault);
        assert!(read(&came, &target).iter().all(|value| *value == 0.0), "{key}: nothing has come");
        get(&back, &key, &mut target).unwrap();
        assert!(read(&came, &target) == all, "{key}");

        let (holder, looked) = scarce(&objects, fault);
        let buffer = loaded(&holder, &all);
        let verify = || looked.verify(&key, Which::Latest, &[DevicePart::of("weights", &buffer)]);
        is_refused(verify(), fault);
        assert_eq!(verify().unwrap(), 1);
    }
}

// FX-58, FX-69
#[test]
fn an_exchange_without_host_memory_leaves_the_old_state_where_it_is() {
    let (old, new) = (values(1, LENGTH), values(2, LENGTH));
    for fault in 0..2 * HOSTS_A_RING {
        let world = World::new();
        let objects = world.embedded();
        let good = device(1);
        let tier = DeviceTier::new(good.clone(), objects.clone());
        let newer = loaded(&good, &new);
        tier.set("verifier", Expected::Any, &one(LENGTH), &[DevicePart::of("weights", &newer)]).unwrap();
        let (device, tier) = scarce(&objects, fault);
        let mut buffer = loaded(&device, &old);
        is_refused(exchange(&tier, LENGTH, &mut buffer), fault);
        assert!(read(&device, &buffer) == old, "host memory {fault}");
        assert!(objects.get("solver", Which::Latest).is_err(), "host memory {fault}");
        // What could be had is kept for the next.
        assert_eq!(tier.pinned_bytes(), fault / HOSTS_A_RING * ring_bytes(1));
        let done = exchange(&tier, LENGTH, &mut buffer).unwrap();
        assert!(read(&device, &buffer) == new, "host memory {fault}");
        assert_eq!(get(&tier, "solver", &mut buffer).unwrap(), done.set);
        assert!(read(&device, &buffer) == old, "host memory {fault}");
    }
}

/// A ring has a stream for copies and one for sums.
// FX-66, FX-69
#[test]
fn a_move_without_a_stream_is_refused_and_the_next_try_does() {
    let world = World::new();
    let objects = world.embedded();
    let all = values(7, LENGTH);
    for fault in 0..2 {
        let options = StandInOptions { stream_faults: vec![fault], ..StandInOptions::default() };
        let device = StandInDevice::new(options);
        let tier = DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1);
        let (key, buffer) = (format!("solver.{fault}"), loaded(&device, &all));
        let refused = set(&tier, &key, &buffer, LENGTH).unwrap_err();
        assert!(matches!(refused, DeviceTierError::Device(Error::Stream { .. })), "{refused:?}");
        assert!(objects.get(&key, Which::Latest).is_err(), "{key}");
        assert_eq!((device.check(), tier.pinned_bytes()), (Ok(()), 0));
        assert_eq!(set(&tier, &key, &buffer, LENGTH).unwrap(), 1);
    }
}

#[test]
fn pieces_are_no_longer_than_host_memory_has_addresses_for() {
    let world = World::new();
    let (device, tier) = scarce(&world.embedded(), 0);
    let tier = tier.piece_chunks(usize::MAX);
    let buffer = loaded(&device, &values(1, 5));
    let refused = set(&tier, "solver", &buffer, 5).unwrap_err();
    let DeviceTierError::HostMemory { source: Error::HostMemory { values, .. } } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(values, 1024 * CHUNK);
}
