//! How much an acknowledgement promises.

use std::fmt;

/// What a write that was acknowledged survives.
///
/// A store has a level ([`Options::durability`](crate::Options::durability)), and a call may ask for another one. Whatever
/// the level, the log keeps one order: what survives is always a whole prefix of what was written, never a later write
/// without an earlier one. A claim is a lease that ends with its process: it waits for nothing at any level, and what its
/// holder writes or accumulates is acknowledged as any other call.
///
/// ```
/// use forebay_store::{DataType, Durability, NewRow, Options, Schema, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?; // `Logged`
/// let table = store.create_table("solver", Schema::new().data("reward", DataType::Float32))?;
/// let mut batch = store.batch();
/// batch.durability(Durability::Synced);
/// batch.insert(&table, NewRow::new(0, "q17_0_0")?, [("reward", 1.0.into())])?;
/// batch.commit()?; // on stable storage now, with everything that was written before it
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// Nothing beyond this process: acknowledged before the log is written. What was acknowledged since the last write of
    /// the log is gone when the process dies. A store of this level syncs nothing by itself but what calls of another level
    /// wrote: when the power fails, all since the last checkpoint or sync may be gone.
    Memory,
    /// Handed to the kernel before the acknowledgement: survives any end of the process, and may be lost when the power
    /// fails before the next sync. Space of what was written and is over between two syncs is used again before the second.
    #[default]
    Logged,
    /// On stable storage before the acknowledgement, with everything before it: survives a power failure. Calls at the
    /// same time share one sync.
    Synced,
}

impl Durability {
    /// Every level, from the weakest on.
    pub const ALL: [Durability; 3] = [Durability::Memory, Durability::Logged, Durability::Synced];

    /// The word that stands for this level in messages, metrics and benchmarks.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Logged => "logged",
            Durability::Synced => "synced",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
