//! One key: its versions, and files that stand where versions would.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::manifest::Manifest;
use super::super::version::{Copies, Tier};
use crate::error::Cause;
use crate::sync::Event;

/// Which version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::object) enum Ask {
    Latest,
    Exact(u64),
    AtLeast(u64),
    /// The oldest that goes with the first who receives it, and that nobody is receiving.
    Once,
    /// This one, whichever way it goes.
    Any(u64),
}

/// One version.
#[derive(Debug)]
pub(in crate::object) struct Version {
    pub(in crate::object) manifest: Arc<Manifest>,
    pub(in crate::object) copies: Copies,
    pub(in crate::object) once: bool,
    /// When it was last asked for, counted in gets.
    pub(super) used: u64,
    pub(super) leases: usize,
    /// Somebody receives it, and nobody else may.
    pub(super) received: bool,
    /// Somebody copies it from one tier to another.
    pub(in crate::object) moving: bool,
    /// It could not be brought to the disk, and its file may be there after a power failure all the same.
    pub(in crate::object) may_come: bool,
    /// It was deleted, and goes with its last lease.
    pub(super) deleted: bool,
    /// Whoever deleted it had marked its file, whether or not that has come.
    pub(super) marked: bool,
}

/// The versions of a key.
#[derive(Debug, Default)]
pub(in crate::object) struct KeyState {
    pub(in crate::object) versions: BTreeMap<u64, Version>,
    /// The greatest number that was ever used.
    pub(super) last: u64,
    /// How many fillings were given up with a reason, and the reason of the last.
    pub(in crate::object) failures: u64,
    pub(in crate::object) failure: String,
    /// Versions whose files cannot be had, and why.
    pub(super) strange: BTreeMap<u64, Strange>,
    pub(in crate::object) changed: Arc<Event>,
}

/// A file that stands where a version would, and is none that can be had.
#[derive(Clone, Debug)]
pub(in crate::object) enum Strange {
    /// It is not of the object layer.
    Foreign(PathBuf),
    /// It is, and is damaged at an offset.
    Damaged(PathBuf, u64, String),
}

impl Strange {
    pub(super) fn cause(&self, key: &str, version: u64) -> Cause {
        match self.clone() {
            Strange::Foreign(path) => Cause::ObjectForeign { key: key.to_owned(), version, path },
            Strange::Damaged(path, offset, reason) => Cause::Corrupt { path, offset, reason },
        }
    }
}

impl KeyState {
    pub(super) fn visible(&self) -> impl DoubleEndedIterator<Item = (&u64, &Version)> {
        self.versions.iter().filter(|(_, version)| !version.deleted && !version.once)
    }

    /// The newest version that can be had.
    pub(in crate::object) fn newest(&self) -> Option<u64> {
        self.visible().next_back().map(|(number, _)| *number)
    }

    pub(super) fn visible_version(&self, number: u64) -> Option<&Version> {
        self.versions.get(&number).filter(|version| !version.deleted && !version.once)
    }

    pub(super) fn find(&self, ask: Ask) -> Option<u64> {
        let newest = self.newest();
        match ask {
            Ask::Latest => newest,
            Ask::AtLeast(least) => newest.filter(|newest| *newest >= least),
            Ask::Exact(number) => self.visible_version(number).map(|_| number),
            Ask::Once => {
                let waiting = |v: &Version| v.once && !v.received && !v.deleted;
                self.versions.iter().find(|(_, version)| waiting(version)).map(|(number, _)| *number)
            }
            Ask::Any(number) => self.versions.get(&number).filter(|v| !v.deleted).map(|_| number),
        }
    }
}

impl Version {
    pub(super) fn new(manifest: Manifest, copies: Copies, once: bool, used: u64) -> Self {
        Version {
            manifest: Arc::new(manifest),
            copies,
            once,
            used,
            leases: 0,
            received: false,
            moving: false,
            may_come: false,
            deleted: false,
            marked: false,
        }
    }

    pub(in crate::object) fn is_deleted(&self) -> bool {
        self.deleted
    }

    pub(in crate::object) fn leases(&self) -> usize {
        self.leases
    }

    pub(in crate::object) fn tiers(&self) -> Vec<Tier> {
        self.copies.tiers()
    }

    pub(super) fn holds_weights(&self) -> bool {
        self.manifest.layout.payloads().iter().any(|payload| payload.class == "weights")
    }
}

/// A version as text, for messages.
pub(in crate::object) fn newest_as_text(newest: Option<u64>) -> String {
    newest.map_or_else(|| "no version".to_owned(), |version| format!("version {version}"))
}
