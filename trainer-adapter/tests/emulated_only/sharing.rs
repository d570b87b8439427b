//! What becomes of shared memory, and which GPUs reach each other's.

use forebay_trainer_adapter::device::Share;
use forebay_trainer_adapter::device::cuda::{CudaLibraries, CudaOptions, gpus};
use forebay_trainer_adapter::publication::*;
use forebay_trainer_adapter::{CudaDevice, Device, Error};

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

#[allow(unsafe_code, reason = "calls of the emulation")]
pub(super) fn set_longest(libraries: &CudaLibraries, bytes: usize) {
    // SAFETY: as above.
    unsafe {
        let library = libloading::Library::new(&libraries.driver[0]).unwrap();
        let longest = library.get::<unsafe extern "C" fn(usize) -> i32>("emulation_longest").unwrap();
        assert_eq!(longest(bytes), 0);
        std::mem::forget(library);
    }
}

const VALUES: usize = 100_000;

/// Publisher and reader on emulations of their own.
struct Pair {
    folder: tempfile::TempDir,
    libraries: [CudaLibraries; 2],
    devices: [CudaDevice; 2],
    publisher: Publisher<CudaDevice>,
    reader: Reader<CudaDevice>,
}

fn pair(names: [&'static str; 2]) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let libraries = names.map(apart);
    let devices = [0, 1].map(|at: usize| {
        let libraries = libraries[at].clone();
        CudaDevice::open(&CudaOptions { libraries, ..CudaOptions::default() }).unwrap()
    });
    let (options, mut weights) = (PublisherOptions::default(), devices[0].allocate(VALUES));
    let publisher = Publisher::open(devices[0].clone(), folder.path(), options).unwrap();
    devices[0].upload(&[1.5; VALUES], &mut weights, 0);
    let part = PublishedPart { class: "weights", buffer: &weights, offset: 0, values: VALUES };
    publisher.publish("solver", 1, 0, &[part]).unwrap();
    let reader = Reader::open(devices[1].clone(), folder.path(), ReaderOptions::default()).unwrap();
    Pair { folder, libraries, devices, publisher, reader }
}

/// FX-69: how long a version is is its publisher's word, and costs nobody his device.
#[test]
fn a_version_for_which_there_is_no_room_is_an_error_and_the_device_goes_on() {
    let Pair { folder: _folder, libraries, devices, publisher, reader } = pair(["long", "short"]);
    set_longest(&libraries[1], 128 << 10);
    let error = reader.get(&Wanted::latest("solver")).unwrap_err();
    assert!(matches!(error, PublicationError::Device(Error::Share { .. })), "{error}");
    assert_eq!((devices[1].check(), publisher.counts().holds), (Ok(()), 0));
    set_longest(&libraries[1], 64 << 30);
    assert_eq!(reader.get(&Wanted::latest("solver")).unwrap().stamp.version, 1);
}

/// FX-69: the fingerprint of a version takes memory, and where a state fills the device there is none left.
#[test]
fn a_device_that_is_full_publishes_and_gets_into_what_it_has() {
    let Pair { folder: _folder, libraries, devices, publisher, reader } =
        pair(["publishes-full", "gets-full"]);
    let mut weights = devices[0].allocate(VALUES);
    devices[0].upload(&[2.5; VALUES], &mut weights, 0);
    let publish = |version| {
        let part = PublishedPart { class: "weights", buffer: &weights, offset: 0, values: VALUES };
        publisher.publish("solver", version, 0, &[part])
    };
    publish(2).unwrap(); // both slots are there
    let mut target = devices[1].allocate_shared(VALUES).unwrap();
    let mut get_into = || {
        let mut parts = [TargetPart { class: "weights", buffer: &mut target, offset: 0 }];
        reader.get_into(&Wanted::latest("solver"), &mut parts).map(|stamp| stamp.version)
    };
    assert_eq!(get_into().unwrap(), 2); // the slots are mapped
    set_longest(&libraries[0], 0);
    set_longest(&libraries[1], 0);
    publish(3).unwrap();
    devices.iter().for_each(|device| assert_eq!(device.check(), Ok(())));
    let got = get_into();
    assert!(matches!(got, Ok(3)), "{got:?}");
    devices.iter().for_each(|device| assert_eq!(device.check(), Ok(())));
}

/// FX-69: memory is given back when nobody uses it any more, and not only when something else is copied.
#[test]
fn what_a_get_or_a_publish_used_is_let_go_of_without_another() {
    let Pair { folder: _folder, libraries, devices, publisher, reader } = pair(["gives", "takes"]);
    drop(reader.get(&Wanted::latest("solver")).unwrap());
    assert_eq!(shared_memories(&libraries[1]), 2, "the slot, imported and mapped");
    assert!(publisher.withdraw("solver").unwrap());
    assert_eq!(shared_memories(&libraries[0]), 0, "the slot is free");
    drop(publisher);
    reader.forget_gone();
    assert_eq!(shared_memories(&libraries[1]), 2, "its process lives, which is this one");
    drop(reader);
    assert_eq!(shared_memories(&libraries[1]), 0);
    devices.iter().for_each(|device| assert_eq!(device.check(), Ok(())));
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
