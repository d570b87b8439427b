//! Slots under readers who are slow.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_trainer_adapter::device::StandInDevice;
use forebay_trainer_adapter::publication::*;

use crate::state::*;

/// Stops a reader at a step, once, until it is told to go on.
pub(crate) struct Stop {
    pub(crate) reached: Receiver<()>,
    pub(crate) go_on: Sender<()>,
}

impl Stop {
    pub(crate) fn at(step: Step) -> (Self, StepObserver) {
        let ((tell, reached), (go_on, wait)) = (channel(), channel());
        let ends = Arc::new(Mutex::new(Some((tell, wait))));
        let observer = StepObserver::new(move |found| {
            let ends = if found == step { ends.lock().unwrap().take() } else { None };
            if let Some((tell, wait)) = ends {
                tell.send(()).unwrap();
                wait.recv().unwrap();
            }
        });
        (Self { reached, go_on }, observer)
    }
}

fn slow(device: &StandInDevice, folder: &std::path::Path, step: Step) -> (Stop, Reader<StandInDevice>) {
    let (stop, observer) = Stop::at(step);
    let options = ReaderOptions::default().observer(observer);
    (stop, Reader::open(device.clone(), folder, options).unwrap())
}

// FX-64, FX-B20
#[test]
fn a_slot_is_not_written_while_a_slow_reader_has_it_and_the_other_goes_on_being_read() {
    for step in [Step::Granted, Step::Copying, Step::Copied] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs, others) = (device(1), device(2), device(3));
        let options = PublisherOptions::default().patience(Duration::ZERO);
        let publisher = Publisher::open(ours.clone(), folder.path(), options).unwrap();
        publish(&publisher, &ours, 1).unwrap();
        let (stop, slow) = slow(&theirs, folder.path(), step);
        let quick = reader(&others, folder.path());
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| latest(&slow, &theirs));
            stop.reached.recv().unwrap();
            publish(&publisher, &ours, 2).unwrap();
            for _ in 0..2 {
                assert_eq!(latest(&quick, &others).unwrap(), 2);
                let error = publish(&publisher, &ours, 3).unwrap_err();
                let PublicationError::Held { readers, .. } = error else { panic!("{error}") };
                assert_eq!(readers, [std::process::id()]);
            }
            stop.go_on.send(()).unwrap();
            assert_eq!(slow.join().unwrap().unwrap(), 1, "{step:?}: what it held, whole");
        });
        publish(&publisher, &ours, 3).unwrap();
        assert_eq!(latest(&quick, &others).unwrap(), 3);
    }
}

#[test]
fn a_publish_waits_for_a_slow_reader_and_goes_on_when_it_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(4), device(5));
    let (waiting, at_wait) = Stop::at(Step::Waiting);
    let options = PublisherOptions::default().observer(at_wait);
    let publisher = Publisher::open(ours.clone(), folder.path(), options).unwrap();
    (1..=2).for_each(|version| publish(&publisher, &ours, version).unwrap());
    let (stop, slow) = slow(&theirs, folder.path(), Step::Copying);
    let exact = Wanted::new("solver", Which::Exact(1));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| slow.get(&exact).map(|got| checked(&theirs, &got)));
        stop.reached.recv().unwrap();
        let third = scope.spawn(|| publish(&publisher, &ours, 3));
        waiting.reached.recv().unwrap(); // it has found the slot held
        waiting.go_on.send(()).unwrap();
        stop.go_on.send(()).unwrap();
        assert_eq!(slow.join().unwrap().unwrap(), 1);
        third.join().unwrap().unwrap();
    });
    assert_eq!(latest(&reader(&theirs, folder.path()), &theirs).unwrap(), 3);
}

// FX-B20, FX-69
#[test]
fn a_publisher_that_is_dropped_in_the_middle_of_a_get_is_an_error_of_it() {
    for step in [Step::Connected, Step::Granted, Step::Copying, Step::Copied] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (device(1), device(2));
        let publisher = publisher(&ours, folder.path());
        publish(&publisher, &ours, 1).unwrap();
        let (stop, slow) = slow(&theirs, folder.path(), step);
        std::thread::scope(|scope| {
            let slow_get = scope.spawn(|| latest(&slow, &theirs));
            stop.reached.recv().unwrap();
            drop(publisher);
            stop.go_on.send(()).unwrap();
            let error = slow_get.join().unwrap().unwrap_err();
            let PublicationError::PublisherGone { pid, wrote, .. } = error else { panic!("{error}") };
            assert_eq!((pid, wrote), (std::process::id(), step != Step::Connected), "{step:?}");
        });
        // Nobody has the key now, and the next who publishes it is found.
        assert!(matches!(latest(&slow, &theirs), Err(PublicationError::NotPublished { .. })));
        let next = self::publisher(&ours, folder.path());
        publish(&next, &ours, 1).unwrap();
        assert_eq!(latest(&slow, &theirs).unwrap(), 1);
    }
}

/// A withdrawal waits for whoever publishes the key, and for nobody else.
#[test]
fn other_keys_are_published_while_a_withdrawal_waits() {
    let folder = tempfile::tempdir().unwrap();
    let ours = device(1);
    let (stop, observer) = Stop::at(Step::SlotTaken);
    let options = PublisherOptions::default().observer(observer);
    let publisher = Publisher::open(ours.clone(), folder.path(), options).unwrap();
    let buffer = loaded(&ours, &values(1, 0, 100));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| publish(&publisher, &ours, 1));
        stop.reached.recv().unwrap();
        let withdrawn = scope.spawn(|| publisher.withdraw("solver"));
        for version in 1..=100 {
            publisher.publish("other", version, LAYOUT, &[part("weights", &buffer, 100)]).unwrap();
        }
        stop.go_on.send(()).unwrap();
        first.join().unwrap().unwrap();
        withdrawn.join().unwrap().unwrap(); // true, or it came before the key was there
    });
    publish(&publisher, &ours, 2).unwrap();
}

#[test]
fn a_key_that_is_withdrawn_can_be_had_no_more_and_is_free_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (device(1), device(2));
    let publisher = publisher(&ours, folder.path());
    publish(&publisher, &ours, 1).unwrap();
    let (stop, slow) = slow(&theirs, folder.path(), Step::Copying);
    std::thread::scope(|scope| {
        let slow_get = scope.spawn(|| latest(&slow, &theirs));
        stop.reached.recv().unwrap();
        assert!(publisher.withdraw("solver").unwrap());
        stop.go_on.send(()).unwrap();
        let error = slow_get.join().unwrap().unwrap_err();
        assert!(matches!(error, PublicationError::Ended { version: 1, .. }), "{error}");
    });
    assert!(!publisher.withdraw("solver").unwrap(), "there is nothing any more");
    assert!(matches!(latest(&slow, &theirs), Err(PublicationError::NotPublished { .. })));
    let other = self::publisher(&ours, folder.path());
    publish(&other, &ours, 1).unwrap();
    assert_eq!(latest(&slow, &theirs).unwrap(), 1);
}
