//! Objects that wait for their removal.
//!
//! A commit makes older versions of its objects needless, but only where it is known: a state of the store before it, to
//! which the end of the process or of the power may lead back, still stands on them. So they go once the commit's record is
//! proven to be on stable storage, which takes one more sync or a checkpoint, and seen by every reader; the next commit,
//! sync or background duty finds that out.

use std::collections::HashSet;

use crate::directory::Directory;
use crate::object;
use crate::sync::Mutex;

/// What goes once a commit is on stable storage.
#[derive(Debug)]
pub(crate) struct Retirement {
    /// Every record below this one has to be proven to be on stable storage.
    pub(crate) commits: u64,
    pub(crate) key: String,
    /// Versions below this one go,
    pub(crate) below: u64,
    /// except these.
    pub(crate) needed: HashSet<u64>,
}

/// The retirements that wait. A leaf among the locks.
#[derive(Debug, Default)]
pub(crate) struct Retiring(Mutex<Vec<Retirement>>);

impl Retiring {
    pub(crate) fn add(&self, retirements: impl IntoIterator<Item = Retirement>) {
        self.0.lock().extend(retirements);
    }

    /// Whether something waits for a commit that is durable and only has to be proven so.
    pub(crate) fn waits_for_proof(&self, durable_commits: u64, proven_commits: u64) -> bool {
        let unproven = proven_commits + 1..=durable_commits;
        self.0.lock().iter().any(|retirement| unproven.contains(&retirement.commits))
    }

    /// Removes what is due, but for versions that were set: these are looked after by the object layer.
    pub(crate) fn remove_due(
        &self,
        directory: &Directory,
        proven_commits: u64,
        is_set: impl Fn(&str, u64) -> bool,
    ) {
        let due: Vec<Retirement> = {
            let mut waiting = self.0.lock();
            let proven = waiting.iter().map(|r| r.commits).filter(|commits| *commits <= proven_commits).max();
            if proven.is_none_or(|commits| !directory.may_give_away(commits)) {
                return;
            }
            waiting.extract_if(.., |retirement| retirement.commits <= proven_commits).collect()
        };
        for Retirement { key, below, needed, .. } in due {
            let over = |version| version < below && !needed.contains(&version) && !is_set(&key, version);
            object::retire(directory, &object::files_over(directory, &key, over));
        }
    }
}
