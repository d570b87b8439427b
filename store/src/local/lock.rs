//! The lock of whoever fills a lent extent.
//!
//! ```text
//! fillers/00000012.filler     flock of the process that fills extent 12; text:
//! generation 3 of 12 in 9f3a01c7b2d4e650
//! ```
//! There is one for every extent that was ever lent and has not been given away since.

use std::path::{Path, PathBuf};

use super::loan::Loan;
use crate::directory::Directory;
use crate::disk::{HeldLock, LockKind};
use crate::error::{Cause, Result};
use crate::numbered::Numbered;

/// Held by who fills the extent, for as long as it may write there.
#[derive(Debug)]
pub(super) struct FillerLock {
    _lock: Box<dyn HeldLock>,
}

fn folder(directory: &Directory) -> PathBuf {
    directory.path.join("fillers")
}

fn text(directory: &Directory, loan: &Loan) -> String {
    format!("generation {} of {} in {:016x}\n", loan.generation, loan.extent, directory.store_id)
}

/// Says, before anybody is told of it, that an extent is lent.
pub(super) fn announce(directory: &Directory, loan: &Loan) -> Result<()> {
    let folder = folder(directory);
    let path = Numbered::Filler.path(&folder, loan.extent);
    let write = || {
        if !directory.disk.exists(&folder)? {
            directory.disk.create_directory(&folder)?;
        }
        directory.disk.write_atomically(&path, &[text(directory, loan).as_bytes()])
    };
    write().map_err(|e| Cause::io("write", &path, e).into())
}

impl FillerLock {
    /// Takes the lock of a loan.
    ///
    /// # Errors
    /// `state` when the extent is not lent any more.
    pub(super) fn take(directory: &Directory, loan: &Loan) -> Result<Self> {
        let path = Numbered::Filler.path(&folder(directory), loan.extent);
        let over = || Cause::LoanOver { extent: loan.extent, generation: loan.generation };
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => over(),
            _ => Cause::io("lock", &path, error),
        };
        let lock = directory.disk.lock(&path, LockKind::Shared, "").map_err(failed)?.ok_or_else(over)?;
        let found = directory.disk.read(&path).map_err(|_| over())?; // it was removed meanwhile
        if found != text(directory, loan).as_bytes() {
            return Err(over().into());
        }
        Ok(FillerLock { _lock: lock })
    }
}

/// Whether another process was given an extent to fill, and the store has not looked since whether it is done. Where nobody can
/// tell, it was.
pub(crate) fn is_lent(directory: &Directory, extent: u32) -> bool {
    !matches!(directory.disk.exists(&Numbered::Filler.path(&folder(directory), extent)), Ok(false))
}

/// Whether nobody fills an extent any more. From then on nobody can begin to.
pub(crate) fn may_give_away(directory: &Directory, extent: u32) -> bool {
    let path = Numbered::Filler.path(&folder(directory), extent);
    let end = |path: &Path| -> std::io::Result<bool> {
        if !directory.disk.exists(path)? {
            return Ok(true);
        }
        match directory.disk.lock(path, LockKind::Exclusive, "over\n")? {
            None => Ok(false),
            Some(_locked) => directory.disk.remove(path).map(|()| true),
        }
    };
    end(&path).unwrap_or_else(|error| {
        tracing::warn!(extent, %error, "a lent extent is kept: nobody can tell whether it is still written to");
        false
    })
}
