//! Deletions of versions.
//!
//! The mark of a file ([`disk`](super::disk)) is made without the catalog's lock and taken back under it, so whoever deletes the
//! version under the lock either has his mark or sees that it is gone. Who comes too late with a mark takes it away again, unless
//! it says something: the version is gone, and its file is not.

use std::path::Path;

use super::catalog::{Ask, Catalog, Deleted, Gone};
use super::disk::{is_marked, mark_deleted, remove_needless_mark, unmark};
use super::named::path_in;
use super::objects::Objects;
use crate::error::{Cause, Result};

impl Objects {
    /// Removes a version. Whoever holds it keeps it; nobody else finds it any more, in this process and in all that open the store
    /// later. False when there is none.
    ///
    /// For a version that has a file, is being brought to one, or could not be brought there by this process, that is on stable storage when this
    /// returns, whether or not the store has a host folder: the file is gone, or a mark beside it says that it is over (while somebody
    /// holds it, or a step names it and keeps its bytes). Of one that lies in memory alone a power failure leaves nothing.
    ///
    /// # Errors
    /// `closed` when the store is; `capacity` and `state` when that cannot be written down: the version stays.
    pub fn delete(&self, key: &str, version: u64) -> Result<bool> {
        self.check_open()?;
        let path = path_in(&self.core.directory.objects(), key, version);
        let mut is_marked_here = false;
        let gone = loop {
            match self.try_delete(key, version, is_marked_here, &path)? {
                (Deleted::Done, gone) => break gone,
                (Deleted::NotThere, _) => return Ok(false), // and no mark of this call is left
                (Deleted::NotMarked, _) => self.mark(key, version, &path)?,
            }
            is_marked_here = true;
        };
        self.bury(gone);
        Ok(true)
    }

    fn try_delete(
        &self,
        key: &str,
        version: u64,
        is_marked_here: bool,
        path: &Path,
    ) -> Result<(Deleted, Vec<Gone>)> {
        let mut catalog = self.core.catalog.lock();
        let is_marked = is_marked_here && is_marked(&*self.core.directory.disk, path)?;
        let deleted = catalog.delete(key, version, is_marked);
        if deleted.is_err() && is_marked_here {
            self.take_mark_back(&catalog, key, version, path);
        }
        let deleted = deleted?;
        if is_marked && matches!(deleted, Deleted::NotThere) && !catalog.needs_mark(key, version) {
            remove_needless_mark(&*self.core.directory.disk, path); // it has gone while the mark was made
        }
        let is_over = matches!(deleted, Deleted::Done);
        let gone = if is_over { catalog.retain(key, self.core.options.versions_kept) } else { Vec::new() };
        Ok((deleted, gone))
    }

    fn mark(&self, key: &str, version: u64, path: &Path) -> Result<()> {
        let marked = mark_deleted(&*self.core.directory.disk, path);
        if marked.is_err() {
            self.take_mark_back(&self.core.catalog.lock(), key, version, path); // it may be there
        }
        Ok(marked.map_err(|e| Cause::io("mark", path, e))?)
    }

    /// Unless somebody else has deleted the version meanwhile, with the same mark.
    fn take_mark_back(&self, catalog: &Catalog, key: &str, version: u64, path: &Path) {
        if catalog.find(key, Ask::Any(version)).is_some() {
            unmark(&*self.core.directory.disk, path);
        }
    }
}
