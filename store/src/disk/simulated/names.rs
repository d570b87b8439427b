//! The names on a disk, as processes see them and as stable storage has them.
//!
//! What was done to the names of a directory and not synced is kept as a list. When the power fails, each entry of the list
//! has happened or not. A renaming happens whole or not at all; a file whose making was lost cannot be renamed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dice::Dice;
use super::inode::Inode;
use crate::sync::Mutex;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    File(Arc<Mutex<Inode>>),
    Directory,
}

#[derive(Clone, Debug)]
enum Change {
    Put(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

type Map = BTreeMap<PathBuf, Entry>;

#[derive(Debug, Default)]
pub(super) struct Names {
    seen: Map,
    stable: Map,
    pending: Vec<Change>,
}

impl Change {
    fn directory(&self) -> Option<&Path> {
        match self {
            Change::Put(path, _) | Change::Remove(path) | Change::Rename(_, path) => path.parent(),
        }
    }

    fn apply(&self, map: &mut Map) {
        match self {
            Change::Put(path, entry) => _ = map.insert(path.clone(), entry.clone()),
            Change::Remove(path) => _ = map.remove(path),
            Change::Rename(from, to) => {
                if let Some(entry) = map.remove(from) {
                    map.insert(to.clone(), entry);
                }
            }
        }
    }
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<&Entry> {
        self.seen.get(path)
    }

    pub(super) fn file(&self, path: &Path) -> Option<&Arc<Mutex<Inode>>> {
        match self.seen.get(path) {
            Some(Entry::File(inode)) => Some(inode),
            _ => None,
        }
    }

    pub(super) fn has_directory(&self, path: &Path) -> bool {
        path.parent().is_none() || matches!(self.seen.get(path), Some(Entry::Directory))
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<Mutex<Inode>>> {
        self.seen.values().filter_map(|entry| if let Entry::File(inode) = entry { Some(inode) } else { None })
    }

    pub(super) fn in_directory(&self, path: &Path) -> Vec<PathBuf> {
        self.seen.keys().filter(|name| name.parent() == Some(path)).cloned().collect()
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    pub(super) fn put(&mut self, path: &Path, entry: Entry) {
        self.change(Change::Put(path.to_owned(), entry));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.change(Change::Remove(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.change(Change::Rename(from.to_owned(), to.to_owned()));
    }

    pub(super) fn sync(&mut self, directory: &Path) {
        let stable = &mut self.stable;
        self.pending.retain(|change| {
            let here = change.directory() == Some(directory);
            if here {
                change.apply(stable);
            }
            !here
        });
    }

    pub(super) fn sync_all(&mut self) {
        self.stable.clone_from(&self.seen);
        self.pending.clear();
    }

    /// The names as the next boot finds them, each with its file as that finds it.
    pub(super) fn after_power_failure(&self, dice: &Dice) -> Names {
        let mut map = self.stable.clone();
        let (fate, cut) = (dice.up_to(3), dice.up_to(self.pending.len()));
        for (at, change) in self.pending.iter().enumerate() {
            // Most file systems keep the order of such changes; not all do.
            let happened = match fate {
                0 => false,
                1 => true,
                2 => at < cut,
                _ => dice.once_in(2),
            };
            if happened {
                change.apply(&mut map);
            }
        }
        let reachable = |path: &Path| {
            path.ancestors().skip(1).all(|above| above.parent().is_none() || map.contains_key(above))
        };
        let after = |entry: &Entry| match entry {
            Entry::File(inode) => Entry::File(Arc::new(Mutex::new(inode.lock().after_power_failure(dice)))),
            Entry::Directory => Entry::Directory,
        };
        let seen: Map = map
            .iter()
            .filter(|(path, _)| reachable(path))
            .map(|(path, entry)| (path.clone(), after(entry)))
            .collect();
        Names { stable: seen.clone(), seen, pending: Vec::new() }
    }
}
