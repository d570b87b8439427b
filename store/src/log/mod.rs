//! The log: the order of events, from which everything but value bytes is rebuilt.
//!
//! An event is applied to the state in memory and appended to the log's buffer under the state's lock, so both see the
//! same order; the call that caused it returns only after the buffer has been handed to the kernel ([`Writer::flush`]).
//! Many callers share one write: whoever gets the file writes all that is waiting.
//! A call whose level is `memory` returns before that, one whose level is `synced` only when the log is on stable storage
//! too ([`Writer::sync`]); many callers share one sync ([`mod@commit`]).
//!
//! Invariants
//! - Sequence numbers grow by one from record to record, across segments.
//! - Only the last segment of a process's life may end in a torn record, and that record was never acknowledged. The
//!   next life begins a new segment whose header names the sequence number that it continues with, so a record that is
//!   missing in the middle is seen.
//! - After a failed write or sync nothing more is accepted; on a full disk [`mod@room`] is made first. A [`Proof`] that finds no room
//!   changes nothing.
//! - Once the header of a segment is whole the one before it does not grow.
//! - What a record names is on stable storage before the log is synced, unless a record that the same sync makes durable says
//!   that it is nobody's any more; `durable_through` never tells more than is so.
//!
//! Lock order: state, then `buffer`. `file` is taken only with neither held, except that its holder takes `buffer`. No lock
//! is held while the disk syncs: appending goes on meanwhile.

mod begin;
mod commit;
mod follow;
mod frame;
mod proof;
mod reader;
pub(crate) mod record;
mod room;
mod scan;
mod segments;
mod window;
mod writer;

pub(crate) use begin::remove_superfluous;
pub(crate) use follow::Follower;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use frame::make_checksums_right;
#[cfg(test)]
pub(crate) use frame::{FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES};
pub(crate) use proof::Proof;
pub(crate) use reader::{Damage, LogEnd, Refusal, read};
pub(crate) use room::MakesRoom;
pub(crate) use scan::{Found, Place, scan, scan_from, store_id};
pub(crate) use segments::{SegmentFile, cut, last_boot, prove_copy, segments, survey};
pub(crate) use writer::{Appended, BUFFER_BYTES, Named, Writer};
