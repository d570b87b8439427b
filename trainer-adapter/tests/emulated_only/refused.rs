//! Streams and copies that the driver does not take: who asks is told, and the device goes on.

use std::sync::OnceLock;

use forebay_trainer_adapter::device::CopyRange;
use forebay_trainer_adapter::device::cuda::{CudaError, CudaLibraries};
use forebay_trainer_adapter::{Copies, CudaDevice, Device, Error, ErrorKind};

use super::failures::apart;
use super::host_memory::opened;
use crate::operations::{buffer, random};

#[allow(unsafe_code, reason = "calls of the emulation")]
fn refuse_handles(libraries: &CudaLibraries, count: i32) {
    // SAFETY: the emulation's own function, with its type; the library is open for good.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let refuse = library.get::<unsafe extern "C" fn(i32) -> i32>("emulation_refuse_handles").unwrap();
        assert_eq!(refuse(count), 0);
        std::mem::forget(library);
    }
}

#[allow(unsafe_code, reason = "calls of the emulation")]
fn call_in_next_copy(libraries: &CudaLibraries, called: extern "C" fn()) {
    // SAFETY: as above.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let call = library.get::<unsafe extern "C" fn(extern "C" fn()) -> i32>("emulation_in_copy").unwrap();
        assert_eq!(call(called), 0);
        std::mem::forget(library);
    }
}

#[test]
fn a_stream_that_cannot_be_had_is_told_and_the_next_one_is() {
    let libraries = apart("streams");
    let device = opened(&libraries);
    refuse_handles(&libraries, 1);
    let refused = device.stream().map(drop).unwrap_err();
    let Error::Stream { reason } = &refused else { panic!("{refused}") };
    assert!(reason.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{refused}");
    assert_eq!((refused.kind(), device.check()), (ErrorKind::State, Ok(())));
    device.stream().map(drop).unwrap();
}

/// FX-69: its event says so, and the same copy is made when it is asked for again.
#[test]
fn a_copy_that_is_not_taken_can_be_made_again() {
    let libraries = apart("copy-again");
    let device = opened(&libraries);
    let (source, stream) = (buffer(&device, 1, 100), device.stream().unwrap());
    let mut host = device.allocate_host(100).unwrap();
    let whole = CopyRange { device_offset: 0, host_offset: 0, length: 100 };
    device.stream_after(&stream, &device.computed());
    refuse_handles(&libraries, 1);
    let event = device.copy_to_host_async(&stream, &source, &mut host, whole);
    let told = [device.wait(&event), device.is_done(&event).map(drop), device.compute_after(&event)];
    assert!(told.iter().all(|told| matches!(told, Err(Error::Copy { .. }))), "{told:?}");
    assert_eq!(device.check(), Ok(()));

    let again = device.copy_to_host_async(&stream, &source, &mut host, whole);
    device.wait(&again).unwrap();
    let mut values = vec![0.0; 100];
    device.read_host(&host, 0, &mut values);
    assert_eq!(values, random(1, 100));
}

/// Another handle meets the failure between the look at the device and the refusal: what is under way is waited for all the same.
#[test]
fn a_copy_that_is_not_taken_is_over_though_the_device_has_failed_meanwhile() {
    static OTHER: OnceLock<CudaDevice> = OnceLock::new();
    extern "C" fn fail() {
        assert!(OTHER.get().unwrap().try_allocate(usize::MAX).is_err());
    }
    let libraries = apart("copy-failed-meanwhile");
    let device = opened(&libraries);
    let (source, stream) = (buffer(&device, 1, 100), device.stream().unwrap());
    let mut host = device.allocate_host(100).unwrap();
    let whole = CopyRange { device_offset: 0, host_offset: 0, length: 100 };
    device.stream_after(&stream, &device.computed());
    assert!(OTHER.set(device.clone()).is_ok());
    call_in_next_copy(&libraries, fail);
    refuse_handles(&libraries, 1);
    let event = device.copy_to_host_async(&stream, &source, &mut host, whole);
    let mut values = vec![0.0; 100];
    device.read_host(&host, 0, &mut values);
    assert_eq!(values, random(1, 100), "nobody has waited for the event");
    let refused = device.wait(&event);
    let is_first = matches!(refused, Err(Error::Device(CudaError::NoAddress { values: usize::MAX })));
    assert!(is_first, "{refused:?}");
}

/// An order that cannot be made is the device's end: what was to come after would come at any time.
#[test]
fn an_order_that_cannot_be_made_is_the_devices_failure() {
    let libraries = apart("orders");
    let device = opened(&libraries);
    refuse_handles(&libraries, 1);
    let computed = device.computed();
    assert!(matches!(device.wait(&computed), Err(Error::Device(_))));
    let refused = device.check().unwrap_err();
    assert!(refused.to_string().contains("take another"), "{refused}");
    assert!(matches!(device.stream().map(drop), Err(Error::Device(_))));
}
