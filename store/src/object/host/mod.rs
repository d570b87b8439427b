//! The host tier: an arena of shared memory that is mapped once and kept.
//!
//! ```text
//! FOLDER/forebay-9f3a01c7b2d4e650-5f21c9aa/   one store's: its identity, and a checksum of its directory's path
//!   LOCK             flock of the process that has the store open
//!   OWNER            text: whose folder it is, and of which boot of the machine
//!   journal          which objects lie where
//!   00000001.segment, ...
//! ```
//! A segment is a file in memory. The arena gives extents of segments to payloads and takes them back; segments stay mapped,
//! so from the second swap on nothing is mapped or pinned any more. What was committed stands in the journal, so whoever
//! opens the store next in the same boot finds it; what was still being filled does not, and is free then. Where there is no
//! folder to be had, segments have no name and end with the process.

mod arena;
mod extent;
mod folder;
mod growth;
mod journal;
mod segment;
mod slot;
#[cfg(test)]
mod tests;

pub(super) use arena::Arena;
pub(super) use extent::{HostExtent, places_of};
pub(super) use folder::Folder;
pub(super) use folder::look_at_host;
pub use folder::{HostLeftover, host_leftovers};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use journal::replay as replay_journal;
pub(super) use journal::{Entry, Journal, Kept, LoanRecord, Recovered, read_journal};
pub(in crate::object) use segment::Segment;
pub use segment::SegmentInfo;
pub(super) use segment::read_segment;
