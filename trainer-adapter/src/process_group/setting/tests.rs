#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::process_group::{GroupOptions, LocalLauncher};
use crate::states::{Fill, PartInfo, States};

/// States whose newest version this is, and that have no other.
#[derive(Default)]
struct Newest {
    version: Mutex<Option<Version>>,
    /// Whether there is no room to make it durable.
    is_full: AtomicBool,
}

impl Newest {
    fn set(&self, number: u64, staged: &str) {
        let part = PartInfo { name: "trainer".into(), bytes: 0, staged: Staged(staged.to_owned()) };
        *self.version.lock().unwrap() = Some(Version { number, parts: vec![part] });
    }

    /// A group with these states, or why there is none.
    fn group(self: &Arc<Self>) -> Result<ProcessGroup, GroupError> {
        let folder = tempfile::tempdir().unwrap();
        let launcher = Arc::new(LocalLauncher::new("program", folder.path().join("sockets")).unwrap());
        ProcessGroup::create("solver", GroupOptions::default(), launcher, self.clone())
    }
}

impl States for Newest {
    fn stage_from(&self, key: &str, _: &str, _: u64, _: &mut Fill<'_>) -> Result<Staged, StatesError> {
        Err(StatesError::Name { name: key.to_owned() })
    }

    fn commit(&self, key: &str, _: u64, _: &[Staged]) -> Result<u64, StatesError> {
        Err(StatesError::Name { name: key.to_owned() })
    }

    fn make_durable(&self, key: &str, version: u64) -> Result<(), StatesError> {
        assert_eq!(self.version.lock().unwrap().as_ref().map(|newest| newest.number), Some(version));
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        if self.is_full.load(Ordering::Relaxed) {
            return Err(StatesError::Io { verb: "sync", path: key.into(), source });
        }
        Ok(())
    }

    fn find(&self, _: &str, which: Which) -> Result<Option<Version>, StatesError> {
        let newest = self.version.lock().unwrap().clone();
        Ok(newest.filter(|newest| which == Which::Latest || which == Which::Exact(newest.number)))
    }

    fn open<'a>(&'a self, key: &str, _: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        Err(StatesError::Missing { key: key.to_owned(), what: part.to_owned() })
    }
}

/// A commit that was not answered is found by its parts: at the next number, and at a later one where that was of a version that was
/// taken back.
#[test]
fn what_was_committed_is_found_whatever_number_it_has() {
    let states = Arc::new(Newest::default());
    let mut group = states.group().unwrap();
    let ours = [Staged("ours".to_owned())];
    for known in [0, 1] {
        group.version = known;
        for (number, staged, expected) in [(2, "ours", Some(2)), (3, "ours", Some(3)), (2, "theirs", None)] {
            states.set(number, staged);
            assert_eq!(group.committed(&ours).unwrap(), expected, "after {known}, {staged} at {number}");
        }
    }
}

/// Whoever made it may have been killed before it was durable.
#[test]
fn nobody_goes_on_from_a_version_that_cannot_be_made_durable() {
    let states = Arc::new(Newest::default());
    let group = states.group().unwrap();
    states.set(1, "ours");
    states.is_full.store(true, Ordering::Relaxed);
    assert!(matches!(group.committed(&[Staged("ours".to_owned())]), Err(StatesError::Io { .. })));
    assert_eq!(group.committed(&[Staged("theirs".to_owned())]).unwrap(), None);
    let source = |refused: GroupError| match refused {
        GroupError::States { source, .. } => source,
        other => panic!("{other}"),
    };
    assert!(matches!(source(states.group().unwrap_err()), StatesError::Io { verb: "sync", .. }));
    states.is_full.store(false, Ordering::Relaxed);
    // It comes to the ledger, which there is none of here.
    assert!(matches!(source(states.group().unwrap_err()), StatesError::Missing { .. }));
}
