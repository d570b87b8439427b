//! Where the states of agents are kept while no process has them: versions under a key, each made of parts.
//!
//! A *part* is a flat run of bytes with a name. Ranks stage parts, side by side and from processes of their own; nobody sees them.
//! One commit by the coordinator makes staged parts, whole and in one moment, the next version. So a rank that is killed, or that
//! outlives its coordinator, can leave bytes that nobody names, and nothing else.
//!
//! [`States`] is the seam. A store keeps versions as objects (`forebay::ObjectStates`): that is the way of a swap, since bytes go from a
//! rank's buffers into shared memory and from there into another rank's, each once, with checksums of chunks. [`FileStates`] keeps
//! versions in a folder, each on stable storage before it is there: for where there is no store, and the machine may go down.
//!
//! Parts are written and read as streams, so that nobody needs to have the whole of one beside what it is made of.
//!
//! What whoever implements it has to hold
//! - A version never changes and is seen whole or not at all, also after a crash of any process at any moment.
//! - Of two commits that expect the same version, one succeeds.
//! - Numbers of a key count up, from 1, and have a gap only where a version was taken back, or the key was forgotten.
//! - What a commit has acknowledged is as durable as its keeper promises; so is what [`States::make_durable`] has.
//! - At least the newest version and the one before it can be read; after a version was taken back, until the next commit, the newest alone is sure
//!   to be: the one before it may have made way for what was taken back.
//! - What is read is what was staged, or an error: never other bytes.

mod digest;
mod error;
mod files;
mod folders;
mod manifest;
mod part;
mod progress;

use std::io::{self, Read, Write};

pub use error::StatesError;
pub use files::FileStates;
pub use progress::PartProgress;

/// Which version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// This one.
    Exact(u64),
}

/// A part that no version names yet, or that another version is to name once more.
///
/// Plain text without line breaks, so that it can be sent from the process that staged to the one that commits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Staged(pub String);

/// A part of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartInfo {
    /// Its name; no two parts of a version have the same.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// By which another version can name it once more, without a copy.
    pub staged: Staged,
}

/// A version and its parts, in the order of the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub number: u64,
    /// Its parts.
    pub parts: Vec<PartInfo>,
}

impl Version {
    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&PartInfo> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// Writes a part: exactly as many bytes as were said.
pub type Fill<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

/// Keeps states of agents in versions. See the module for what has to hold.
///
/// ```
/// use forebay_trainer_adapter::states::{FileStates, States, Which};
/// # let folder = tempfile::tempdir()?;
/// let states = FileStates::open(folder.path())?;
/// let staged = [states.stage("solver", "trainer", b"weights")?, states.stage("solver", "claims", b"none")?];
/// assert_eq!(states.find("solver", Which::Latest)?, None, "nothing is seen before the commit");
/// assert_eq!(states.commit("solver", 0, &staged)?, 1);
/// assert_eq!(states.read("solver", Which::Latest, "trainer")?, b"weights");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait States: Send + Sync {
    /// Keeps a part of `bytes` bytes for a version to come, which `fill` writes, in order.
    ///
    /// # Errors
    /// [`StatesError::Name`], [`StatesError::Io`], also if `fill` fails or writes another number of bytes: nothing is staged then.
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError>;

    /// The same of bytes that are there.
    ///
    /// # Errors
    /// As [`Self::stage_from`].
    fn stage(&self, key: &str, part: &str, bytes: &[u8]) -> Result<Staged, StatesError> {
        self.stage_from(key, part, bytes.len() as u64, &mut |to| to.write_all(bytes))
    }

    /// Lets go of a part that was staged for the key, and that no version names, so that others have its room. What cannot be let go of is
    /// left to the next commit, as all of it is by default.
    fn discard(&self, _key: &str, _part: &Staged) {}

    /// Makes the parts the next version of the key, and gives its number. `expected` is the newest version, 0 if there is none.
    ///
    /// # Errors
    /// [`StatesError::Conflict`] if the newest is another one, [`StatesError::NotStaged`] if a part is not there or named twice.
    /// Nothing has changed then, nor after [`StatesError::NotDurable`] that was taken back. After [`StatesError::Io`] the version may be there
    /// or not: ask for it.
    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError>;

    /// Makes a version that was found as durable as its keeper promises, where its commit may not have come so far: whoever made it was killed,
    /// or was told [`StatesError::NotDurable`]. Before that nobody goes on from it. A version that is no more needs nothing. By default nothing is done:
    /// a version is never seen before it is durable.
    ///
    /// # Errors
    /// [`StatesError::Io`], [`StatesError::Other`]: it may be lost where one that was committed is not.
    fn make_durable(&self, _key: &str, _version: u64) -> Result<(), StatesError> {
        Ok(())
    }

    /// A version, or nothing if the key has none, or not this one.
    ///
    /// # Errors
    /// [`StatesError::Damaged`], [`StatesError::Name`], [`StatesError::Io`].
    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError>;

    /// A part of a version, to be read from its beginning. What is wrong with its bytes is an error of the read
    /// ([`StatesError::of_read`]) at the latest when the end is read: whoever has read up to there has what was staged.
    ///
    /// # Errors
    /// [`StatesError::Missing`] if there is no such version or part; otherwise as [`Self::find`].
    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError>;

    /// A part of a version, checked.
    ///
    /// # Errors
    /// As [`Self::open`], [`StatesError::Damaged`].
    fn read(&self, key: &str, which: Which, part: &str) -> Result<Vec<u8>, StatesError> {
        let mut bytes = Vec::new();
        let read = self.open(key, which, part)?.read_to_end(&mut bytes);
        read.map_err(|error| StatesError::of_read(key, part, error))?;
        Ok(bytes)
    }
}

impl<S: States + ?Sized> States for std::sync::Arc<S> {
    fn stage_from(
        &self,
        key: &str,
        part: &str,
        bytes: u64,
        fill: &mut Fill<'_>,
    ) -> Result<Staged, StatesError> {
        (**self).stage_from(key, part, bytes, fill)
    }

    fn discard(&self, key: &str, part: &Staged) {
        (**self).discard(key, part);
    }

    fn commit(&self, key: &str, expected: u64, parts: &[Staged]) -> Result<u64, StatesError> {
        (**self).commit(key, expected, parts)
    }

    fn make_durable(&self, key: &str, version: u64) -> Result<(), StatesError> {
        (**self).make_durable(key, version)
    }

    fn find(&self, key: &str, which: Which) -> Result<Option<Version>, StatesError> {
        (**self).find(key, which)
    }

    fn open<'a>(&'a self, key: &str, which: Which, part: &str) -> Result<Box<dyn Read + 'a>, StatesError> {
        (**self).open(key, which, part)
    }
}
