//! The log, looked at place by place and replayed as far as it goes.

use std::ops::ControlFlow;

use super::fault::FaultKind;
use super::progress::{VerifyStage, Watched};
use super::report::VerifyReport;
use crate::directory::Directory;
use crate::error::Result;
use crate::log::record::Record;
use crate::log::{self, Found, Place};
use crate::state::State;

/// The state as far as the log can be followed. Beyond the first record that is missing or damaged the log is still
/// looked at, but not applied: what comes later may rest on what is gone.
struct Replay<'a> {
    report: &'a mut VerifyReport,
    state: State,
    /// The first record that the state does not hold.
    next: u64,
    /// The record that should stand at the next place; `None` before the first.
    expected: Option<u64>,
    /// A damaged place was told just now: that records are missing behind it is no news.
    gap_told: bool,
    /// A record could not be applied.
    refused: bool,
}

/// Applies the records from `from` on to `state`.
pub(super) fn replay(
    directory: &Directory,
    report: &mut VerifyReport,
    state: State,
    from: u64,
    watched: &mut Watched<'_>,
) -> Result<State> {
    let (disk, folder, store_id) = (&*directory.disk, directory.log(), report.store_id);
    watched.begin(VerifyStage::Log, super::bytes_in(disk, &folder));
    let mut replay = Replay { report, state, next: from, expected: None, gap_told: false, refused: false };
    let mut goes_on = Ok(());
    let scanned = log::scan_from(disk, &folder, (store_id, from), |place, found| {
        if let Found::Record { bytes, .. } = &found {
            goes_on = watched.looked_at(*bytes);
        }
        replay.take(&place, found);
        if goes_on.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    goes_on?;
    if replay.expected.unwrap_or(0) < from {
        let reason = format!("the log ends before record {from}, up to which a checkpoint covers it");
        replay.report.fault(FaultKind::Record, &folder, 0, reason);
    }
    let Replay { report, state, next, .. } = replay;
    report.checked.segments = scanned.segments;
    report.checked.log_bytes = scanned.bytes;
    report.store_id = scanned.store_id;
    report.next_sequence = next;
    Ok(state)
}

impl Replay<'_> {
    fn take(&mut self, place: &Place, found: Found) {
        match found {
            Found::Begins { first_sequence } => {
                // Segments that a checkpoint covers may be gone.
                if self.expected.is_none() && first_sequence <= self.next {
                    self.expected = Some(first_sequence);
                }
                self.check_sequence(place, first_sequence, "segment begins with");
            }
            Found::Segment { reason } => self.fault(FaultKind::Segment, place, reason),
            Found::Damaged { reason } => {
                self.fault(FaultKind::Record, place, reason);
                self.gap_told = true;
            }
            Found::Torn { bytes } => self.report.checked.torn_bytes += bytes,
            Found::Record { sequence, record, .. } => {
                self.check_sequence(place, sequence, "there stands");
                self.expected = Some(sequence.saturating_add(1));
                self.report.checked.records += 1;
                if sequence == self.next && !self.refused {
                    self.apply(place, sequence, record);
                }
            }
        }
    }

    fn apply(&mut self, place: &Place, sequence: u64, record: Record) {
        match self.state.apply(record) {
            Ok(_) => self.next += 1,
            Err(reason) => {
                self.refused = true;
                self.fault(FaultKind::Record, place, format!("record {sequence}: {reason}"));
            }
        }
    }

    fn check_sequence(&mut self, place: &Place, found: u64, what: &str) {
        let expected = self.expected.replace(found).unwrap_or(0);
        let gap_told = std::mem::take(&mut self.gap_told) && found > expected;
        if found != expected && !gap_told {
            self.fault(FaultKind::Record, place, format!("{what} record {found} where {expected} should be"));
        }
    }

    fn fault(&mut self, kind: FaultKind, place: &Place, reason: String) {
        self.report.fault(kind, &place.path, place.offset, reason);
    }
}
