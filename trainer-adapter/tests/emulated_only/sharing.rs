//! What becomes of shared memory, and which GPUs reach each other's.

use forebay_trainer_adapter::device::Share;
use forebay_trainer_adapter::device::cuda::{CudaLibraries, CudaOptions, gpus};
use forebay_trainer_adapter::{CudaDevice, Device};

use super::failures::apart;

#[allow(unsafe_code, reason = "calls of the emulation")]
fn shared_memories(libraries: &CudaLibraries) -> i32 {
    // SAFETY: the emulation's own function, with its type; the library is open for good.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let count = library.get::<unsafe extern "C" fn() -> i32>("emulation_shared_memories").unwrap()();
        std::mem::forget(library);
        count
    }
}

#[test]
fn every_memory_is_given_back_also_when_it_could_not_be_mapped() {
    let libraries = apart("shared");
    let device =
        CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap();
    let buffer = device.allocate_shared(100_000).unwrap();
    let imported = device.import(device.export(&buffer).unwrap(), 100_000).unwrap();
    assert_eq!(shared_memories(&libraries), 4, "two memories, two mappings");
    assert!(device.import(device.export(&buffer).unwrap(), 1 << 28).is_err());
    assert_eq!(shared_memories(&libraries), 4);
    drop(buffer);
    assert_eq!(shared_memories(&libraries), 2, "what was imported stays");
    drop(imported);
    assert_eq!(shared_memories(&libraries), 0);
    assert_eq!(device.check(), Ok(()));
}

/// FX-69, FX-71
#[test]
fn a_gpu_reaches_those_that_the_driver_says_and_knows_them_by_their_identity() {
    let libraries = apart("reaches");
    let found = gpus(&libraries).unwrap();
    let reaches = |own: usize| {
        let options = CudaOptions {
            uuid: Some(found[own].uuid),
            libraries: libraries.clone(),
            ..CudaOptions::default()
        };
        let device = CudaDevice::open(&options).unwrap();
        assert_eq!(device.identity(), found[own].uuid.to_string());
        found.iter().map(|gpu| device.reaches(&gpu.uuid.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(reaches(0), [true, true, false]);
    assert_eq!(reaches(2), [false, false, true]);
}
