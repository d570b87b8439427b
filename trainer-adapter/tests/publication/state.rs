//! States whose every value says which version it is of, and short ways to publish and get them.

use std::path::Path;

use forebay_trainer_adapter::device::stand_in::StandInBuffer;
use forebay_trainer_adapter::device::{Share, StandInDevice, StandInOptions};
use forebay_trainer_adapter::publication::*;
use forebay_trainer_adapter::{Copies, Device};

/// What the layout of these states has for a fingerprint.
pub(crate) const LAYOUT: u64 = 0xA11CE;
/// Values of the two memory classes.
pub(crate) const LENGTHS: [usize; 2] = [1000, 333];
pub(crate) const CLASSES: [&str; 2] = ["weights", "moments"];

pub(crate) fn device(seed: u64) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, ..StandInOptions::default() })
}

pub(crate) fn failing(seed: u64, copy: usize) -> StandInDevice {
    StandInDevice::new(StandInOptions { seed, faults: vec![copy], ..StandInOptions::default() })
}

/// The values of a class of a version.
pub(crate) fn values(version: u64, class: usize, length: usize) -> Vec<f32> {
    let seed = (version as u32).wrapping_mul(0x9E37_79B9).wrapping_add(class as u32);
    let value = |at: usize| (at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) as f32 / 1e6 - 2000.0;
    (0..length).map(value).collect()
}

pub(crate) fn loaded(device: &StandInDevice, values: &[f32]) -> StandInBuffer {
    let mut buffer = device.allocate(values.len());
    device.upload(values, &mut buffer, 0);
    buffer
}

/// The same in memory that can be shared.
pub(crate) fn shared(device: &StandInDevice, values: &[f32]) -> StandInBuffer {
    let mut buffer = device.allocate_shared(values.len()).unwrap();
    device.upload(values, &mut buffer, 0);
    buffer
}

pub(crate) fn read<D: Copies>(device: &D, buffer: &D::Buffer) -> Vec<f32> {
    let mut values = vec![0.0; device.length(buffer)];
    device.download(buffer, 0, &mut values);
    values
}

pub(crate) fn part<'a>(
    class: &'a str,
    buffer: &'a StandInBuffer,
    values: usize,
) -> PublishedPart<'a, StandInDevice> {
    PublishedPart { class, buffer, offset: 0, values }
}

pub(crate) fn publisher(device: &StandInDevice, folder: &Path) -> Publisher<StandInDevice> {
    Publisher::open(device.clone(), folder, PublisherOptions::default()).unwrap()
}

pub(crate) fn reader(device: &StandInDevice, folder: &Path) -> Reader<StandInDevice> {
    Reader::open(device.clone(), folder, ReaderOptions::default()).unwrap()
}

/// Publishes a version of the usual lengths.
pub(crate) fn publish(
    publisher: &Publisher<StandInDevice>,
    device: &StandInDevice,
    version: u64,
) -> Result<(), PublicationError> {
    publish_of(publisher, device, version, LENGTHS)
}

pub(crate) fn publish_of(
    publisher: &Publisher<StandInDevice>,
    device: &StandInDevice,
    version: u64,
    lengths: [usize; 2],
) -> Result<(), PublicationError> {
    let mut buffers = [0, 1].map(|class| loaded(device, &values(version, class, lengths[class])));
    let parts: Vec<_> = (0..2).map(|class| part(CLASSES[class], &buffers[class], lengths[class])).collect();
    let published = publisher.publish("solver", version, LAYOUT, &parts);
    // The optimiser steps at once.
    buffers.iter_mut().zip(lengths).for_each(|(buffer, length)| device.clear(buffer, 0, length));
    published
}

/// Checks every value of what was got. Gives its version.
pub(crate) fn checked(device: &StandInDevice, got: &Got<StandInBuffer>) -> u64 {
    let version = got.stamp.version;
    for (class, (name, buffer)) in got.parts.iter().enumerate() {
        assert_eq!(name, CLASSES[class]);
        let found = read(device, buffer);
        assert!(found == values(version, class, found.len()), "{name} of version {version} is mixed");
    }
    assert_eq!(got.parts.len(), 2);
    version
}

/// Gets the newest version and checks every value of it.
pub(crate) fn latest(
    reader: &Reader<StandInDevice>,
    device: &StandInDevice,
) -> Result<u64, PublicationError> {
    reader.get(&Wanted::latest("solver")).map(|got| checked(device, &got))
}
