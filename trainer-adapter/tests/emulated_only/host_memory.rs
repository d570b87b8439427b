//! Pinned memory that cannot be had: who asks is told, and the device goes on.

use forebay_trainer_adapter::device::crc32c;
use forebay_trainer_adapter::device::cuda::{CudaError, CudaLibraries, CudaOptions};
use forebay_trainer_adapter::{Copies, CudaDevice, Device, Error, ErrorKind};

use super::failures::{apart, break_first};
use crate::operations::{buffer, random};

const PLENTY: usize = 64 << 30;

pub(super) fn opened(libraries: &CudaLibraries) -> CudaDevice {
    CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap()
}

#[allow(unsafe_code, reason = "calls of the emulation")]
fn set_longest_pinned(libraries: &CudaLibraries, bytes: usize) {
    // SAFETY: the emulation's own function, with its type; the library is open for good.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let longest = library.get::<unsafe extern "C" fn(usize) -> i32>("emulation_longest_pinned").unwrap();
        assert_eq!(longest(bytes), 0);
        std::mem::forget(library);
    }
}

#[test]
fn host_memory_that_cannot_be_had_is_told_and_the_device_goes_on() {
    let libraries = apart("host-memory");
    let device = opened(&libraries);
    set_longest_pinned(&libraries, 399);
    let refused = device.allocate_host(100).map(drop).unwrap_err();
    let Error::HostMemory { values: 100, reason } = &refused else { panic!("{refused}") };
    assert!(reason.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::State);
    let most = device.allocate_host(usize::MAX).map(drop);
    assert!(matches!(most, Err(Error::HostMemory { values: usize::MAX, .. })), "{most:?}");
    assert_eq!(device.check(), Ok(()));
    assert_eq!(device.allocate_host(99).map(|host| device.host_length(&host)), Ok(99));
    assert_eq!(device.allocate_host(0).map(|host| device.host_length(&host)), Ok(0));

    set_longest_pinned(&libraries, PLENTY);
    let mut host = device.allocate_host(100).unwrap();
    device.write_host(&random(1, 100), &mut host, 0);
    let mut values = vec![0.0; 100];
    device.read_host(&host, 0, &mut values);
    assert_eq!(values, random(1, 100));
}

/// That a device has failed is not taken for a want of memory, whoever meets it first.
#[test]
fn host_memory_of_a_device_that_has_failed_is_refused_as_the_devices_failure() {
    let libraries = apart("host-memory-broken");
    let device = opened(&libraries);
    break_first(&libraries);
    assert_eq!(device.check(), Ok(()), "nobody has met it yet");
    for _ in 0..2 {
        let refused = device.allocate_host(9).map(drop);
        assert!(matches!(refused, Err(Error::Device(CudaError::Call { code: 700, .. }))), "{refused:?}");
    }
    assert!(device.check().is_err());
}

#[test]
fn sums_without_host_memory_are_refused_and_those_that_were_prepared_need_no_more() {
    let libraries = apart("sums-prepared");
    let device = opened(&libraries);
    let (source, stream) = (buffer(&device, 1, 5000), device.stream().unwrap());
    device.stream_after(&stream, &device.computed());
    let mut host = device.allocate_host(5).unwrap();
    set_longest_pinned(&libraries, 0);
    let is_refused = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::HostMemory { .. })), "{outcome:?}");
        assert_eq!(device.check(), Ok(()));
    };
    is_refused(device.prepare_sums(&stream, 5));
    let event = device.sum_up_async(&stream, &source, (0..5000, 1000), &mut host, 0);
    is_refused(device.wait(&event));
    is_refused(device.is_done(&event).map(drop));
    is_refused(device.compute_after(&event));

    set_longest_pinned(&libraries, PLENTY);
    device.prepare_sums(&stream, 5).unwrap();
    set_longest_pinned(&libraries, 0);
    let event = device.sum_up_async(&stream, &source, (0..5000, 1000), &mut host, 0);
    device.wait(&event).unwrap();
    let mut sums = [0.0; 5];
    device.read_host(&host, 0, &mut sums);
    let expected = random(1, 5000);
    assert!(sums.into_iter().map(f32::to_bits).eq(expected.chunks(1000).map(crc32c)));
    assert_eq!(device.check(), Ok(()));
}
