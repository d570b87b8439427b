//! Random publishes and gets, in every order that threads and processes give, with a look at every value.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_trainer_adapter::Device;
use forebay_trainer_adapter::device::StandInDevice;
use forebay_trainer_adapter::publication::*;

use crate::program::Program;
use crate::state::*;

const READERS: u64 = 3;
const VERSIONS: u64 = 60;

/// Publishes versions in both modes and in changing lengths, and changes what they were made of at once.
fn publish_all(publisher: &Publisher<StandInDevice>, ours: &StandInDevice, seed: u64) {
    let mut random = seed;
    for version in 1..=VERSIONS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lengths = [100 + (random >> 40) as usize % 900, 1 + (random >> 20) as usize % 400];
        if random >> 62 == 0 {
            let mut buffers = [0, 1].map(|class| shared(ours, &values(version, class, lengths[class])));
            let parts: Vec<_> = (0..2).map(|at| part(CLASSES[at], &buffers[at], lengths[at])).collect();
            let barrier = publisher.in_place("solver", version, LAYOUT, &parts).unwrap();
            if random >> 61 & 1 == 0 {
                barrier.end().unwrap();
            } else {
                drop(barrier);
            }
            buffers.iter_mut().zip(lengths).for_each(|(buffer, length)| ours.clear(buffer, 0, length));
        } else {
            publish_of(publisher, ours, version, lengths).unwrap();
        }
    }
}

/// Gets until the publisher is done, and checks everything. How many versions it has seen.
fn get_all(folder: &std::path::Path, seed: u64, is_over: &AtomicBool, most: &AtomicU64) -> u64 {
    let theirs = device(seed);
    let reader = reader(&theirs, folder);
    let (mut last, mut seen) = (0, 0);
    loop {
        let ends = is_over.load(Ordering::Acquire);
        let wanted = match seed % 3 {
            0 => Wanted::latest("solver"),
            1 => Wanted::new("solver", Which::AtLeast(last + 1, Duration::from_millis(20))),
            _ => Wanted::new("solver", Which::Exact(most.load(Ordering::Acquire))),
        };
        match reader.get(&wanted) {
            Ok(got) => {
                let version = checked(&theirs, &got);
                seen += u64::from(version != last);
                last = version;
                most.fetch_max(version, Ordering::AcqRel);
            }
            // A version in place may be over at once.
            Err(PublicationError::NoVersion { .. } | PublicationError::Ended { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if ends {
            let counts = reader.counts();
            assert_eq!(counts.domains_made, 1, "seed {seed}");
            return seen;
        }
    }
}

// FX-64, FX-65
#[test]
fn readers_never_see_a_mixed_version() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let ours = device(seed);
        let publisher = publisher(&ours, folder.path());
        publish(&publisher, &ours, 0).unwrap();
        let mut other = Program::start(folder.path(), &[]);
        let (is_over, most) = (AtomicBool::new(false), AtomicU64::new(0));
        let seen: u64 = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|number| {
                    let (folder, is_over, most) = (folder.path(), &is_over, &most);
                    scope.spawn(move || get_all(folder, 100 * seed + number, is_over, most))
                })
                .collect();
            let writer = scope.spawn(|| publish_all(&publisher, &ours, seed));
            while !writer.is_finished() {
                other.tell("get solver latest");
                let said = other.said().unwrap();
                assert!(said.starts_with("got") || said == "error Ended", "{said}");
            }
            writer.join().unwrap();
            is_over.store(true, Ordering::Release);
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert!(seen > 0, "seed {seed}");
        assert_eq!(publisher.counts().holds, 0);
    }
}
