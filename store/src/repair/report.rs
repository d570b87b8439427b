//! What a repair kept, and what it gave up.

use std::path::PathBuf;

use crate::verify::{VerifyFault, VerifyReport};

/// More losses than this are counted and not described.
const LOSSES_DESCRIBED: usize = 1000;

/// What a repair of a store came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The damaged store.
    pub path: PathBuf,
    /// The repaired copy; `None` for a trial, which writes nothing.
    pub to: Option<PathBuf>,
    /// What is wrong with the damaged store's own files.
    pub faults: Vec<VerifyFault>,
    /// How many more faults there are.
    pub faults_not_described: u64,
    /// Records that the repaired log keeps as they were.
    pub records_kept: u64,
    /// Records that could be read but not kept, or not as they were.
    pub records_given_up: u64,
    /// Places of the log that could not be read at all, each with an unknown number of records.
    pub records_unreadable: u64,
    /// Records that are known to be missing, by the numbers of those around them.
    pub records_missing: u64,
    /// Rows that are known to have been there and that no record tells anything of. They are excluded as `damaged`.
    pub rows_lost: u64,
    /// Cells that were emptied because their values are damaged.
    pub cells_emptied: u64,
    /// Rows that were excluded as `damaged` because a cell of theirs was emptied. Rows that a step had trained on, or that
    /// were excluded before, stay what they were.
    pub rows_excluded: u64,
    /// Values that were not in their files and that records carried: they are in the copy's.
    pub values_put_back: u64,
    /// Objects that are missing or damaged. Policies that stood on them name them no more; a rewind to where one only stood then is
    /// refused; versions that were set are gone.
    pub objects_lost: u64,
    /// Everything that was given up, one line each; at most a thousand.
    pub losses: Vec<String>,
    /// How many more losses there are.
    pub losses_not_described: u64,
    /// What a full check of the repaired copy says; `None` for a trial.
    pub verified: Option<VerifyReport>,
}

impl RepairReport {
    /// Whether nothing had to be given up.
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty()
    }

    pub(super) fn lose(&mut self, what: impl Into<String>) {
        if self.losses.len() < LOSSES_DESCRIBED {
            self.losses.push(what.into());
        } else {
            self.losses_not_described += 1;
        }
    }
}
