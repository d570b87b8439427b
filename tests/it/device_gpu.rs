//! States of a GPU as objects of a store: the same checks on the stand-in everywhere, and on a GPU where this process sees one.

use forebay::store::*;
use forebay::trainer::device::cuda::{CudaDevice, CudaLibraries, CudaOptions};
use forebay::trainer::device::{Device, Share, StandInDevice, StandInOptions};
use forebay::trainer::publication::{Publisher, PublisherOptions, Reader, ReaderOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError, GotFrom};

use crate::device_tier::{CHUNK, damage, layout, loaded, one, read, values, ways};
use crate::support::World;

const MUCH: u64 = 1 << 40;

/// Two handles of one device, as a trainer and an instance have them: neither waits for the other's queue.
struct Pair<D> {
    left: D,
    came: D,
}

fn on_the_stand_in() -> Pair<StandInDevice> {
    let device = |seed| StandInDevice::new(StandInOptions { seed, ..StandInOptions::default() });
    Pair { left: device(1), came: device(2) }
}

/// The first GPU, twice. Says so where there is none.
fn on_a_gpu() -> Option<Pair<CudaDevice>> {
    let open = || {
        let libraries = CudaLibraries::from_environment();
        CudaDevice::open(&CudaOptions { libraries, ..CudaOptions::default() })
    };
    match open().and_then(|left| Ok(Pair { left, came: open()? })) {
        Ok(pair) => Some(pair),
        Err(error) => {
            eprintln!("skipped: not run on a GPU: {error}");
            None
        }
    }
}

/// Bytes that may be pinned, and threads that may share a move: each ring is used around, and there are several.
type How = (u64, usize);
const HOW: [How; 4] = [(0, 1), (MUCH, 1), (0, 3), (MUCH, 3)];

fn named((pinned, threads): How) -> String {
    format!("{pinned}.{threads}")
}

fn tier<D: Share>(device: &D, objects: &forebay::client::Objects, (pinned, threads): How) -> DeviceTier<D> {
    let tier = DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1);
    tier.host_threads(threads).pin_objects(pinned)
}

/// Sets a state of one handle and gets it on the other, on every way to the objects, in pieces and straight from where they lie.
fn moves<D: Share>(Pair { left, came }: &Pair<D>) {
    let world = World::new();
    let lengths = [(1, 63), (CHUNK - 1, CHUNK), (CHUNK + 1, 3), (12 * CHUNK + 7, CHUNK)];
    for (way, objects) in ways(&world) {
        for how in HOW {
            let (out, back) = (tier(left, &objects, how), tier(came, &objects, how));
            let mut bytes = 0;
            for (number, (weights, moments)) in lengths.into_iter().enumerate() {
                let key = format!("{way}.{}.{number}", named(how));
                let state = [values(1, weights), values(2, moments)];
                let buffers = state.each_ref().map(|values| loaded(left, values));
                let parts = [DevicePart::of("moments", &buffers[1]), DevicePart::of("weights", &buffers[0])];
                let version =
                    out.set(&key, Expected::Absent, &layout(weights, moments), &parts).expect("a version");
                let [mut first, mut second] = [weights, moments].map(|count| came.allocate(count));
                let mut parts =
                    [DevicePartMut::of("weights", &mut first), DevicePartMut::of("moments", &mut second)];
                assert_eq!(back.get(&key, Which::Latest, &mut parts).expect("the version"), version);
                assert!([read(came, &first), read(came, &second)] == state, "{key}");
                objects.get(&key, Which::Latest).unwrap().verify().unwrap();
                bytes += 4 * (weights + moments) as u64;
            }
            // What is sent through a socket has no place here.
            let expected = if how.0 > 0 && way != "sent" { (bytes, 0) } else { (0, bytes) };
            for stats in [out.stats(), back.stats()] {
                assert_eq!((stats.direct_bytes, stats.staged_bytes), expected, "{way}, {how:?}");
                assert_eq!(stats.mappings_refused, 0);
            }
        }
    }
}

/// One state out while another, longer or shorter, comes in through the same memory.
fn exchanges<D: Share>(Pair { left, came }: &Pair<D>) {
    let world = World::new();
    for how in HOW {
        let tier = tier(left, &world.embedded(), how);
        for (number, (old, new)) in
            [(7 * CHUNK + 5, 7 * CHUNK + 5), (13 * CHUNK, 100), (100, 13 * CHUNK)].into_iter().enumerate()
        {
            let keys = ["out", "in"].map(|way| format!("{way}.{}.{number}", named(how)));
            let (leaving, coming) = (values(3, old), values(4, new));
            let setter = self::tier(came, &world.embedded(), how);
            let buffer = loaded(came, &coming);
            setter.set(&keys[1], Expected::Absent, &one(new), &[DevicePart::of("weights", &buffer)]).unwrap();
            let mut memory = left.allocate(old.max(new));
            left.upload(&leaving, &mut memory, 0);
            let parts = &mut [DevicePartMut::of("weights", &mut memory)];
            tier.exchange((&keys[0], Expected::Absent, &one(old)), (&keys[1], Which::Latest), parts).unwrap();
            assert!(read(left, &memory)[..new] == coming, "{keys:?}");
            let mut back = came.allocate(old);
            setter.get(&keys[0], Which::Latest, &mut [DevicePartMut::of("weights", &mut back)]).unwrap();
            assert!(read(came, &back) == leaving, "{keys:?}");
        }
    }
}

/// One bit that changed on the device is told with its chunk.
fn is_verified<D: Share>(Pair { left, .. }: &Pair<D>) {
    let world = World::new();
    let (tier, length) = (tier(left, &world.embedded(), HOW[0]), 3 * CHUNK + 77);
    let mut weights = loaded(left, &values(1, length));
    tier.set("solver", Expected::Absent, &one(length), &[DevicePart::of("weights", &weights)]).unwrap();
    for (at, chunk) in [(0, 0), (CHUNK - 1, 0), (CHUNK, 1), (length - 1, 3)] {
        let mut there = [0.0_f32];
        left.download(&weights, at, &mut there);
        left.upload(&[f32::from_bits(there[0].to_bits() ^ 1)], &mut weights, at);
        let error = tier.verify("solver", Which::Latest, &[DevicePart::of("weights", &weights)]).unwrap_err();
        let DeviceTierError::Damaged { reason } = &error else { panic!("{at}: {error:?}") };
        assert!(reason.contains(&format!("chunk {chunk} of \"weights\"")), "{at}: {reason}");
        left.upload(&there, &mut weights, at);
        tier.verify("solver", Which::Latest, &[DevicePart::of("weights", &weights)]).unwrap();
    }
}

/// A byte that changed where an object lies is found on its way in, by whoever sums it up.
fn damage_is_found<D: Share>(Pair { left, .. }: &Pair<D>) {
    for how in HOW {
        let world = World::new();
        let (tier, all) = (tier(left, &world.embedded(), how), values(9, 12 * CHUNK + 5));
        let buffer = loaded(left, &all);
        let parts = [DevicePart::of("weights", &buffer)];
        tier.set("solver", Expected::Absent, &one(all.len()), &parts).unwrap();
        damage(&world, &all, 9 * CHUNK + 500);
        let mut target = left.allocate(all.len());
        let got = tier.get("solver", Which::Latest, &mut [DevicePartMut::of("weights", &mut target)]);
        let Err(DeviceTierError::Damaged { reason }) = got else { panic!("{got:?}") };
        assert!(reason.contains("chunk 9 of \"weights\""), "{reason}");
    }
}

/// A version that is on a device comes from there, and one that is only in the store from the store.
fn comes_from_the_nearest<D: Share>(Pair { left, came }: &Pair<D>) {
    let world = World::new();
    let folder = world.dir.path().join("published");
    let (trainer, instance) = (tier(left, &world.embedded(), HOW[0]), tier(came, &world.embedded(), HOW[0]));
    let publisher = Publisher::open(left.clone(), &folder, PublisherOptions::default()).unwrap();
    let reader = Reader::open(came.clone(), &folder, ReaderOptions::default()).unwrap();
    let length = 5 * CHUNK + 3;
    for version in 1..=4 {
        let weights = loaded(left, &values(version, length));
        let parts = [DevicePart::of("weights", &weights)];
        let set = trainer.set("solver", Expected::Any, &one(length), &parts).unwrap();
        if version % 2 == 0 {
            trainer.publish(&publisher, ("solver", set), &one(length), &parts).unwrap();
        }
        drop(weights); // the optimiser's memory may change at once
        let mut target = came.allocate(length);
        let mut parts = [DevicePartMut::of("weights", &mut target)];
        let got =
            instance.get_nearest(&reader, "solver", Which::Exact(set), &one(length), &mut parts).unwrap();
        assert_eq!(matches!(got.from, GotFrom::Device(_)), version % 2 == 0, "{got:?}");
        assert!(read(came, &target) == values(version, length), "{version}");
    }
}

/// A device without the room fails; no version comes of it, and its error says that it is the device.
fn has_no_room<D: Share>(device: &D) {
    let world = World::new();
    let tier = tier(device, &world.embedded(), HOW[0]);
    let buffer = device.allocate(1 << 42); // 16 TiB
    let length = CHUNK;
    let set = tier.set("solver", Expected::Absent, &one(length), &[DevicePart::of("weights", &buffer)]);
    assert!(set.is_err(), "{set:?}");
    assert!(world.embedded().get("solver", Which::Latest).is_err(), "a version of nothing");
    assert!(device.check().is_err());
}

// FX-62, FX-65, FX-66, FX-67, FX-69
#[test]
fn states_of_the_stand_in_move_whole_and_are_found_out_when_they_change() {
    let pair = on_the_stand_in();
    moves(&pair);
    exchanges(&pair);
    is_verified(&pair);
    damage_is_found(&pair);
    comes_from_the_nearest(&pair);
}

// FX-62, FX-65, FX-66, FX-67, FX-69
#[test]
fn states_of_a_gpu_move_whole_and_are_found_out_when_they_change() {
    let Some(pair) = on_a_gpu() else { return };
    moves(&pair);
    exchanges(&pair);
    is_verified(&pair);
    damage_is_found(&pair);
    comes_from_the_nearest(&pair);
    let Pair { left, came } = pair;
    has_no_room(&left);
    assert_eq!(came.check(), Ok(()), "the other handle goes on");
}
