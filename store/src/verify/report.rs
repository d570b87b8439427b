//! What a check of a store says.

use std::path::PathBuf;

use super::fault::{FaultKind, VerifyFault};

/// More faults than this are counted and not described, so that a ruined store does not fill the memory.
const FAULTS_DESCRIBED: usize = 1000;

/// How much was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments of the log.
    pub segments: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Records that can be read.
    pub records: u64,
    /// Bytes of appends that were cut short: never acknowledged, and no fault.
    pub torn_bytes: u64,
    /// Page images of the checkpoint.
    pub pages: u64,
    /// Their bytes.
    pub page_bytes: u64,
    /// Tables.
    pub tables: u64,
    /// Rows over all tables.
    pub rows: u64,
    /// Final and partial cells, values inside the table included.
    pub cells: u64,
    /// Values in extents that a cell names.
    pub values: u64,
    /// Their bytes.
    pub value_bytes: u64,
    /// Those of them that a power failure took from their files and that records carry: opening the store puts them back, so they are no
    /// fault.
    pub values_carried: u64,
    /// Files of values.
    pub extents: u64,
    /// Objects that a policy stands on, and versions that were set and lie on the disk.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Claims that are known of.
    pub claims: u64,
    /// Steps.
    pub steps: u64,
    /// Policies.
    pub policies: u64,
    /// Consumers.
    pub consumers: u64,
}

/// What a check of a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The store's directory.
    pub path: PathBuf,
    /// Who the store is, where that can be told.
    pub store_id: Option<u64>,
    /// The sequence number that the next record would have: the check holds for every record below it.
    pub next_sequence: u64,
    /// How much was looked at.
    pub checked: Checked,
    /// Everything that is wrong, in the order in which it was found; at most a thousand.
    pub faults: Vec<VerifyFault>,
    /// How many more faults there are.
    pub faults_not_described: u64,
    /// Files that nothing names: what a crash between a write and its record leaves, or what a later commit left behind.
    /// They take room and are no fault.
    pub orphans: Vec<PathBuf>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }

    /// How many faults were found.
    pub fn fault_count(&self) -> u64 {
        self.faults.len() as u64 + self.faults_not_described
    }

    pub(super) fn add(&mut self, fault: VerifyFault) {
        if self.faults.len() < FAULTS_DESCRIBED {
            self.faults.push(fault);
        } else {
            self.faults_not_described += 1;
        }
    }

    pub(crate) fn fault(
        &mut self,
        kind: FaultKind,
        path: &std::path::Path,
        offset: u64,
        reason: impl Into<String>,
    ) {
        self.add(VerifyFault::new(kind, path, offset, reason));
    }
}
