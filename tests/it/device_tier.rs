//! Objects out of a device's memory and into it, over a store here and behind a server; on the stand-in, whose copies are late, out of
//! order, and fail when they are told to.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use forebay::client::{Client, ConnectOptions, Objects};
use forebay::store::*;
use forebay::trainer::device::stand_in::{CopyWay, StandInBuffer, TraceEntry};
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::{DeviceExchange, DevicePart, DevicePartMut, DeviceTier, DeviceTierError};

use crate::support::World;

pub(crate) const CHUNK: usize = OBJECT_CHUNK_BYTES as usize / 4;
pub(crate) const SEEDS: u64 = 6;

/// The three ways to the same objects: in this process, through the server's memory, and sent.
pub(crate) fn ways(world: &World) -> [(&'static str, Objects); 3] {
    let connect = |options: ConnectOptions| Client::connect(&world.address(), &options).unwrap().objects();
    [
        ("embedded", world.embedded()),
        ("neighbour", connect(ConnectOptions::default())),
        ("sent", connect(ConnectOptions::default().neighbour(false))),
    ]
}

fn segments(world: &World) -> Vec<PathBuf> {
    let list = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = list(world.dir.path().join("host")).flat_map(list);
    files.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).collect()
}

pub(crate) fn device(seed: u64) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, ..StandInOptions::default() })
}

pub(crate) fn failing(seed: u64, copy: usize) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, faults: vec![copy], ..StandInOptions::default() })
}

pub(crate) fn values(seed: u32, count: usize) -> Vec<f32> {
    let value = |at: usize| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as f32 / 1e6 - 2000.0;
    (0..count).map(value).collect()
}

pub(crate) fn loaded<D: Device>(device: &D, values: &[f32]) -> D::Buffer {
    let mut buffer = device.allocate(values.len());
    device.upload(values, &mut buffer, 0);
    buffer
}

pub(crate) fn read<D: Device>(device: &D, buffer: &D::Buffer) -> Vec<f32> {
    let mut values = vec![0.0; device.length(buffer)];
    device.download(buffer, 0, &mut values);
    values
}

pub(crate) fn set(
    tier: &DeviceTier<StandInDevice>,
    key: &str,
    buffer: &StandInBuffer,
    length: usize,
) -> Result<u64, DeviceTierError> {
    tier.set(key, Expected::Any, &one(length), &[DevicePart::of("weights", buffer)])
}

pub(crate) fn get(
    tier: &DeviceTier<StandInDevice>,
    key: &str,
    buffer: &mut StandInBuffer,
) -> Result<u64, DeviceTierError> {
    tier.get(key, Which::Latest, &mut [DevicePartMut::of("weights", buffer)])
}

/// So many values out as `solver`, and what is newest of `verifier` in.
pub(crate) fn exchange(
    tier: &DeviceTier<StandInDevice>,
    length: usize,
    buffer: &mut StandInBuffer,
) -> Result<DeviceExchange, DeviceTierError> {
    let (layout, mut parts) = (one(length), [DevicePartMut::of("weights", buffer)]);
    tier.exchange(("solver", Expected::Any, &layout), ("verifier", Which::Latest), &mut parts)
}

/// Memories of the host that a ring asks for: three pieces, and the checksums.
pub(crate) const HOSTS_A_RING: usize = 4;

/// What a ring pins: three pieces of so many chunks, and the checksums of eight.
pub(crate) fn ring_bytes(chunks: usize) -> usize {
    chunks * (3 * OBJECT_CHUNK_BYTES as usize + 8 * 4)
}

pub(crate) fn layout(weights: usize, moments: usize) -> Layout {
    let layout = Layout::builder().tensor("weights", "embed", Dtype::F32, &[weights as u64]).tensor(
        "moments",
        "embed.first",
        Dtype::F32,
        &[moments as u64],
    );
    layout.build().unwrap()
}

/// Sets a state of one device and gets it on another.
fn round(objects: &Objects, seed: u64, (weights, moments): (usize, usize), key: &str) {
    let (left, came) = (device(seed), device(seed + 100));
    let state = [values(1, weights), values(2, moments)];
    let buffers = state.each_ref().map(|values| loaded(&left, values));
    let tier = DeviceTier::new(left, objects.clone()).piece_chunks(1);
    let parts = [DevicePart::of("moments", &buffers[1]), DevicePart::of("weights", &buffers[0])];
    let version = tier.set(key, Expected::Absent, &layout(weights, moments), &parts).unwrap();
    let tier = DeviceTier::new(came.clone(), objects.clone()).piece_chunks(1);
    let [mut first, mut second] = [weights, moments].map(|count| came.allocate(count));
    let mut parts = [DevicePartMut::of("weights", &mut first), DevicePartMut::of("moments", &mut second)];
    assert_eq!(tier.get(key, Which::Latest, &mut parts).unwrap(), version);
    assert_eq!([read(&came, &first), read(&came, &second)], state, "{key}");
}

// FX-62, FX-66, FX-67
#[test]
fn what_left_one_device_is_on_another_bit_by_bit_whatever_the_way_and_the_length() {
    let world = World::new();
    let lengths =
        [(1, 63), (64, 65), (CHUNK - 1, CHUNK), (CHUNK + 1, 3), (4 * CHUNK + 7, CHUNK), (5 * CHUNK, 1)];
    for (way, objects) in ways(&world) {
        for (number, lengths) in lengths.into_iter().enumerate() {
            round(&objects, number as u64 % SEEDS, lengths, &format!("{way}.{number}"));
        }
    }
}

#[test]
fn parts_may_lie_anywhere_in_larger_buffers() {
    let world = World::new();
    let device = device(3);
    let tier = DeviceTier::new(device.clone(), world.embedded());
    let all = values(5, 300);
    let buffer = loaded(&device, &all);
    let parts = [DevicePart::of("weights", &buffer).from(10), DevicePart::of("moments", &buffer).from(200)];
    tier.set("solver", Expected::Absent, &layout(100, 50), &parts).unwrap();
    let mut target = device.allocate(400);
    let mut other = device.allocate(60);
    let mut parts =
        [DevicePartMut::of("weights", &mut target).from(300), DevicePartMut::of("moments", &mut other)];
    tier.get("solver", Which::Latest, &mut parts).unwrap();
    let (target, other) = (read(&device, &target), read(&device, &other));
    assert_eq!((&target[300..], &other[..50]), (&all[10..110], &all[200..250]));
    assert!(target[..300].iter().chain(&other[50..]).all(|value| *value == 0.0), "nothing beside");
}

struct Swap {
    device: StandInDevice,
    tier: DeviceTier<StandInDevice>,
    old: Vec<f32>,
    new: Vec<f32>,
    buffer: StandInBuffer,
}

pub(crate) fn one(count: usize) -> Layout {
    Layout::builder().tensor("weights", "embed", Dtype::F32, &[count as u64]).build().unwrap()
}

impl Swap {
    /// A device that holds one state, and another state as version 1 of `verifier`.
    fn new(device: StandInDevice, objects: &Objects, (old, new): (usize, usize)) -> Self {
        let setter = self::device(50);
        let (old, new) = (values(1, old), values(2, new));
        let buffer = loaded(&setter, &new);
        let tier = DeviceTier::new(setter, objects.clone());
        let parts = [DevicePart::of("weights", &buffer)];
        tier.set("verifier", Expected::Absent, &one(new.len()), &parts).unwrap();
        let mut buffer = device.allocate(old.len().max(new.len()));
        device.upload(&old, &mut buffer, 0);
        let tier = DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1);
        Swap { device, tier, old, new, buffer }
    }

    fn run(&mut self, expected: Expected, which: Which) -> Result<DeviceExchange, DeviceTierError> {
        let layout = one(self.old.len());
        let mut parts = [DevicePartMut::of("weights", &mut self.buffer)];
        self.tier.exchange(("solver", expected, &layout), ("verifier", which), &mut parts)
    }

    fn set_values(&self, objects: &Objects, version: u64) -> Vec<f32> {
        let held = objects.get("solver", Which::Exact(version)).unwrap();
        let bytes = held.tensor("embed").unwrap().to_vec().unwrap();
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    }
}

#[test]
fn an_exchange_sets_the_old_state_and_brings_the_new_one_whichever_is_longer() {
    let world = World::new();
    for (way, objects) in ways(&world) {
        for (seed, lengths) in
            [(4 * CHUNK + 3, 4 * CHUNK + 3), (2 * CHUNK, 5 * CHUNK), (5 * CHUNK, 7)].into_iter().enumerate()
        {
            let mut swap = Swap::new(device(seed as u64), &objects, lengths);
            let done = swap.run(Expected::Any, Which::Latest).unwrap();
            assert_eq!(swap.set_values(&objects, done.set), swap.old, "{way}, {lengths:?}");
            assert_eq!(read(&swap.device, &swap.buffer)[..lengths.1], swap.new, "{way}, {lengths:?}");
            objects.delete("verifier", done.got).unwrap();
        }
    }
}

pub(crate) fn overlap(one: &TraceEntry, other: &TraceEntry) -> bool {
    one.ticks.0 <= other.ticks.1 && other.ticks.0 <= one.ticks.1
}

#[test]
fn both_directions_are_busy_at_once_and_no_piece_comes_before_its_place_is_free() {
    for seed in 0..SEEDS {
        let world = World::new();
        let mut swap = Swap::new(device(seed), &world.embedded(), (8 * CHUNK, 8 * CHUNK));
        swap.run(Expected::Absent, Which::Latest).unwrap();
        let trace = swap.device.trace();
        let (out, back): (Vec<_>, Vec<_>) = trace.iter().partition(|entry| entry.way == CopyWay::ToHost);
        assert_eq!((out.len(), back.len()), (8, 8));
        for came in &back {
            let left = out.iter().find(|left| left.range == came.range).unwrap();
            assert!(left.ticks.1 < came.ticks.0, "seed {seed}: {came:?} before {left:?} was done");
        }
        let beside = back.iter().filter(|came| out.iter().any(|left| overlap(left, came))).count();
        assert!(beside > 0, "seed {seed}: nothing went both ways at once");
    }
}

#[test]
fn later_moves_pin_nothing() {
    let world = World::new();
    let device = device(1);
    let tier = DeviceTier::new(device.clone(), world.embedded());
    assert_eq!(tier.pinned_bytes(), 0);
    let mut buffer = loaded(&device, &values(3, 2 * CHUNK));
    let mut pinned = Vec::new();
    for version in 0..4 {
        let expected = if version == 0 { Expected::Absent } else { Expected::Version(version) };
        let parts = [DevicePart::of("weights", &buffer)];
        tier.set("solver", expected, &one(2 * CHUNK), &parts).unwrap();
        let mut parts = [DevicePartMut::of("weights", &mut buffer)];
        tier.get("solver", Which::Latest, &mut parts).unwrap();
        pinned.push(tier.pinned_bytes());
    }
    assert_eq!(pinned, vec![ring_bytes(4); 4]);
}

/// Each of the first so many copies of so many values fails once, out and in: no version is left, and the next try does.
pub(crate) fn copies_that_fail(
    (way, objects): (&str, &Objects),
    (length, copies): (usize, usize),
    tier: impl Fn(&StandInDevice, &Objects) -> DeviceTier<StandInDevice>,
) {
    let all = values(7, length);
    for copy in 0..copies {
        let device = failing(copy as u64, copy);
        let (out, key, buffer) = (tier(&device, objects), format!("{way}.{copy}"), loaded(&device, &all));
        assert!(matches!(set(&out, &key, &buffer, length), Err(DeviceTierError::Device(_))), "{key}");
        assert!(objects.get(&key, Which::Latest).is_err(), "{key}");
        assert_eq!(set(&out, &key, &buffer, length).unwrap(), 1);

        let device = failing(copy as u64, copy);
        let (back, mut target) = (tier(&device, objects), device.allocate(length));
        assert!(matches!(get(&back, &key, &mut target), Err(DeviceTierError::Device(_))), "{key}");
        get(&back, &key, &mut target).unwrap();
        assert!(read(&device, &target) == all, "{key}");
        objects.delete(&key, 1).unwrap();
    }
}

// FX-66, FX-69
#[test]
fn a_copy_that_fails_leaves_no_version_and_the_next_try_does() {
    let world = World::new();
    copies_that_fail(("embedded", &world.embedded()), (4 * CHUNK + 1, 5), |device, objects| {
        DeviceTier::new(device.clone(), objects.clone()).piece_chunks(1)
    });
}

// FX-69
#[test]
fn an_exchange_whose_copy_fails_has_set_the_old_state_or_says_that_it_is_lost() {
    let world = World::new();
    let objects = world.embedded();
    let (mut set, mut lost) = (0, 0);
    for copy in 0..10 {
        let mut swap = Swap::new(failing(copy as u64, copy), &objects, (5 * CHUNK, 5 * CHUNK));
        match swap.run(Expected::Any, Which::Latest).unwrap_err() {
            DeviceTierError::Exchanged { set: version, .. } => {
                assert!(swap.set_values(&objects, version) == swap.old, "copy {copy}");
                objects.delete("solver", version).unwrap();
                set += 1;
            }
            DeviceTierError::Overwritten { .. } | DeviceTierError::Device(_) => {
                assert!(objects.get("solver", Which::Latest).is_err(), "copy {copy}: half of a state");
                lost += 1;
            }
            other => panic!("copy {copy}: {other:?}"),
        }
        let mut parts = [DevicePartMut::of("weights", &mut swap.buffer)];
        let got = swap.tier.get("verifier", Which::Latest, &mut parts).unwrap();
        assert!(read(&swap.device, &swap.buffer) == swap.new, "copy {copy}: the device goes on");
        assert!(objects.delete("verifier", got).unwrap());
    }
    assert_eq!((set, lost), (5, 5), "five copies each way");
}

#[test]
fn pieces_may_change_between_moves_and_tensors_may_be_empty() {
    let world = World::new();
    let device = device(5);
    let layout = Layout::builder()
        .tensor("weights", "embed", Dtype::F32, &[CHUNK as u64 + 10])
        .tensor("weights", "none", Dtype::F32, &[0])
        .build()
        .unwrap();
    let all = values(6, CHUNK + 10);
    let buffer = loaded(&device, &all);
    let mut tier = DeviceTier::new(device.clone(), world.embedded());
    for chunks in [1, 4, 2] {
        tier = tier.piece_chunks(chunks);
        tier.set("solver", Expected::Any, &layout, &[DevicePart::of("weights", &buffer)]).unwrap();
        let mut target = device.allocate(all.len());
        tier.get("solver", Which::Latest, &mut [DevicePartMut::of("weights", &mut target)]).unwrap();
        assert!(read(&device, &target) == all, "{chunks} chunks");
        assert_eq!(tier.pinned_bytes(), ring_bytes(chunks));
    }
}

/// Changes one byte of an object where it lies in the host tier.
pub(crate) fn damage(world: &World, state: &[f32], at: usize) {
    let meant: Vec<u8> = state[at..at + 64].iter().flat_map(|value| value.to_le_bytes()).collect();
    let done = segments(world).into_iter().find_map(|segment| {
        let content = fs::read(&segment).unwrap();
        let place = content.windows(meant.len()).position(|window| window == meant)?;
        let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
        file.write_all_at(&[content[place] ^ 4], place as u64).unwrap();
        Some(())
    });
    done.expect("it lies in a segment");
}

// FX-69
#[test]
fn a_byte_that_changed_in_host_memory_never_reaches_the_device_unnoticed() {
    let world = World::new();
    let (_, neighbour) = ways(&world).into_iter().nth(1).unwrap();
    for objects in [world.embedded(), neighbour] {
        let mut swap = Swap::new(device(2), &objects, (4 * CHUNK, 4 * CHUNK));
        damage(&world, &swap.new, 2 * CHUNK + 500);
        let mut target = swap.device.allocate(4 * CHUNK);
        let got = swap.tier.get("verifier", Which::Latest, &mut [DevicePartMut::of("weights", &mut target)]);
        let Err(DeviceTierError::Damaged { reason }) = got else { panic!("{got:?}") };
        assert!(reason.contains("chunk 2 of \"weights\""), "{reason}");
        // In an exchange the old state is not lost for it.
        let error = swap.run(Expected::Any, Which::Latest).unwrap_err();
        let DeviceTierError::Exchanged { set, .. } = error else { panic!("{error:?}") };
        assert_eq!(swap.set_values(&objects, set), swap.old);
        objects.delete("verifier", 1).unwrap();
    }
}

#[test]
fn an_old_state_that_meets_a_conflict_is_kept_and_may_be_committed() {
    let world = World::new();
    let objects = world.embedded();
    let mut swap = Swap::new(device(4), &objects, (2 * CHUNK, 2 * CHUNK));
    let refused = swap.run(Expected::Version(1), Which::Latest).unwrap_err();
    assert!(matches!(refused, DeviceTierError::Objects(_)), "{refused:?}");
    assert_eq!(read(&swap.device, &swap.buffer), swap.old, "nothing was moved");

    // While the exchange waits for a new state, somebody else sets the key of the old one.
    let taken = || world.store.objects().unwrap().stats().host_bytes_taken;
    let before = taken();
    let error = std::thread::scope(|scope| {
        let patience = Wait::For(std::time::Duration::from_secs(60));
        let swap = &mut swap;
        let exchange = scope.spawn(move || swap.run(Expected::Absent, Which::AtLeast(2, patience)));
        while taken() == before {
            std::thread::yield_now(); // until its filling has begun
        }
        let bytes = [0; 4];
        let other =
            TensorBytes { class: "weights", name: "embed", dtype: Dtype::F32, shape: &[1], bytes: &bytes };
        objects.set("solver", &[other]).unwrap();
        let new: Vec<u8> = values(9, 2 * CHUNK).iter().flat_map(|value| value.to_le_bytes()).collect();
        let shape = [2 * CHUNK as u64];
        let newer =
            TensorBytes { class: "weights", name: "embed", dtype: Dtype::F32, shape: &shape, bytes: &new };
        objects.set("verifier", &[newer]).unwrap();
        exchange.join().unwrap().unwrap_err()
    });
    assert!(error.to_string().contains("commit the filling"), "{error}");
    let DeviceTierError::Uncommitted { mut filling, got, .. } = error else { panic!("{error:?}") };
    assert_eq!(got.unwrap(), 2);
    assert_eq!(read(&swap.device, &swap.buffer), values(9, 2 * CHUNK), "the new state is on the device");
    filling.expect(Expected::Version(1));
    let version = filling.commit().unwrap();
    assert_eq!(swap.set_values(&objects, version), swap.old);
}

#[test]
fn parts_that_do_not_fit_are_refused_before_anything_moves() {
    let world = World::new();
    let device = device(1);
    let tier = DeviceTier::new(device.clone(), world.embedded());
    let (short, long) = (device.allocate(10), device.allocate(1000));
    let brain = Layout::builder().tensor("weights", "embed", Dtype::Bf16, &[4]).build().unwrap();
    let both = layout(100, 50);
    let weights = || DevicePart::of("weights", &long);
    let cases: [(&Layout, Vec<DevicePart<'_, StandInDevice>>, &str); 5] = [
        (&both, vec![weights()], "\"moments\": has no part"),
        (&both, vec![weights(), weights()], "named twice"),
        (
            &both,
            vec![weights(), DevicePart::of("moments", &short)],
            "50 values from 0 on do not lie in a buffer of 10",
        ),
        (&both, vec![weights().from(901)], "100 values from 901 on do not lie in a buffer of 1000"),
        (&brain, vec![weights()], "\"embed\" is Bf16"),
    ];
    for (layout, parts, expected) in cases {
        let error = tier.set("solver", Expected::Absent, layout, &parts).unwrap_err();
        assert!(matches!(error, DeviceTierError::Part { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let unknown = [weights(), DevicePart::of("moment", &long)];
    let error = tier.set("solver", Expected::Absent, &both, &unknown).unwrap_err().to_string();
    assert!(error.contains("moments"), "the nearest name: {error}");
    assert!(device.trace().is_empty() && world.embedded().list().unwrap().is_empty());
}
