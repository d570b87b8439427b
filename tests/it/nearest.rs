//! One get for a version on a device of the node, in the store's memory, on its disk, or behind a server.

use std::path::PathBuf;
use std::time::Duration;

use forebay::store::*;
use forebay::trainer::device::stand_in::{CopyWay, StandInBuffer};
use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
use forebay::trainer::publication::{PublicationError, Publisher, PublisherOptions, Reader, ReaderOptions};
use forebay::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError, GotFrom, Nearest};

use crate::support::World;

const COUNT: usize = 70_000;

fn device(seed: u64) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, ..StandInOptions::default() })
}

fn layout(count: usize) -> Layout {
    Layout::builder().tensor("weights", "embed", Dtype::F32, &[count as u64]).build().unwrap()
}

fn values(version: u64) -> Vec<f32> {
    (0..COUNT).map(|at| (at as u64 * 31 + version * 7919) as f32 / 3.0).collect()
}

/// A trainer that sets and publishes, and an instance that gets.
struct Pair {
    world: World,
    ours: StandInDevice,
    trainer: DeviceTier<StandInDevice>,
    publisher: Publisher<StandInDevice>,
    theirs: StandInDevice,
    instance: DeviceTier<StandInDevice>,
    reader: Reader<StandInDevice>,
}

impl Pair {
    fn new(instance_way: impl Fn(&World) -> forebay::client::Objects) -> Self {
        let world = World::new();
        let (ours, theirs, folder) = (device(1), device(2), world.dir.path().join("published"));
        let trainer = DeviceTier::new(ours.clone(), world.embedded());
        let instance = DeviceTier::new(theirs.clone(), instance_way(&world));
        let publisher = Publisher::open(ours.clone(), &folder, PublisherOptions::default()).unwrap();
        let reader = Reader::open(theirs.clone(), &folder, ReaderOptions::default()).unwrap();
        Pair { world, ours, trainer, publisher, theirs, instance, reader }
    }

    fn loaded(&self, version: u64) -> StandInBuffer {
        let mut buffer = self.ours.allocate(COUNT);
        self.ours.upload(&values(version), &mut buffer, 0);
        buffer
    }

    fn set(&self, version: u64) {
        let buffer = self.loaded(version);
        let parts = [DevicePart::of("weights", &buffer)];
        assert_eq!(self.trainer.set("solver", Expected::Any, &layout(COUNT), &parts).unwrap(), version);
    }

    fn publish(&self, version: u64) {
        let buffer = self.loaded(version);
        let parts = [DevicePart::of("weights", &buffer)];
        self.trainer.publish(&self.publisher, ("solver", version), &layout(COUNT), &parts).unwrap();
    }

    /// Gets, and checks every value.
    fn get(&self, which: Which) -> Result<Nearest, DeviceTierError> {
        let mut target = self.theirs.allocate(COUNT);
        let mut parts = [DevicePartMut::of("weights", &mut target)];
        let got = self.instance.get_nearest(&self.reader, "solver", which, &layout(COUNT), &mut parts)?;
        let mut found = vec![0.0; COUNT];
        self.theirs.download(&target, 0, &mut found);
        assert!(found == values(got.version), "version {}", got.version);
        Ok(got)
    }

    fn is_from_device(&self, which: Which, version: u64) {
        let got = self.get(which).unwrap();
        assert!(matches!(&got.from, GotFrom::Device(stamp) if stamp.version == version), "{got:?}");
    }

    fn is_from_store(&self, which: Which, version: u64) -> PublicationError {
        let got = self.get(which).unwrap();
        assert_eq!(got.version, version);
        let GotFrom::Store(instead) = got.from else { panic!("{got:?}") };
        instead
    }
}

// FX-62, FX-65
#[test]
fn one_get_brings_a_version_from_the_device_that_has_it_or_from_the_store() {
    let connect = |world: &World| {
        let client = forebay::client::Client::connect(&world.address(), &Default::default());
        client.unwrap().objects()
    };
    let ways: [&dyn Fn(&World) -> forebay::client::Objects; 2] = [&World::embedded, &connect];
    for way in ways {
        let pair = Pair::new(way);
        pair.set(1);
        let instead = pair.is_from_store(Which::Latest, 1);
        assert!(matches!(instead, PublicationError::NotPublished { .. }), "{instead}");
        pair.set(2);
        pair.publish(2);
        pair.is_from_device(Which::Latest, 2);
        pair.is_from_device(Which::Exact(2), 2);
        pair.is_from_device(Which::AtLeast(1, Wait::Forever), 2);
        let trace = pair.theirs.trace();
        let on_device = trace.iter().filter(|copy| copy.way == CopyWay::OnDevice);
        assert_eq!((on_device.count(), trace.len()), (3, 4), "one way through the host, three without");

        // What the device has not, or not any more, is the store's: in memory and on the disk.
        let instead = pair.is_from_store(Which::Exact(1), 1);
        assert!(matches!(instead, PublicationError::NoVersion { newest: Some(2), .. }), "{instead}");
        pair.set(3);
        let instead = pair.is_from_store(Which::Latest, 3);
        assert!(instead.to_string().contains("no version 3 or later"), "{instead}");
        pair.world.embedded().demote("solver", Which::Exact(3)).unwrap();
        pair.is_from_store(Which::AtLeast(3, Wait::No), 3);
        pair.publish(4);
        pair.is_from_device(Which::Latest, 4);
        drop(pair.publisher);
    }
}

// FX-62, FX-69
#[test]
fn a_publisher_that_is_gone_costs_no_version_that_the_store_has() {
    let pair = Pair::new(World::embedded);
    pair.set(1);
    pair.publish(1);
    pair.is_from_device(Which::Latest, 1);
    let Pair { world, trainer, publisher, theirs, instance, reader, ours } = pair;
    drop(publisher);
    let folder: PathBuf = world.dir.path().join("published");
    let publisher = Publisher::open(ours.clone(), folder, PublisherOptions::default()).unwrap();
    let pair = Pair { world, ours, trainer, publisher, theirs, instance, reader };
    let instead = pair.is_from_store(Which::Latest, 1);
    assert!(matches!(instead, PublicationError::NotPublished { .. }), "{instead}");
    let wait = Wait::For(Duration::from_millis(1));
    let error = pair.get(Which::AtLeast(5, wait)).unwrap_err();
    let DeviceTierError::Nowhere { device, .. } = &error else { panic!("{error}") };
    assert!(matches!(**device, PublicationError::NotPublished { .. }), "{error}");
    assert!(error.to_string().contains("and from the store"), "{error}");
}

#[test]
fn a_version_of_another_layout_comes_from_nowhere_and_wrong_parts_are_refused_first() {
    let pair = Pair::new(World::embedded);
    pair.publish(1);
    let mut target = pair.theirs.allocate(COUNT + 1);
    let other = layout(COUNT + 1);
    let mut parts = [DevicePartMut::of("weights", &mut target)];
    let got = pair.instance.get_nearest(&pair.reader, "solver", Which::Latest, &other, &mut parts);
    let error = got.unwrap_err();
    assert!(matches!(&error, DeviceTierError::Publication(PublicationError::OtherLayout { .. })), "{error}");
    let mut short = pair.theirs.allocate(5);
    let mut parts = [DevicePartMut::of("weights", &mut short)];
    let got = pair.instance.get_nearest(&pair.reader, "solver", Which::Latest, &layout(COUNT), &mut parts);
    assert!(matches!(got, Err(DeviceTierError::Part { .. })));
    assert!(pair.theirs.trace().is_empty());
}
