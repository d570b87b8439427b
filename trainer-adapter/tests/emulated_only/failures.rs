//! A GPU that fails, and GPUs in another order: each on an emulation of its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use forebay_trainer_adapter::device::cuda::{CudaError, CudaLibraries, CudaOptions, Gpu, gpus};
use forebay_trainer_adapter::device::{CopyRange, Exchanged, exchange};
use forebay_trainer_adapter::{
    Copies, CudaDevice, Device, Error, ErrorKind, GenerateOptions, GenerateRequest, Policy, PolicyConfig,
    Row, SampleKey, Trainer, TrainerOptions, Unit, generate,
};

use crate::emulation;

/// A copy of the emulation under another name: it has its own devices and its own state. A name that is used twice would change a
/// library that runs.
pub(super) fn apart(name: &'static str) -> CudaLibraries {
    static TAKEN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    assert!(TAKEN.lock().unwrap().insert(name), "{name} is another test's");
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lib{name}-{}.so", std::process::id()));
    std::fs::copy(emulation::emulation(), &made).unwrap();
    CudaLibraries::all_in(&made)
}

#[allow(unsafe_code, reason = "calls of the emulation")]
fn show(libraries: &CudaLibraries, devices: &[i32]) {
    // SAFETY: the emulation's own function, with its type; the library is open for good.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let show = library.get::<unsafe extern "C" fn(*const i32, i32) -> i32>("emulation_show").unwrap();
        assert_eq!(show(devices.as_ptr(), devices.len() as i32), 0);
        std::mem::forget(library);
    }
}

#[allow(unsafe_code, reason = "calls of the emulation")]
pub(super) fn break_first(libraries: &CudaLibraries) {
    // SAFETY: as above.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let broken = library.get::<unsafe extern "C" fn(i32) -> i32>("emulation_break").unwrap();
        assert_eq!(broken(0), 0);
        std::mem::forget(library);
    }
}

#[allow(unsafe_code, reason = "calls of the emulation")]
fn blas_handles(libraries: &CudaLibraries) -> i32 {
    // SAFETY: as above.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let handles = library.get::<unsafe extern "C" fn() -> i32>("emulation_blas_handles").unwrap()();
        std::mem::forget(library);
        handles
    }
}

/// The thread that drops a device last may be one that has never used it.
#[test]
fn a_device_that_is_dropped_by_another_thread_gives_back_what_its_libraries_have() {
    let libraries = apart("dropped");
    let device =
        CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap();
    assert_eq!(blas_handles(&libraries), 1);
    std::thread::spawn(move || drop(device)).join().unwrap();
    assert_eq!(blas_handles(&libraries), 0);
}

/// FX-71: whatever order a process sees its GPUs in, and whichever of them, an identity names the same one.
#[test]
fn a_gpu_is_the_same_in_every_order() {
    let libraries = apart("visible");
    let found = gpus(&libraries).unwrap();
    let names: Vec<&str> = found.iter().map(|gpu| gpu.name.as_str()).collect();
    assert_eq!(names, ["emulated device 0", "emulated device 1", "emulated device 2"]);
    for order in [[2, 0, 1], [1, 2, 0], [0, 2, 1]] {
        show(&libraries, &order);
        for (ordinal, gpu) in gpus(&libraries).unwrap().iter().enumerate() {
            let same = &found[order[ordinal] as usize];
            assert_eq!(gpu, &Gpu { ordinal, ..same.clone() });
            let options =
                CudaOptions { uuid: Some(same.uuid), libraries: libraries.clone(), ..CudaOptions::default() };
            assert_eq!(CudaDevice::open(&options).unwrap().gpu(), gpu);
        }
    }
    show(&libraries, &[2, 0]);
    let options =
        CudaOptions { uuid: Some(found[1].uuid), libraries: libraries.clone(), ..CudaOptions::default() };
    let visible = [2, 0].map(|index: usize| found[index].uuid.to_string()).to_vec();
    let expected = CudaError::UnknownGpu { wanted: found[1].uuid.to_string(), found: visible };
    assert_eq!(CudaDevice::open(&options).map(|_| ()), Err(expected));
    show(&libraries, &[]);
    let expected = CudaError::NoGpu { code: 100, name: "CUDA_ERROR_NO_DEVICE".into() };
    assert_eq!(gpus(&libraries), Err(expected));
}

/// No driver, a driver that is none, and libraries that are missing beside a good driver.
#[test]
fn what_is_missing_is_named() {
    let nowhere = CudaLibraries::all_in(Path::new("/nowhere/libcuda.so.1"));
    let error = gpus(&nowhere).unwrap_err();
    assert!(matches!(error, CudaError::NoLibrary { library: "libcuda", .. }), "{error}");
    assert!(error.to_string().contains("/nowhere/libcuda.so.1"), "{error}");

    let compiler = emulation::compiler().unwrap();
    let empty = emulation::library(
        &compiler,
        "forebay-empty",
        &[("empty.cpp", "extern \"C\" int cuInit(unsigned) { return 0; }")],
    );
    let error = gpus(&CudaLibraries::all_in(&empty)).unwrap_err();
    assert_eq!(error, CudaError::MissingSymbol { library: "libcuda", symbol: "cuGetErrorName" });

    let whole = CudaLibraries::all_in(emulation::emulation());
    let cases = [
        ("libnvrtc", CudaLibraries { compiler: nowhere.compiler.clone(), ..whole.clone() }),
        ("libcublas", CudaLibraries { blas: nowhere.blas.clone(), ..whole }),
    ];
    for (name, libraries) in cases {
        let error = CudaDevice::open(&CudaOptions { libraries, ..CudaOptions::default() }).unwrap_err();
        assert!(matches!(error, CudaError::NoLibrary { library, .. } if library == name), "{error}");
        assert!(error.to_string().contains("FOREBAY_CUDA_DIR"), "{error}");
    }
}

/// FX-69: a GPU that breaks in the middle of a step is an error of the next call that would keep a result. Nothing panics,
/// nothing that is read looks like a number, and the step is not counted.
#[test]
fn a_broken_gpu_is_an_error_and_never_a_number() {
    let libraries = apart("broken");
    let device =
        CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap();
    let policy = Policy::initialise(&device, &PolicyConfig::small(40), 7).unwrap();
    let mut trainer = Trainer::new(&device, policy, TrainerOptions::default()).unwrap();
    let rows = [Row { advantage: 1.0, ..Row::new(&[1, 2], &[3, 4]) }];
    let unit = |position| Unit { position, policy: "policy", version: 0, rows: &rows };
    trainer.accumulate(&unit(0)).unwrap();
    let policy = trainer.policy();
    let [incoming, mut outgoing] = [(); 2].map(|()| device.allocate_host(9).unwrap());
    let (stream, mut buffer) = (device.stream().unwrap(), device.allocate(9));
    assert_eq!(device.check(), Ok(()));

    break_first(&libraries);
    let refused = |error: Error| {
        assert!(matches!(&error, Error::Device(CudaError::Call { code: 700, .. })), "{error}");
        assert_eq!(error.kind(), ErrorKind::State);
    };
    refused(trainer.accumulate(&unit(1)).unwrap_err());
    assert_eq!(trainer.cache().positions, [0]);
    refused(trainer.apply().unwrap_err());
    assert_eq!(trainer.version(), 0);
    refused(device.check().unwrap_err());
    refused(Policy::initialise(&device, &PolicyConfig::small(40), 7).map(|_| ()).unwrap_err());
    let request = GenerateRequest { prompt: &[1, 2], key: SampleKey::default() };
    refused(generate(&device, &policy, &[request], &GenerateOptions::default()).unwrap_err());
    assert!(policy.values(&device).iter().all(|value| value.is_nan()));

    refused(device.allocate_host(9).map(drop).unwrap_err());
    refused(device.stream().map(drop).unwrap_err());
    let whole = CopyRange { device_offset: 0, host_offset: 0, length: 9 };
    let copied = device.copy_to_device_async(&stream, &incoming, &mut buffer, whole);
    refused(device.wait(&copied).unwrap_err());
    let part = Exchanged { buffer: &mut buffer, outgoing: &mut outgoing, incoming: &incoming, length: 9 };
    refused(exchange(&device, &mut [part], 4).unwrap_err());
}

/// A buffer that no GPU has room for is an error of whoever would use it.
#[test]
fn memory_that_runs_out_is_an_error() {
    let libraries = apart("full");
    let device = CudaDevice::open(&CudaOptions { libraries, ..CudaOptions::default() }).unwrap();
    let mut buffer = device.allocate(1 << 40);
    assert_eq!(device.length(&buffer), 1 << 40);
    device.upload(&[1.0], &mut buffer, 5);
    let mut values = [0.0];
    device.download(&buffer, 5, &mut values);
    assert!(values[0].is_nan());
    let error = device.check().unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
}

/// So is one that no memory has addresses for.
#[test]
fn memory_without_addresses_is_an_error() {
    let libraries = apart("addresses");
    let opened =
        || CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap();
    let expected = Err(Error::Device(CudaError::NoAddress { values: usize::MAX }));
    let device = opened();
    assert_eq!(device.try_allocate(usize::MAX).map(drop), expected);
    assert_eq!(device.check(), expected);
    let device = opened();
    drop(device.allocate_sums(usize::MAX, 20, 4));
    assert_eq!(device.check(), expected);
}

/// What was under way when the device failed is over when it was waited for: its memory may be another's then.
#[test]
fn a_device_that_has_failed_waits_for_what_it_was_given_before() {
    let libraries = apart("waits");
    for waits_for_arithmetic in [false, true] {
        let device =
            CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() })
                .unwrap();
        let (source, mapped) = (crate::operations::buffer(&device, 1, 100), crate::pinned::Mapped::new(100));
        let pinned = device.pin(mapped.foreign(true)).unwrap();
        let stream = device.stream().unwrap();
        device.stream_after(&stream, &device.computed());
        let range = CopyRange { device_offset: 0, host_offset: 0, length: 100 };
        let event = device.copy_to_pinned_async(&stream, &source, &pinned, range);
        device.compute_after(&event).unwrap();
        let _none = device.allocate(1 << 50);
        assert!(device.check().is_err());
        assert!(mapped.read().iter().all(|value| *value == 0.0), "late");
        let waited = if waits_for_arithmetic { device.computed() } else { event };
        assert!(device.wait(&waited).is_err());
        assert_eq!(mapped.read(), crate::operations::random(1, 100));
    }
}

/// Who sums up may be making room: a device without any is summed up as any other, and goes on.
#[test]
fn sums_take_no_memory_of_the_device() {
    let libraries = apart("summed");
    let device =
        CudaDevice::open(&CudaOptions { libraries: libraries.clone(), ..CudaOptions::default() }).unwrap();
    let (source, stream) = (crate::operations::buffer(&device, 1, 5000), device.stream().unwrap());
    device.stream_after(&stream, &device.computed());
    super::sharing::set_longest(&libraries, 0);
    let mut host = device.allocate_host(5).unwrap();
    let event = device.sum_up_async(&stream, &source, (0..5000, 1000), &mut host, 0);
    device.wait(&event).unwrap();
    let mut sums = [0.0; 5];
    device.read_host(&host, 0, &mut sums);
    let expected = crate::operations::random(1, 5000);
    let expected = expected.chunks(1000).map(forebay_trainer_adapter::device::crc32c);
    assert!(sums.into_iter().map(f32::to_bits).eq(expected));
    device.check().unwrap();
    let _none = device.allocate(1);
    assert!(device.check().is_err(), "there was no room at all");
}
