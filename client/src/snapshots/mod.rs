//! Snapshots: one instant of all tables or some, held for a time, wherever the store is.
//!
//! What they are and what holds of them is said by [`forebay_store::Snapshot`]. [`Snapshot`] and [`SnapshotTable`] are what callers
//! hold. [`SnapshotCalls`] is the seam under them: plain calls that name a snapshot by its number, as [`KeptSnapshots`] keeps it, of an
//! embedded client or of a server's session. Rows are read batch by batch, each when it is asked for, so who reads slowly holds nothing up but the
//! space that his snapshot shows, and that has a deadline.

mod calls;
mod handle;
mod kept;
mod orders;
mod rows;

pub use calls::{ReadRows, SnapshotCalls, TableShown, TakeSnapshot, TakenSnapshot};
pub use handle::{Snapshot, SnapshotBatches, SnapshotTable};
pub use kept::KeptSnapshots;
