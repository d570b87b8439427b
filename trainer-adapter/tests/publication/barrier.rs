//! Versions in place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_trainer_adapter::Device;
use forebay_trainer_adapter::device::StandInDevice;
use forebay_trainer_adapter::device::stand_in::{CopyWay, StandInBuffer};
use forebay_trainer_adapter::publication::*;

use crate::rotation::Stop;
use crate::state::*;

// FX-64
#[test]
fn nothing_is_copied_by_a_publisher_in_place_and_nothing_can_be_had_after_the_barrier() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let mut buffers = [0, 1].map(|class| shared(&ours, &values(7, class, LENGTHS[class])));
    for version in [7, 8] {
        let parts: Vec<_> = (0..2).map(|at| part(CLASSES[at], &buffers[at], LENGTHS[at])).collect();
        let barrier = publisher.in_place("solver", version, LAYOUT, &parts).unwrap();
        let got = reader.get(&Wanted::latest("solver").layout(LAYOUT)).unwrap();
        assert_eq!((checked(&theirs, &got), got.stamp.is_in_place), (version, true));
        let taken = publisher.in_place("solver", 9, LAYOUT, &parts).unwrap_err();
        assert!(taken.to_string().contains("end that barrier"), "{taken}");
        if version == 7 {
            barrier.end().unwrap();
        } else {
            drop(barrier);
        }
        assert!(matches!(latest(&reader, &theirs), Err(PublicationError::NoVersion { newest: None, .. })));
        // The optimiser's step: the borrow is over.
        for (class, buffer) in buffers.iter_mut().enumerate() {
            ours.upload(&values(8, class, LENGTHS[class]), buffer, 0);
        }
    }
    assert!(ours.trace().iter().all(|copy| copy.way != CopyWay::OnDevice), "nothing was copied here");
    assert_eq!((publisher.counts().in_place, publisher.counts().snapshots), (2, 0));
}

#[test]
fn classes_of_one_buffer_are_mapped_once_and_a_later_snapshot_goes_before() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let both = [values(1, 0, 100), values(1, 1, 50)].concat();
    let buffer = shared(&ours, &both);
    let parts = [(CLASSES[0], 0, 100), (CLASSES[1], 100, 50)].map(|(class, offset, values)| PublishedPart {
        class,
        buffer: &buffer,
        offset,
        values,
    });
    let barrier = publisher.in_place("solver", 1, LAYOUT, &parts).unwrap();
    assert_eq!((latest(&reader, &theirs).unwrap(), reader.counts().memories_mapped), (1, 1));
    publish(&publisher, &ours, 2).unwrap();
    assert_eq!(latest(&reader, &theirs).unwrap(), 2);
    barrier.end().unwrap();
    assert_eq!(latest(&reader, &theirs).unwrap(), 2);
}

struct UnderWay {
    _folder: tempfile::TempDir,
    ours: StandInDevice,
    theirs: StandInDevice,
    publisher: Publisher<StandInDevice>,
    reader: Reader<StandInDevice>,
    /// The publisher's end of a barrier, and the reader's copy.
    stops: [Stop; 2],
    buffer: StandInBuffer,
}

/// A get that stops in the middle of its copy, and a barrier's end that stops when it has begun.
fn under_way(patience: Duration) -> UnderWay {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (ending, at_end) = Stop::at(Step::Ending);
    let options = PublisherOptions::default().patience(patience).observer(at_end);
    let publisher = Publisher::open(ours.clone(), folder.path(), options).unwrap();
    let (copying, observer) = Stop::at(Step::Copying);
    let options = ReaderOptions::default().observer(observer);
    let reader = Reader::open(theirs.clone(), folder.path(), options).unwrap();
    let buffer = shared(&ours, &values(1, 0, 500));
    UnderWay { _folder: folder, ours, theirs, publisher, reader, stops: [ending, copying], buffer }
}

fn assert_told(error: &PublicationError) {
    assert!(matches!(error, PublicationError::Ended { version: 1, .. }), "{error}");
}

// FX-64, FX-B20
#[test]
fn readers_under_way_are_waited_for_and_told_when_it_takes_too_long() {
    for patience in [Duration::from_secs(60), Duration::ZERO] {
        let UnderWay { _folder, theirs, publisher, reader, stops: [ending, copying], buffer, .. } =
            under_way(patience);
        let barrier = publisher.in_place("solver", 1, LAYOUT, &[part("weights", &buffer, 500)]).unwrap();
        std::thread::scope(|scope| {
            let get = scope.spawn(|| reader.get(&Wanted::latest("solver")));
            copying.reached.recv().unwrap();
            let end = scope.spawn(|| barrier.end());
            ending.reached.recv().unwrap();
            ending.go_on.send(()).unwrap();
            if patience.is_zero() {
                let error = end.join().unwrap().unwrap_err();
                assert!(matches!(error, PublicationError::Held { .. }), "{error}");
                copying.go_on.send(()).unwrap();
                assert_told(&get.join().unwrap().unwrap_err());
            } else {
                copying.go_on.send(()).unwrap();
                end.join().unwrap().unwrap();
                assert_eq!(read(&theirs, &get.join().unwrap().unwrap().parts[0].1), values(1, 0, 500));
            }
        });
        assert_eq!(publisher.counts().holds, 0);
    }
}

// FX-64, FX-B20
#[test]
fn a_guard_that_is_dropped_waits_for_nobody_and_who_still_read_is_told() {
    let UnderWay { _folder, ours, publisher, reader, stops: [_, copying], mut buffer, .. } =
        under_way(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let barrier = publisher.in_place("solver", 1, LAYOUT, &[part("weights", &buffer, 500)]).unwrap();
        let get = scope.spawn(|| reader.get(&Wanted::latest("solver")));
        copying.reached.recv().unwrap();
        drop(barrier);
        ours.clear(&mut buffer, 0, 500); // at once, under the reader's eyes
        copying.go_on.send(()).unwrap();
        assert_told(&get.join().unwrap().unwrap_err());
    });
    assert_eq!(publisher.counts().holds, 0);
}

/// The end of one key's barrier lets go of what nothing lies in any more: not of what another key's is about to show.
#[test]
fn barriers_of_two_keys_begin_and_end_without_regard_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let (publisher, reader) = (publisher(&ours, folder.path()), reader(&theirs, folder.path()));
    let names: Vec<String> = (0..16).map(|class| format!("class-{class}")).collect();
    let buffers: Vec<_> = (0..16).map(|class| shared(&ours, &values(1, class, 10))).collect();
    let parts: Vec<_> = names.iter().zip(&buffers).map(|(name, buffer)| part(name, buffer, 10)).collect();
    let (other, is_over) = (shared(&ours, &values(1, 0, 10)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut versions = 1..;
            while !is_over.load(Ordering::Relaxed) {
                let version = versions.next().unwrap();
                let part = part("weights", &other, 10);
                drop(publisher.in_place("other", version, LAYOUT, &[part]).unwrap());
            }
        });
        let rounds = || -> Result<(), PublicationError> {
            for version in 1..=200 {
                let barrier = publisher.in_place("solver", version, LAYOUT, &parts)?;
                let got = reader.get(&Wanted::latest("solver"))?;
                for (class, (_, buffer)) in got.parts.iter().enumerate() {
                    assert_eq!(read(&theirs, buffer), values(1, class, 10));
                }
                barrier.end()?;
            }
            Ok(())
        };
        let done = rounds();
        is_over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
}
