//! Memory that goes to other processes, on a GPU or on the emulation of one: shared buffers, and versions that go from process to process.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forebay_trainer_adapter::device::{DeviceRange, Share, fingerprint};
use forebay_trainer_adapter::publication::*;
use forebay_trainer_adapter::{Copies, Device, Error};

use crate::operations::{buffer, random};
use crate::{TestDevice, device};

const FOLDER: &str = "FOREBAY_TEST_FOLDER";
const MARK: &str = "forebay> ";
const LENGTH: usize = 300_001;

fn read(device: &TestDevice, buffer: &<TestDevice as Device>::Buffer) -> Vec<f32> {
    let mut values = vec![0.0; device.length(buffer)];
    device.download(buffer, 0, &mut values);
    values
}

fn shared(device: &TestDevice, values: &[f32]) -> <TestDevice as Device>::Buffer {
    let mut buffer = device.allocate_shared(values.len()).unwrap();
    assert!(read(device, &buffer).iter().all(|value| value.to_bits() == 0), "a new buffer is zeros");
    device.upload(values, &mut buffer, 0);
    buffer
}

#[test]
fn shared_memory_is_computed_with_as_any_other_and_copied_from_where_it_was_imported() {
    let device = device(1);
    let mut one = shared(&device, &random(1, LENGTH));
    let memory = device.import(device.export(&one).unwrap(), LENGTH).unwrap();
    device.accumulate(&buffer(&device, 2, LENGTH), &mut one);
    let expected: Vec<f32> = random(1, LENGTH).iter().zip(random(2, LENGTH)).map(|(a, b)| a + b).collect();
    let (stream, mut target) = (device.stream().unwrap(), device.allocate(LENGTH));
    device.stream_after(&stream, &device.computed());
    let range = DeviceRange { source_offset: 7, target_offset: 11, length: 250_000 };
    let copied = device.copy_imported_async(&stream, &memory, &mut target, range);
    // All handles go: the copy keeps what it uses.
    drop((memory, one));
    device.compute_after(&copied).unwrap();
    assert_eq!(read(&device, &target)[11..250_011], expected[7..250_007]);
    let copied = device.copy_async(&stream, &buffer(&device, 3, LENGTH), &mut target, range);
    device.wait(&copied).unwrap();
    assert_eq!(read(&device, &target)[11..250_011], random(3, LENGTH)[7..250_007]);
    assert_eq!(device.check(), Ok(()));
}

#[test]
fn a_fingerprint_is_the_same_on_the_device_as_on_the_processor() {
    let (device, values) = (device(1), random(5, LENGTH));
    let buffer = buffer(&device, 5, LENGTH);
    for (range, first) in [(0..LENGTH, 0), (3..70_000, 3), (65_536..131_072, 1 << 33), (9..9, 4), (9..10, 4)]
    {
        let found = device.fingerprint(&buffer, range.clone(), first).unwrap();
        assert_eq!(found, fingerprint(&values[range.clone()], first), "{range:?}");
    }
}

#[test]
fn what_is_no_shared_memory_is_refused_and_the_device_goes_on() {
    let device = device(1);
    let Err(Error::Share { reason }) = device.export(&device.allocate(5)) else { panic!("its own memory") };
    assert!(reason.contains("allocate_shared"), "{reason}");
    let (pipe, _end) = std::io::pipe().unwrap();
    assert!(matches!(device.import(pipe.into(), 5), Err(Error::Share { .. })));
    let small = device.export(&device.allocate_shared(5).unwrap()).unwrap();
    assert!(matches!(device.import(small, 1 << 30), Err(Error::Share { .. })), "longer than it is");
    assert!(matches!(device.allocate_shared(usize::MAX / 8), Err(Error::Share { .. })));
    assert_eq!(device.check(), Ok(()));
    assert!(device.reaches(&device.identity()) && !device.reaches("stand-in:0"));
}

/// Gets what the other process publishes, on its own device, and says what arrived.
#[test]
#[ignore = "is the program of another process"]
fn other_process() {
    let (folder, own) = (PathBuf::from(std::env::var_os(FOLDER).unwrap()), device(1));
    let reader = Reader::open(own.clone(), folder, ReaderOptions::default()).unwrap();
    for _line in std::io::stdin().lines() {
        let got = reader.get(&Wanted::latest("solver")).unwrap();
        let sum = fingerprint(&read(&own, &got.parts[0].1), 0);
        let counts = reader.counts();
        println!("\n{MARK}{} {sum:x} {} {}", got.stamp.version, counts.domains_made, counts.memories_mapped);
    }
}

/// FX-64, FX-65: both modes, to another process with a context of its own.
#[test]
fn versions_go_from_process_to_process_on_the_device() {
    let (folder, own) = (tempfile::tempdir().unwrap(), device(1));
    let publisher = Publisher::open(own.clone(), folder.path(), PublisherOptions::default()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "published::other_process", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path());
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (other.stdin.take().unwrap(), other.stdout.take().unwrap());
    let mut said = BufReader::new(output)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix(MARK).map(str::to_owned));
    let mut gets = |version: u64, mapped: usize| {
        use std::io::Write;
        writeln!(input).unwrap();
        let sum = fingerprint(&random(version, LENGTH), 0);
        assert_eq!(said.next().unwrap(), format!("{version} {sum:x} 1 {mapped}"));
    };
    let mut weights = own.allocate(LENGTH);
    for version in 1..=5 {
        own.upload(&random(version, LENGTH), &mut weights, 0);
        let part = PublishedPart { class: "weights", buffer: &weights, offset: 0, values: LENGTH };
        publisher.publish("solver", version, 0, &[part]).unwrap();
        own.clear(&mut weights, 0, LENGTH);
        gets(version, version.min(2) as usize);
    }
    let weights = shared(&own, &random(6, LENGTH));
    let part = PublishedPart { class: "weights", buffer: &weights, offset: 0, values: LENGTH };
    let barrier = publisher.in_place("solver", 6, 0, &[part]).unwrap();
    gets(6, 3);
    barrier.end().unwrap();
    gets(5, 3);
    drop(input);
    assert!(other.wait().unwrap().success());
}
