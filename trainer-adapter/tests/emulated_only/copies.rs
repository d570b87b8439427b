//! Copies over streams that do nothing before they have to.

use forebay_trainer_adapter::device::cuda::ProductType;
use forebay_trainer_adapter::device::{CopyRange, Exchanged, exchange};
use forebay_trainer_adapter::{Copies, CudaDevice, Device};

use crate::emulation::emulated;
use crate::operations::{buffer, random};
use crate::pinned;

fn host(device: &CudaDevice, values: &[f32]) -> <CudaDevice as Copies>::Host {
    let mut host = device.allocate_host(values.len()).unwrap();
    device.write_host(values, &mut host, 0);
    host
}

fn host_values(device: &CudaDevice, host: &<CudaDevice as Copies>::Host, length: usize) -> Vec<f32> {
    let mut values = vec![0.0; length];
    device.read_host(host, 0, &mut values);
    values
}

/// FX-58: old values out, new values in, in chunks that divide the length and in chunks that do not.
#[test]
fn an_exchange_moves_every_value() {
    let device = emulated(ProductType::Float32);
    for chunk_values in [1, 7, 50, 1000] {
        let mut one = buffer(&device, 1, 100);
        let (incoming, mut outgoing) = (host(&device, &random(2, 100)), device.allocate_host(100).unwrap());
        let part = Exchanged { buffer: &mut one, outgoing: &mut outgoing, incoming: &incoming, length: 100 };
        exchange(&device, &mut [part], chunk_values).unwrap();
        let mut now = vec![0.0; 100];
        device.download(&one, 0, &mut now);
        assert_eq!(now, random(2, 100));
        assert_eq!(host_values(&device, &outgoing, 100), random(1, 100));
        assert_eq!(host_values(&device, &incoming, 100), random(2, 100));
    }
}

/// Queued copies are not done until somebody waits or asks; both ends may be dropped meanwhile.
#[test]
fn copies_are_late_and_keep_the_memory_that_they_use() {
    let device = emulated(ProductType::Float32);
    let (stream, range) =
        (device.stream().unwrap(), CopyRange { device_offset: 3, host_offset: 1, length: 90 });
    let (one, mut out) = (buffer(&device, 1, 100), device.allocate_host(100).unwrap());
    let left = device.copy_to_host_async(&stream, &one, &mut out, range);
    assert_eq!(host_values(&device, &out, 100), [0.0; 100], "the emulation is as late as it may be");
    drop(one);
    let mut polls = 0;
    while !device.is_done(&left).unwrap() {
        polls += 1;
    }
    assert!(polls > 0);
    assert_eq!(host_values(&device, &out, 100)[1..91], random(1, 100)[3..93]);
    let dropped = device.copy_to_device_async(&stream, &out, &mut device.allocate(100), range);
    drop((out, stream));
    device.wait(&dropped).unwrap();
    let (one, mut out, stream) =
        (buffer(&device, 1, 100), device.allocate_host(100).unwrap(), device.stream().unwrap());
    let _ = device.copy_to_host_async(&stream, &one, &mut out, range);
    drop((one, out, stream, device));
}

/// Arithmetic that was given before comes before a copy, and what is given after an event comes after it.
#[test]
fn arithmetic_and_copies_are_ordered_by_events() {
    let device = emulated(ProductType::Float32);
    let whole = CopyRange { device_offset: 0, host_offset: 0, length: 50 };
    let (source, mut sum) = (buffer(&device, 1, 50), buffer(&device, 2, 50));
    let mut out = device.allocate_host(50).unwrap();
    device.accumulate(&source, &mut sum);
    let (stream, computed) = (device.stream().unwrap(), device.computed());
    device.stream_after(&stream, &computed);
    let left = device.copy_to_host_async(&stream, &sum, &mut out, whole);
    device.wait(&left).unwrap();
    let expected: Vec<f32> = random(1, 50).iter().zip(random(2, 50)).map(|(a, b)| a + b).collect();
    assert_eq!(host_values(&device, &out, 50), expected);
    let came = device.copy_to_device_async(&stream, &host(&device, &random(3, 50)), &mut sum, whole);
    device.compute_after(&came).unwrap();
    device.accumulate(&source, &mut sum);
    let mut now = vec![0.0; 50];
    device.download(&sum, 0, &mut now);
    let expected: Vec<f32> = random(3, 50).iter().zip(random(1, 50)).map(|(a, b)| a + b).collect();
    assert_eq!(now, expected);
}

/// FX-66: the driver pins a mapping where it lies; what it refuses leaves the device as it was.
#[test]
fn copies_go_to_and_from_memory_that_others_have_mapped() {
    let device = emulated(ProductType::Float32);
    pinned::values_go_out_and_in(&device);
    let mapped = pinned::Mapped::new(100);
    let kept = device.pin(mapped.foreign(true)).unwrap();
    let twice = pinned::is_refused(&device, mapped.foreign(true));
    assert!(twice.contains("cuMemHostRegister") && twice.contains("712"), "{twice}");
    drop(kept);
    let read_alone = pinned::is_refused(&device, mapped.foreign(false));
    assert!(read_alone.contains("801"), "{read_alone}");
    device.check().unwrap();
    pinned::values_go_out_and_in(&device);
}

/// FX-69
#[test]
fn sums_of_the_emulations_memory_are_those_of_the_definition() {
    crate::summed::sums_are_those_of_the_definition(&crate::device(1));
}
