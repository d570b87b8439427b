#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::sync::{Arc, Mutex};

use super::*;
use crate::process_group::{GroupOptions, LocalLauncher};
use crate::states::{Fill, PartInfo, States};

/// States whose newest version this is, and that have no other.
struct Newest(Mutex<Option<Version>>);

impl States for Newest {
    fn stage_from(&self, key: &str, _: &str, _: u64, _: &mut Fill<'_>) -> Result<Staged, StatesError> {
        Err(StatesError::Name { name: key.to_owned() })
    }

    fn commit(&self, key: &str, _: u64, _: &[Staged]) -> Result<u64, StatesError> {
        Err(StatesError::Name { name: key.to_owned() })
    }

    fn find(&self, _: &str, which: Which) -> Result<Option<Version>, StatesError> {
        let newest = self.0.lock().unwrap().clone();
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
    let folder = tempfile::tempdir().unwrap();
    let states = Arc::new(Newest(Mutex::default()));
    let launcher = Arc::new(LocalLauncher::new("program", folder.path().join("sockets")).unwrap());
    let mut group =
        ProcessGroup::create("solver", GroupOptions::default(), launcher, states.clone()).unwrap();
    let ours = [Staged("ours".to_owned())];
    for known in [0, 1] {
        group.version = known;
        for (number, staged, expected) in [(2, "ours", Some(2)), (3, "ours", Some(3)), (2, "theirs", None)] {
            let part = PartInfo { name: "trainer".into(), bytes: 0, staged: Staged(staged.to_owned()) };
            *states.0.lock().unwrap() = Some(Version { number, parts: vec![part] });
            assert_eq!(group.committed(&ours).unwrap(), expected, "after {known}, {staged} at {number}");
        }
    }
}
