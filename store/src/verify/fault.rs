//! One thing that is wrong with a store.

use std::fmt;
use std::path::{Path, PathBuf};

/// Which part of a store a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// The directory's identity.
    Identity,
    /// The checkpoint: its manifest, or a page image that it names.
    Checkpoint,
    /// A segment of the log, or its place in the order.
    Segment,
    /// A record of the log.
    Record,
    /// A file of values: missing, or its header is damaged.
    Extent,
    /// A value, or what stands for it in a row.
    Value,
    /// An object that a policy stands on.
    Object,
    /// Numbers that should agree and do not.
    Count,
}

impl FaultKind {
    /// The word for this kind, in messages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::Identity => "identity",
            FaultKind::Checkpoint => "checkpoint",
            FaultKind::Segment => "segment",
            FaultKind::Record => "record",
            FaultKind::Extent => "extent",
            FaultKind::Value => "value",
            FaultKind::Object => "object",
            FaultKind::Count => "count",
        }
    }
}

/// One thing that is wrong with a store, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFault {
    /// What it concerns.
    pub kind: FaultKind,
    /// The file.
    pub path: PathBuf,
    /// The place in the file.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

impl VerifyFault {
    pub(crate) fn new(kind: FaultKind, path: &Path, offset: u64, reason: impl Into<String>) -> Self {
        VerifyFault { kind, path: path.to_owned(), offset, reason: reason.into() }
    }
}

impl fmt::Display for VerifyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at offset {}: {}: {}",
            self.path.display(),
            self.offset,
            self.kind.as_str(),
            self.reason
        )
    }
}
