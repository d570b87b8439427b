//! What can be asked of a disk and can fail.

/// The kind of one operation of a [`SimulatedDisk`](super::SimulatedDisk).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the call of `Disk` or `DiskFile` of that name")]
pub enum DiskOperation {
    Create,
    Open,
    Read,
    /// An append, or a write in place.
    Write,
    /// A store into mapped memory.
    MappedStore,
    Sync,
    BeginSync,
    SyncDirectory,
    Allocate,
    SetLength,
    Punch,
    Map,
    List,
    Rename,
    Remove,
    CreateDirectory,
    Lock,
}

impl DiskOperation {
    /// Whether it changes what is on the disk.
    pub fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Map | Self::List | Self::Lock)
    }

    /// Whether it may need room that a full disk does not have.
    pub fn takes_room(self) -> bool {
        matches!(self, Self::Create | Self::Write | Self::Allocate | Self::CreateDirectory | Self::Rename)
    }
}
