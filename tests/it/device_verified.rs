//! Bytes that lie on a device, held against the checksums of the version that they are.

use forebay::client::{Client, ConnectOptions};
use forebay::store::*;
use forebay::trainer::device::stand_in::StandInBuffer;
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError};

use crate::support::World;

const CHUNK: usize = OBJECT_CHUNK_BYTES as usize / 4;
/// No chunk divides them, and both are filled up at their end.
const WEIGHTS: usize = 3 * CHUNK + 77;
const MOMENTS: usize = CHUNK - 3;

fn layout() -> Layout {
    let layout = Layout::builder().tensor("weights", "embed", Dtype::F32, &[WEIGHTS as u64]);
    layout.tensor("moments", "embed.first", Dtype::F32, &[MOMENTS as u64]).build().unwrap()
}

fn values(seed: u32, count: usize) -> Vec<f32> {
    (0..count).map(|at| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as f32 / 1e6).collect()
}

struct Placed {
    device: StandInDevice,
    tier: DeviceTier<StandInDevice>,
    weights: StandInBuffer,
    moments: StandInBuffer,
}

impl Placed {
    /// A state that came onto a device from version 1 of `solver`.
    fn new(objects: forebay::client::Objects, options: StandInOptions) -> Self {
        let device = StandInDevice::new(options);
        let tier = DeviceTier::new(device.clone(), objects).piece_chunks(1);
        let (mut weights, mut moments) = (device.allocate(WEIGHTS), device.allocate(MOMENTS + 5));
        device.upload(&values(1, WEIGHTS), &mut weights, 0);
        device.upload(&values(2, MOMENTS), &mut moments, 5);
        let parts = [DevicePart::of("weights", &weights), DevicePart::of("moments", &moments).from(5)];
        tier.set("solver", Expected::Absent, &layout(), &parts).unwrap();
        let mut parts =
            [DevicePartMut::of("weights", &mut weights), DevicePartMut::of("moments", &mut moments).from(5)];
        tier.get("solver", Which::Latest, &mut parts).unwrap();
        Placed { device, tier, weights, moments }
    }

    fn verify(&self, which: Which) -> Result<u64, DeviceTierError> {
        let parts =
            [DevicePart::of("moments", &self.moments).from(5), DevicePart::of("weights", &self.weights)];
        self.tier.verify("solver", which, &parts)
    }

    /// Writes one value on the device, as arithmetic does. Gives what was there.
    fn put(&mut self, class: &str, at: usize, value: f32) -> f32 {
        let (buffer, at) = match class {
            "weights" => (&mut self.weights, at),
            _ => (&mut self.moments, at + 5),
        };
        let mut there = [0.0];
        self.device.download(buffer, at, &mut there);
        self.device.upload(&[value], buffer, at);
        there[0]
    }
}

// FX-69: flip a value on a device and the checksum says so, on every way to the object
#[test]
fn a_value_that_changed_on_the_device_is_told_with_its_chunk() {
    for is_sent in [false, true] {
        let world = World::new();
        let connect =
            || Client::connect(&world.address(), &ConnectOptions::default().neighbour(false)).unwrap();
        let objects = if is_sent { connect().objects() } else { world.embedded() };
        let mut placed = Placed::new(objects.clone(), StandInOptions::default());
        assert_eq!(placed.verify(Which::Latest).unwrap(), 1);
        let places = [
            ("weights", 0, 0),
            ("weights", CHUNK - 1, 0),
            ("weights", CHUNK, 1),
            ("weights", WEIGHTS - 1, 3),
            ("moments", MOMENTS - 1, 0),
        ];
        for (class, at, chunk) in places {
            let value = placed.put(class, at, 0.0);
            placed.put(class, at, f32::from_bits(value.to_bits() ^ 1)); // one bit
            let error = placed.verify(Which::Latest).unwrap_err();
            let DeviceTierError::Damaged { reason } = &error else { panic!("{class} {at}: {error:?}") };
            assert!(reason.contains(&format!("chunk {chunk} of {class:?}")), "{class} {at}: {reason}");
            assert!(reason.contains("on the device"), "{reason}");
            placed.put(class, at, value);
            assert_eq!(placed.verify(Which::Latest).unwrap(), 1, "{class} {at}: put right again");
        }
        // Beside the parts anything may stand.
        placed.device.upload(&[9.0; 5], &mut placed.moments, 0);
        assert_eq!(placed.verify(Which::Exact(1)).unwrap(), 1);
        objects.demote("solver", Which::Exact(1)).unwrap();
        assert_eq!(placed.verify(Which::Exact(1)).unwrap(), 1, "its file says the same");
    }
}

#[test]
fn another_version_and_parts_that_do_not_fit_are_refused_and_a_failed_copy_is_no_damage() {
    let world = World::new();
    let objects = world.embedded();
    let mut placed = Placed::new(objects, StandInOptions::default());
    placed.put("weights", 17, 1e9);
    let parts =
        [DevicePart::of("weights", &placed.weights), DevicePart::of("moments", &placed.moments).from(5)];
    assert_eq!(placed.tier.set("solver", Expected::Version(1), &layout(), &parts).unwrap(), 2);
    assert_eq!(placed.verify(Which::Latest).unwrap(), 2);
    assert!(matches!(placed.verify(Which::Exact(1)), Err(DeviceTierError::Damaged { .. })));
    assert!(matches!(placed.verify(Which::Exact(9)), Err(DeviceTierError::Objects(_))));
    let half = placed.tier.verify("solver", Which::Latest, &[DevicePart::of("weights", &placed.weights)]);
    assert!(matches!(half, Err(DeviceTierError::Part { .. })), "{half:?}");

    let world = World::new();
    let moves = 5 + 5; // a copy a piece, out and in
    let options = StandInOptions { faults: vec![moves + 2], ..StandInOptions::default() };
    let placed = Placed::new(world.embedded(), options);
    assert!(matches!(placed.verify(Which::Latest), Err(DeviceTierError::Device(_))));
    assert_eq!(placed.verify(Which::Latest).unwrap(), 1, "the next look is one");
}
