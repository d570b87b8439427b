//! Where a log begins for who needs it from a record on.
//!
//! Segments that a checkpoint covers are removed from the first on, but after a power failure a later removal may have
//! happened and an earlier one not: then there is a gap behind what was to go first. What lies before it is nobody's.

use std::path::{Path, PathBuf};

use super::frame::{OF_NO_RUN, SegmentHeader};
use super::segments::{HeaderFound, SegmentFile};
use super::window::Window;
use crate::directory::Directory;
use crate::disk::Disk;
use crate::error::{Cause, Result};
use crate::numbered::Numbered;

/// Of segments in order, by number: the first from which on there is no gap up to the one at `covers`.
fn run_of(numbers: &[u32], covers: usize) -> usize {
    let follows = |at: &usize| numbers[*at - 1].checked_add(1) == Some(numbers[*at]);
    covers - (1..=covers).rev().take_while(follows).count()
}

/// Which of these files, in order, the log begins with for who needs it from record `from` on: the first from which on
/// there is no gap up to the last one that begins with that record or before it. The first of all, where none does.
pub(super) fn first_of(disk: &dyn Disk, files: &[PathBuf], from: u64) -> usize {
    let covers = files.iter().rposition(|path| begins_by(disk, path, from)).unwrap_or(0);
    let numbers: Vec<u32> = files.iter().map(|path| Numbered::Segment.number(path).unwrap_or(0)).collect();
    if files.is_empty() { 0 } else { run_of(&numbers, covers) }
}

fn begins_by(disk: &dyn Disk, path: &Path, from: u64) -> bool {
    let header = Window::open(disk, path, 0).and_then(|mut window| window.header());
    let header = header.ok().flatten().and_then(|bytes| SegmentHeader::decode(&bytes).ok());
    header.is_some_and(|header| {
        Numbered::Segment.number(path) == Some(header.number) && header.first_sequence <= from
    })
}

/// Removes the segments before a gap behind which the log begins for who needs it from record `from` on, and those before the
/// proof of a cut that he needs nothing before of either: the machine may have gone down between the proof and the cut itself, and
/// what was to be cut away is no part of the log, though he does not come by it. Where the machine went down (`checked`) everything
/// goes that he does not need, for it may have been damaged before anything in it was needed; where somebody still reads there, what
/// has a damaged header and what lies before it.
pub(crate) fn remove_superfluous(
    directory: &Directory,
    segments: &[SegmentFile],
    from: u64,
    checked: bool,
) -> Result<()> {
    let begins = |file: &SegmentFile| file.sound().is_some_and(|header| header.first_sequence <= from);
    let Some(covers) = segments.iter().rposition(begins) else { return Ok(()) };
    let numbers: Vec<u32> = segments.iter().map(|file| file.number).collect();
    let is_proof = |file: &SegmentFile| file.sound().is_some_and(|header| header.boot == OF_NO_RUN);
    let proof = segments[..=covers].iter().rposition(is_proof).unwrap_or(0);
    let is_damaged = |file: &SegmentFile| checked && matches!(file.header, HeaderFound::Damaged);
    let behind_damaged = segments[..covers].iter().rposition(is_damaged).map_or(0, |at| at + 1);
    // Who has seen no more than what lies before `from` stands in what would go.
    let first = match checked && directory.may_give_away(from.saturating_add(1)) {
        true => covers,
        false => proof.max(behind_damaged).max(run_of(&numbers, covers)),
    };
    for file in &segments[..first] {
        directory.disk.remove(&file.path).map_err(|e| Cause::io("remove", &file.path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_before_a_gap_is_passed_over() {
        for (numbers, covers, first) in [
            (&[1, 2, 3][..], 2, 0),
            (&[1, 2, 3], 0, 0),
            (&[1, 3, 4], 2, 1),
            (&[1, 3, 4], 1, 1),
            (&[1, 3, 4], 0, 0),
            (&[1, 2, 5, 9, 10], 4, 3),
            (&[7], 0, 0),
        ] {
            assert_eq!(run_of(numbers, covers), first, "{numbers:?} {covers}");
        }
    }
}
