//! What a backup copies.

/// What a backup copies beyond what steps name; see [`Store::backup_with`](crate::Store::backup_with).
///
/// ```
/// use forebay_store::{BackupOptions, Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default())?;
/// store.backup_with(dir.path().join("copy"), BackupOptions::default().set_objects(true))?;
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupOptions {
    pub(super) set_objects: bool,
}

impl BackupOptions {
    /// Whether every version goes along that was [set](crate::Objects) and lies in the disk tier when it is its turn; what lies in
    /// memory alone does not: [`spill`](crate::Objects::spill) it before. Default: false, as these are as large as all agents.
    pub fn set_objects(mut self, copied: bool) -> Self {
        self.set_objects = copied;
        self
    }

    /// Whether they go along.
    pub fn copies_set_objects(self) -> bool {
        self.set_objects
    }
}
