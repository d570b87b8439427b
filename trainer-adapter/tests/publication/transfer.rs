//! What arrives, and what it costs.

use std::time::Duration;

use forebay_trainer_adapter::device::stand_in::CopyWay;
use forebay_trainer_adapter::device::{StandInDevice, StandInOptions};
use forebay_trainer_adapter::publication::*;
use forebay_trainer_adapter::{Device, Error};

use crate::program::Program;
use crate::state::*;

// FX-64, FX-65
#[test]
fn what_was_published_arrives_bit_by_bit_whatever_the_length_and_the_order_of_copies() {
    let lengths = [[1, 1], [63, 65], [64, 64], [100_000, 7], [0, 5]];
    for (seed, lengths) in lengths.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (device(seed as u64), device(seed as u64 + 50));
        let publisher = publisher(&ours, folder.path());
        publish_of(&publisher, &ours, 7, lengths).unwrap();
        let got = reader(&theirs, folder.path()).get(&Wanted::latest("solver").layout(LAYOUT)).unwrap();
        assert_eq!(checked(&theirs, &got), 7);
        let stamp = &got.stamp;
        assert_eq!((stamp.layout, stamp.is_in_place, stamp.fingerprint.is_some()), (LAYOUT, false, true));
        let expected = (std::process::id(), "stand-in:0");
        assert_eq!((stamp.source.pid, &*stamp.source.device), expected);
        // No value went through host memory.
        let ways = [ours.trace(), theirs.trace()].concat();
        assert!(ways.iter().all(|copy| copy.way == CopyWay::OnDevice) && ways.len() == 4);
    }
}

// FX-65
#[test]
fn a_second_transfer_between_the_same_two_makes_no_domain_and_maps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let counts = |version: u64| {
        publish(&publisher, &ours, version).unwrap();
        assert_eq!(latest(&reader, &theirs).unwrap(), version);
        assert_eq!(latest(&reader, &theirs).unwrap(), version);
        let (reader, publisher) = (reader.counts(), publisher.counts());
        assert_eq!(publisher.domains_made, reader.domains_made);
        (reader.domains_made, reader.memories_mapped, publisher.memories_made)
    };
    assert_eq!(counts(1), (1, 1, 1));
    assert_eq!(counts(2), (1, 2, 2), "the other slot");
    (3..10).for_each(|version| assert_eq!(counts(version), (1, 2, 2)));
    assert_eq!((publisher.counts().holds, publisher.counts().domains), (0, 1));
    drop(reader);
    publish_of(&publisher, &ours, 10, [5000, 5000]).unwrap();
    assert_eq!(publisher.counts().memories_made, 3, "what does not fit gets another memory");
}

// FX-65
#[test]
fn one_domain_serves_all_keys_and_all_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let keys: Vec<String> = (0..4).map(|agent| format!("agent{agent}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let buffer = loaded(&ours, &values(number as u64, 0, 500));
        publisher.publish(key, 0, LAYOUT, &[part("weights", &buffer, 500)]).unwrap();
    }
    std::thread::scope(|scope| {
        for (number, key) in keys.iter().enumerate() {
            let (reader, theirs) = (&reader, &theirs);
            scope.spawn(move || {
                for _ in 0..20 {
                    let got = reader.get(&Wanted::latest(key)).unwrap();
                    assert_eq!(read(theirs, &got.parts[0].1), values(number as u64, 0, 500));
                }
            });
        }
    });
    let counts = reader.counts();
    assert_eq!((counts.domains_made, counts.memories_mapped, counts.got), (1, 4, 80));
}

// FX-64, FX-65
#[test]
fn two_processes_move_versions_both_ways_without_a_byte_in_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (mut theirs, own) = (Program::start(folder.path(), &[]), device(3));
    theirs.asks("publish 1", "published 1");
    let reader = reader(&own, folder.path());
    assert_eq!(latest(&reader, &own).unwrap(), 1);
    assert_eq!(reader.source("solver").unwrap().pid, theirs.pid());
    theirs.asks("in_place 2", "in place 2");
    let got = reader.get(&Wanted::new("solver", Which::Exact(2))).unwrap();
    assert_eq!((checked(&own, &got), got.stamp.is_in_place), (2, true));
    theirs.asks("end", "ended");
    assert_eq!(latest(&reader, &own).unwrap(), 1, "the newest that can be had");
    theirs.asks("publish 3", "published 3");
    assert_eq!(latest(&reader, &own).unwrap(), 3);
    assert_eq!(reader.counts().domains_made, 1);

    // The other way round.
    let mut theirs = Program::start(folder.path(), &[]);
    let publisher = publisher(&own, folder.path());
    let mut one = loaded(&own, &values(5, 0, LENGTHS[0]));
    let two = loaded(&own, &values(5, 1, LENGTHS[1]));
    let parts = [part(CLASSES[0], &one, LENGTHS[0]), part(CLASSES[1], &two, LENGTHS[1])];
    publisher.publish("verifier", 5, LAYOUT, &parts).unwrap();
    own.clear(&mut one, 0, LENGTHS[0]);
    theirs.asks("get verifier latest", "got 5");
    theirs.asks("get verifier exact 4", "error NoVersion");
}

#[test]
fn a_reader_waits_for_a_version_and_others_read_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    publish(&publisher, &ours, 1).unwrap();
    let at_least = |version, wait| Wanted::new("solver", Which::AtLeast(version, wait));
    let error = reader.get(&at_least(2, Duration::from_millis(1))).unwrap_err();
    assert!(matches!(error, PublicationError::NoVersion { newest: Some(1), .. }), "{error}");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| reader.get(&at_least(4, Duration::MAX)).map(|got| checked(&theirs, &got)));
        for version in 2..=4 {
            assert!(latest(&reader, &theirs).unwrap() >= version - 1);
            publish(&publisher, &ours, version).unwrap();
        }
        assert_eq!(waits.join().unwrap().unwrap(), 4);
    });
    let again = reader.get(&at_least(3, Duration::ZERO)).unwrap();
    assert_eq!(again.stamp.version, 4);
}

#[test]
fn parts_may_lie_anywhere_in_larger_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let all = values(1, 0, 300);
    let buffer = loaded(&ours, &all);
    let parts = [(CLASSES[0], 10, 100), (CLASSES[1], 200, 50)].map(|(class, offset, values)| PublishedPart {
        class,
        buffer: &buffer,
        offset,
        values,
    });
    publisher.publish("solver", 1, LAYOUT, &parts).unwrap();
    let (mut target, mut other) = (theirs.allocate(400), theirs.allocate(60));
    let mut parts = [
        TargetPart { class: CLASSES[1], buffer: &mut other, offset: 0 },
        TargetPart { class: CLASSES[0], buffer: &mut target, offset: 300 },
    ];
    let stamp = reader.get_into(&Wanted::latest("solver"), &mut parts).unwrap();
    assert_eq!(stamp.version, 1);
    let (target, other) = (read(&theirs, &target), read(&theirs, &other));
    assert_eq!((&target[300..], &other[..50]), (&all[10..110], &all[200..250]));
    assert!(target[..300].iter().chain(&other[50..]).all(|value| *value == 0.0), "nothing beside");
}

/// Everything that is refused, by name, with the value that is wrong; and nothing was written then.
// FX-69
#[test]
fn what_cannot_be_had_is_refused_by_name_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let text = |error: PublicationError| error.to_string();
    let error = text(latest(&reader, &theirs).unwrap_err());
    assert!(error.contains("nobody publishes \"solver\""), "{error}");
    publish(&publisher, &ours, 3).unwrap();

    let exact = reader.get(&Wanted::new("solver", Which::Exact(2))).unwrap_err();
    assert!(exact.may_be_elsewhere() && text(exact).contains("no version 2 on the device, the newest is 3"));
    let layout = reader.get(&Wanted::latest("solver").layout(7)).unwrap_err();
    assert!(!layout.may_be_elsewhere());
    assert!(text(layout).contains("has the layout 00000000000a11ce, 0000000000000007 is wanted"));
    assert!(matches!(reader.get(&Wanted::latest("../x")), Err(PublicationError::Key { .. })));

    let far = StandInDevice::new(StandInOptions { identity: "other:1".into(), ..StandInOptions::default() });
    let error = self::reader(&far, folder.path()).get(&Wanted::latest("solver")).unwrap_err();
    assert!(error.may_be_elsewhere() && text(error).contains("on stand-in:0, which other:1 does not reach"));
    let near =
        StandInDevice::new(StandInOptions { identity: "stand-in:1".into(), ..StandInOptions::default() });
    let got = self::reader(&near, folder.path()).get(&Wanted::latest("solver")).unwrap();
    assert_eq!((checked(&near, &got), &*got.stamp.source.device), (3, "stand-in:0"));

    let (mut short, mut fits, mut extra) = (theirs.allocate(10), theirs.allocate(2000), theirs.allocate(1));
    let mut parts = [("weights", &mut fits), ("moments", &mut short)].map(|(class, buffer)| TargetPart {
        class,
        buffer,
        offset: 0,
    });
    let error = text(reader.get_into(&Wanted::latest("solver"), &mut parts).unwrap_err());
    assert!(error.contains("333 values from 0 on do not lie in a buffer of 10"), "{error}");
    let error = text(reader.get_into(&Wanted::latest("solver"), &mut parts[..1]).unwrap_err());
    assert!(error.contains("\"moments\": has no part"), "{error}");
    let mut parts = [TargetPart { class: "momenta", buffer: &mut extra, offset: 0 }];
    let error = text(reader.get_into(&Wanted::latest("solver"), &mut parts).unwrap_err());
    assert!(error.contains("\"momenta\": the version has no such class"), "{error}");
    assert!(theirs.trace().is_empty() && publisher.counts().holds == 0);
    assert_eq!(latest(&reader, &theirs).unwrap(), 3);
}

#[test]
fn what_cannot_be_published_is_refused_and_the_version_before_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    publish(&publisher, &ours, 3).unwrap();
    let old = publish(&publisher, &ours, 3).unwrap_err();
    assert!(matches!(old, PublicationError::OldVersion { version: 3, newest: 3, .. }), "{old}");
    let second = self::publisher(&ours, folder.path());
    let error = publish(&second, &ours, 4).unwrap_err().to_string();
    assert!(error.contains(&format!("published by process {} on stand-in:0", std::process::id())), "{error}");
    let buffer = ours.allocate(10);
    let one = || part("weights", &buffer, 10);
    let cases = [
        (vec![], "0 memory classes"),
        (vec![one(), one()], "named twice"),
        (vec![part("weights", &buffer, 11)], "11 values from 0 on do not lie in a buffer of 10"),
        (vec![part("", &buffer, 1)], "a name of 0 bytes"),
    ];
    for (parts, expected) in cases {
        let error = publisher.publish("solver", 4, LAYOUT, &parts).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = publisher.in_place("solver", 4, LAYOUT, &[one()]).unwrap_err();
    let PublicationError::Device(Error::Share { reason }) = error else { panic!("{error:?}") };
    assert!(reason.contains("allocate_shared"), "{reason}");
    assert_eq!(latest(&reader, &theirs).unwrap(), 3);
    drop(publisher);
    publish(&second, &ours, 1).unwrap();
    assert_eq!(latest(&reader, &theirs).unwrap(), 1, "the next publisher of the key counts for itself");
}
