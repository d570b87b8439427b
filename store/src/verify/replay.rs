//! The log, looked at place by place and replayed as far as it goes.

use std::path::Path;

use super::fault::FaultKind;
use super::progress::{VerifyProgress, VerifyStage};
use super::report::VerifyReport;
use crate::disk::Disk;
use crate::error::Result;
use crate::log::record::Record;
use crate::log::{self, Found, Place};
use crate::state::State;

/// The state as far as the log can be followed. Beyond the first record that is missing or damaged the log is still
/// looked at, but not applied: what comes later may rest on what is gone.
pub(super) struct Replay<'a> {
    report: &'a mut VerifyReport,
    pub(super) state: State,
    expected: u64,
    followed: bool,
    /// A damaged place was told just now: that records are missing behind it is no news.
    gap_told: bool,
}

pub(super) fn replay(
    disk: &dyn Disk,
    path: &Path,
    report: &mut VerifyReport,
    claims_kept: usize,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<State> {
    let (folder, store_id) = (path.join("log"), report.store_id);
    let total_bytes = super::bytes_in(disk, &folder);
    let state = State::new(claims_kept);
    let mut replay = Replay { report, state, expected: 0, followed: true, gap_told: false };
    let mut done_bytes = 0;
    let scanned = log::scan(disk, &folder, store_id, |place, found| {
        if let Found::Record { bytes, .. } = &found {
            done_bytes += bytes;
            progress(VerifyProgress { stage: VerifyStage::Log, done_bytes, total_bytes });
        }
        replay.take(&place, found);
    })?;
    let Replay { report, state, .. } = replay;
    report.checked.segments = scanned.segments;
    report.checked.log_bytes = scanned.bytes;
    report.store_id = scanned.store_id;
    report.next_sequence = state.commits;
    Ok(state)
}

impl Replay<'_> {
    fn take(&mut self, place: &Place, found: Found) {
        match found {
            Found::Begins { first_sequence } => {
                self.check_sequence(place, first_sequence, "segment begins with");
            }
            Found::Segment { reason } => self.fault(FaultKind::Segment, place, reason),
            Found::Damaged { reason } => {
                self.fault(FaultKind::Record, place, reason);
                (self.followed, self.gap_told) = (false, true);
            }
            Found::Torn { bytes } => self.report.checked.torn_bytes += bytes,
            Found::Record { sequence, record, .. } => {
                self.check_sequence(place, sequence, "there stands");
                self.expected = sequence.saturating_add(1);
                if self.followed {
                    self.apply(place, sequence, record);
                }
            }
        }
    }

    fn apply(&mut self, place: &Place, sequence: u64, record: Record) {
        match self.state.apply(record) {
            Ok(_) => self.report.checked.records += 1,
            Err(reason) => {
                self.followed = false;
                self.fault(FaultKind::Record, place, format!("record {sequence}: {reason}"));
            }
        }
    }

    fn check_sequence(&mut self, place: &Place, found: u64, what: &str) {
        let gap_told = std::mem::take(&mut self.gap_told) && found > self.expected;
        let expected = std::mem::replace(&mut self.expected, found);
        if found != expected && !gap_told {
            self.fault(FaultKind::Record, place, format!("{what} record {found} where {expected} should be"));
            self.followed = false;
        }
    }

    fn fault(&mut self, kind: FaultKind, place: &Place, reason: String) {
        self.report.fault(kind, &place.path, place.offset, reason);
    }
}
