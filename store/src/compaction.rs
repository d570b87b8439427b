//! Compaction: at once what the background duties do in the course of time, and more thoroughly.
//!
//! Rows go that the retention does not keep; extents of versions that are over are sealed; what is left in extents of which less
//! than a half is live moves together, into extents that are sealed behind it: else the last of them would keep what was reserved
//! for more, which in a store of few extents is more than was gained. A checkpoint is taken, and another once something has moved, and
//! the log before it removed; and extents that nobody needs are given back to the file system instead of being kept to be used again.
//! Others go on writing. What readers hold back, of this process or another, stays, and the report says how much that is.

use crate::error::Result;
use crate::store::Store;

/// What is left of an extent moves when less than one part in so many of what was written to it is live.
const SPARSE_PARTS: u64 = 2;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Bytes that extents and log took before.
    pub bytes_before: u64,
    /// Bytes that they take now.
    pub bytes_after: u64,
    /// Values that were moved together.
    pub values_moved: u64,
    /// Bytes that would be free as well, were it not for the one who holds back most of them: see
    /// [`Store::pins`](crate::Store::pins).
    pub held_back_bytes: u64,
}

impl Store {
    /// Makes the store as small as it can be now, while others go on with it. Costs a checkpoint and a copy of what is sparse:
    /// for an operator who needs room, not for every hour.
    ///
    /// ```
    /// use forebay_store::{DataType, Delete, Options, Schema, Store};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = Store::open(dir.path().join("store"), Options::default())?;
    /// let solver = store.create_table("solver", Schema::new().data("prompt", DataType::Utf8))?;
    /// solver.insert(0, "q17_0_0", [("prompt", "long ".repeat(1000).as_str().into())])?;
    /// solver.delete(&Delete::all_confirmed().force())?;
    /// let report = store.compact()?;
    /// assert_eq!((report.values_moved, report.held_back_bytes), (0, 0)); // nothing was sparse, and nobody reads what went
    /// # Ok::<(), forebay_store::Error>(())
    /// ```
    ///
    /// # Errors
    /// `state` when the store is read only; `capacity` when there is no room for what is moved, or for the checkpoint: what was
    /// done until then holds. `corrupt` when a value that was to move is damaged: all else was done.
    pub fn compact(&self) -> Result<CompactReport> {
        let shared = &self.0;
        shared.check_writable("compact it")?;
        let bytes_before = shared.disk_bytes()?;
        self.apply_retention(true)?;
        shared.seal_what_is_over();
        self.checkpoint()?; // lets the log go
        self.free_what_is_over()?; // first: what moves may need room
        let evacuated = shared.evacuate_below(SPARSE_PARTS)?;
        let values_moved = evacuated.moved as u64;
        shared.values.seal_moved(); // also what a duty has moved before
        if values_moved > 0 {
            self.checkpoint()?; // what was said of each that moved is in it
            self.free_what_is_over()?;
        }
        shared.values.drop_free(u64::MAX)?;
        shared.retire_due();
        evacuated.whole()?;
        let held_back_bytes = shared.pins().first().map_or(0, |pin| pin.bytes);
        Ok(CompactReport { bytes_before, bytes_after: shared.disk_bytes()?, values_moved, held_back_bytes })
    }

    /// The records that emptied extents have to be proven before those may go.
    fn free_what_is_over(&self) -> Result<()> {
        self.0.prove_unproven()?;
        self.0.reclaim().map(drop)
    }
}
