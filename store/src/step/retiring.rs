//! Objects that wait for their removal.
//!
//! A commit makes older versions of its objects needless, but only where it is known: a state of the store before it, to
//! which the end of the process or of the power may lead back, still stands on them. So they go once the commit's record is
//! proven to be on stable storage, which takes one more sync or a checkpoint, and seen by every reader; the next commit,
//! sync or background duty finds that out.

use std::collections::HashSet;

use crate::directory::Directory;
use crate::sync::{Mutex, Rank};

/// What goes once a commit is on stable storage.
#[derive(Debug)]
pub(crate) struct Retirement {
    /// Every record below this one has to be proven to be on stable storage.
    pub(crate) commits: u64,
    pub(crate) key: String,
    pub(crate) over: Over,
}

/// Which versions go.
#[derive(Debug)]
pub(crate) enum Over {
    /// Those below one, except some.
    Below { below: u64, needed: HashSet<u64> },
    /// One that a step named which was undone.
    Version(u64),
}

/// The retirements that wait.
#[derive(Debug)]
pub(crate) struct Retiring(Mutex<Vec<Retirement>>);

impl Default for Retiring {
    fn default() -> Self {
        Retiring(Mutex::ranked(Rank::Retiring, Vec::new()))
    }
}

impl Retiring {
    pub(crate) fn add(&self, retirements: impl IntoIterator<Item = Retirement>) {
        self.0.lock().extend(retirements);
    }

    /// Whether something waits for a commit that is durable and only has to be proven so.
    pub(crate) fn waits_for_proof(&self, durable_commits: u64, proven_commits: u64) -> bool {
        let unproven = proven_commits + 1..=durable_commits;
        self.0.lock().iter().any(|retirement| unproven.contains(&retirement.commits))
    }

    /// Whether something waits for a commit that is not durable.
    pub(crate) fn waits_for_sync(&self, durable_commits: u64) -> bool {
        self.0.lock().iter().any(|retirement| retirement.commits > durable_commits)
    }

    /// Takes out what is due.
    pub(crate) fn take_due(&self, directory: &Directory, proven_commits: u64) -> Vec<Retirement> {
        let mut waiting = self.0.lock();
        let proven = waiting.iter().map(|r| r.commits).filter(|commits| *commits <= proven_commits).max();
        if proven.is_none_or(|commits| !directory.may_give_away(commits)) {
            return Vec::new();
        }
        waiting.extract_if(.., |retirement| retirement.commits <= proven_commits).collect()
    }
}
