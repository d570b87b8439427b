//! Processes that are killed at each step.

use forebay_trainer_adapter::publication::*;

use crate::program::Program;
use crate::rotation::Stop;
use crate::state::*;

// FX-B20
#[test]
fn a_reader_that_is_killed_at_any_step_gives_back_what_it_held() {
    for step in Step::READER {
        let folder = tempfile::tempdir().unwrap();
        let own = device(1);
        let publisher = publisher(&own, folder.path());
        publish(&publisher, &own, 1).unwrap();
        for round in 0..2 {
            let mut reader = Program::dying(folder.path(), step, 0);
            reader.tell("get solver latest");
            reader.is_killed();
            // Each slot in turn: a publish would wait for a hold that nobody ends.
            (2..5).for_each(|version| publish(&publisher, &own, 3 * round + version).unwrap());
        }
        assert_eq!(publisher.counts().holds, 0, "{step:?}");
        let mut after = Program::start(folder.path(), &[]);
        after.asks("get solver latest", "got 7");
    }
}

// FX-B20
#[test]
fn a_version_in_place_ends_also_when_its_reader_was_killed() {
    for step in [Step::Granted, Step::Copied] {
        let folder = tempfile::tempdir().unwrap();
        let own = device(1);
        let publisher = publisher(&own, folder.path());
        let buffers = [0, 1].map(|class| shared(&own, &values(1, class, LENGTHS[class])));
        let parts: Vec<_> = (0..2).map(|at| part(CLASSES[at], &buffers[at], LENGTHS[at])).collect();
        let barrier = publisher.in_place("solver", 1, LAYOUT, &parts).unwrap();
        let mut reader = Program::dying(folder.path(), step, 0);
        reader.tell("get solver latest");
        reader.is_killed();
        barrier.end().unwrap();
    }
}

/// What the publisher was doing when it was killed, beside readers who have had a version of it before.
// FX-B20, FX-69
#[test]
fn a_publisher_that_is_killed_at_any_step_leaves_no_version_and_the_next_takes_over() {
    for step in Step::PUBLISHER {
        let folder = tempfile::tempdir().unwrap();
        let own = device(1);
        let reader = reader(&own, folder.path());
        let is_publish = !matches!(step, Step::InPlace | Step::Ending);
        let mut dying = Program::dying(folder.path(), step, usize::from(is_publish));
        dying.asks("publish 1", "published 1");
        assert_eq!(latest(&reader, &own).unwrap(), 1);
        if is_publish {
            dying.tell("publish 2");
        } else {
            dying.tell("in_place 2\nend");
        }
        if step == Step::Ending {
            assert_eq!(dying.said().as_deref(), Some("in place 2"));
        }
        dying.is_killed();
        let error = latest(&reader, &own).unwrap_err();
        let PublicationError::PublisherGone { pid, wrote: false, .. } = error else {
            panic!("{step:?}: {error}")
        };
        assert_eq!(pid, dying.pid());

        let mut next = Program::start(folder.path(), &[]);
        next.asks("publish 1", "published 1");
        assert_eq!(latest(&reader, &own).unwrap(), 1, "{step:?}");
        assert_eq!(reader.counts().domains_made, 2);
        let sockets = std::fs::read_dir(folder.path()).unwrap();
        let sockets = sockets.filter(|entry| entry.as_ref().unwrap().path().extension().unwrap() == "socket");
        assert_eq!(sockets.count(), 1, "the dead one's socket is gone");
    }
}

// FX-B20, FX-69
#[test]
fn a_publisher_that_is_killed_in_the_middle_of_a_get_is_an_error_of_it() {
    for step in Step::READER {
        let folder = tempfile::tempdir().unwrap();
        let own = device(1);
        let mut dying = Program::start(folder.path(), &[]);
        dying.asks("publish 1", "published 1");
        let (stop, observer) = Stop::at(step);
        let options = ReaderOptions::default().observer(observer);
        let reader = Reader::open(own.clone(), folder.path(), options).unwrap();
        std::thread::scope(|scope| {
            let get = scope.spawn(|| latest(&reader, &own));
            stop.reached.recv().unwrap();
            dying.kill();
            stop.go_on.send(()).unwrap();
            match get.join().unwrap() {
                // It had said before that the version was still the one.
                Ok(version) => assert_eq!((version, step), (1, Step::Released)),
                Err(PublicationError::PublisherGone { wrote, .. }) => {
                    assert!(step != Step::Released && wrote == (step != Step::Connected), "{step:?}");
                }
                Err(error) => panic!("{step:?}: {error}"),
            }
        });
    }
}
