//! The order in which the locks of the store are taken: all of it is written here.
//!
//! A thread takes a lock only when its rank comes after those of all that it holds, so no two threads ever wait for each
//! other. No two locks of one rank are held together, be they of two files, of two extents or of two stores; but
//! [`Rank::nests`] names one of which several may be.
//! Debug builds look at every lock that is taken, and panic where one is out of order ([`held`](super::held)).
//!
//! A lock that is made without a rank is a [`Leaf`](Rank::Leaf).

/// What a lock guards, in the order in which locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// How far a store that is open for reading has come. Held for a whole refresh, and while it is copied: whoever is told
    /// then how far the copy is may ask anything of a store, and copy another.
    Reading,
    /// The last checkpoint, held by whoever takes the next.
    Checkpoint,
    /// What is known of the memory that the store takes, held while that is counted.
    MemoryCount,
    /// A sync of a file, of the names in a folder, or of what an earlier process has left. One at a time of each.
    SyncGate,
    /// Who leads the next sync of the log. A leaf: nothing is asked of the disk with it held.
    LogTurn,
    /// The log's last segment, held by whoever writes to it.
    LogFile,
    /// Extents that are open and that nobody writes to. A leaf.
    IdleWriters,
    /// Files of extents that nobody may read. A leaf.
    FreeFiles,
    /// The state. All above may wait for the disk or for a whole call, so none of it is taken with the state held.
    State,
    /// Records that the kernel was not given. A leaf.
    LogBuffer,
    /// The signals of all consumers.
    Signals,
    /// Who stands in line for rows of a consumer.
    Lines,
    /// What is set and got, once somebody has asked for it. Held while it is opened.
    Objects,
    /// Which versions of objects there are, who holds them, and where they lie.
    Catalog,
    /// What is free in the segments of the host tier.
    Arena,
    /// Objects that were put and are not committed.
    Puts,
    /// Objects that wait for their removal.
    Retiring,
    /// Every extent, by its number. What is taken out may be the last of what holds records back (`Needs`).
    Extents,
    /// Extents of another process's store that are mapped.
    NeighbourFiles,
    /// Which records of another process's store are needed.
    Needs,
    /// A simulated disk: its names, and what is to fail. One file of it is a leaf.
    Disk,
    /// Everything else: a lock under which no other is taken.
    Leaf,
}

impl Rank {
    /// Whether several of different stores may be held together, in any order.
    #[cfg(all(debug_assertions, not(feature = "shuttle")))]
    pub(super) fn nests(self) -> bool {
        self == Rank::Reading
    }

    /// Whether nothing may be taken with it held, whatever comes after it.
    #[cfg(all(debug_assertions, not(feature = "shuttle")))]
    pub(super) fn is_leaf(self) -> bool {
        let leaves = [Rank::LogTurn, Rank::IdleWriters, Rank::FreeFiles, Rank::LogBuffer, Rank::Leaf];
        leaves.contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Rank;

    const ALL: [Rank; Rank::Leaf as usize + 1] = [
        Rank::Reading,
        Rank::Checkpoint,
        Rank::MemoryCount,
        Rank::SyncGate,
        Rank::LogTurn,
        Rank::LogFile,
        Rank::IdleWriters,
        Rank::FreeFiles,
        Rank::State,
        Rank::LogBuffer,
        Rank::Signals,
        Rank::Lines,
        Rank::Objects,
        Rank::Catalog,
        Rank::Arena,
        Rank::Puts,
        Rank::Retiring,
        Rank::Extents,
        Rank::NeighbourFiles,
        Rank::Needs,
        Rank::Disk,
        Rank::Leaf,
    ];

    #[test]
    fn the_architecture_lists_every_rank_in_this_order() {
        assert!(ALL.is_sorted_by(|one, next| one < next));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
        let document = std::fs::read_to_string(path).unwrap();
        let (_, mut rest) = document.split_once("Lock order").unwrap();
        for rank in ALL {
            let name = format!("`{rank:?}`");
            let found = rest.split_once(&name);
            rest = found.unwrap_or_else(|| panic!("ARCHITECTURE.md does not list {name} in its place")).1;
        }
    }
}
