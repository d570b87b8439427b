//! What can go wrong with states that are kept.

use std::io;
use std::path::{Path, PathBuf};

/// A failed call to [`super::States`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatesError {
    /// A key or part cannot have this name.
    #[error(
        "{name:?} cannot name a key or part: use 1 to 100 letters, digits, '-', '_' and '.', and no '.' in front"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The newest version is another one than was expected: somebody else has committed.
    #[error(
        "the newest version of {key:?} is {found}, and {expected} was expected; get it and begin from there"
    )]
    Conflict {
        /// The key.
        key: String,
        /// What was expected.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// There is no such version or part.
    #[error("{key:?} has no {what}")]
    Missing {
        /// The key.
        key: String,
        /// What was asked for.
        what: String,
    },
    /// A part that a commit names was not staged, or two have one name.
    #[error("{staged:?} cannot be committed to {key:?}: {reason}")]
    NotStaged {
        /// The key.
        key: String,
        /// The part.
        staged: String,
        /// Why not.
        reason: &'static str,
    },
    /// Bytes are not what was written. Take another version, or another copy.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The disk refused.
    #[error("cannot {verb} {path}")]
    Io {
        /// What was being done.
        verb: &'static str,
        /// To which path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A version was made and could not be brought to where its keeper promises it to be. Taken back, it is as if it had never been: the one
    /// before it is the newest, and the same parts can be committed once there is room. Else whoever looks finds it, and it may be lost
    /// where one that was committed is not.
    #[error("version {version} of {key:?} is not on stable storage, and {}", left(*is_taken_back))]
    NotDurable {
        /// The key.
        key: String,
        /// The version; its number may not come again.
        version: u64,
        /// Whether it is there no more.
        is_taken_back: bool,
        /// What was in the way.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another keeper of states failed in a way of its own.
    #[error("{verb} failed")]
    Other {
        /// What was being done.
        verb: &'static str,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn left(is_taken_back: bool) -> &'static str {
    if is_taken_back { "the one before it is the newest" } else { "is there: create the group again" }
}

impl StatesError {
    /// Whether a commit that fails so has certainly changed nothing. A version above what was expected may be the commit's own: a
    /// keeper that fails behind it looks for what went wrong, and finds that.
    pub(crate) fn leaves_all_as_it_was(&self) -> bool {
        match self {
            Self::Name { .. } | Self::NotStaged { .. } => true,
            Self::Conflict { expected, found, .. } => found <= expected,
            Self::NotDurable { is_taken_back, .. } => *is_taken_back,
            _ => false,
        }
    }

    /// What a [`super::States::open`]ed part has failed with while it was read.
    pub fn of_read(key: &str, part: &str, error: io::Error) -> Self {
        let path = Path::new(key).join(part);
        error.downcast().unwrap_or_else(|source| Self::Io { verb: "read", path, source })
    }

    /// As an error of a read or a write of a part.
    pub fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::Damaged { .. } => io::ErrorKind::InvalidData,
            Self::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self)
    }

    /// Says what was done to which path.
    pub(super) fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { verb, path, source }
    }
}
