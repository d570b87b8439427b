//! What is due from time to time: memory of processes that have ended, a journal that is mostly over, a host tier that is
//! nearly full.

use std::collections::BTreeSet;

use super::catalog::Ask;
use super::host::HostExtent;
use super::objects::Objects;
use crate::consumer::Wait;
use crate::error::{Cause, Result};

impl Objects {
    /// Does what is due; cheap when nothing is. [`Store::run_once`](crate::Store::run_once) calls it.
    ///
    /// Gives memory back that is in quarantine for processes that have ended. When the host tier is fuller than the high water
    /// mark, brings versions that nobody holds to the disk until it is at the low one: state of the optimizer before weights,
    /// the one that was not asked for the longest first.
    ///
    /// # Errors
    /// `capacity` when the disk is full; `corrupt` when a version in memory is damaged: it stays where it is, and others go in
    /// its place. The first of these errors.
    pub fn run_once(&self) -> Result<()> {
        let over = self.core.catalog.lock().end_loans();
        drop(over);
        let mut catalog = self.core.catalog.lock();
        let free = catalog.tend_journal();
        catalog.forget_idle_keys();
        drop(catalog);
        drop(free);
        self.spill_to_water_mark()
    }

    /// Memory of the host tier for a payload. It is not full before the loans of processes that have ended are over.
    pub(super) fn allocate(&self, bytes: u64) -> Result<HostExtent> {
        self.core.arena.allocate_or(bytes, || {
            let over = self.core.catalog.lock().end_loans();
            !over.is_empty() // and is given back here, with nothing locked
        })
    }

    fn spill_to_water_mark(&self) -> Result<()> {
        let arena = &self.core.arena;
        let (high, low) = self.core.options.water_marks_percent;
        let part = |percent: u8| (u128::from(arena.limit()) * u128::from(percent) / 100) as u64;
        if arena.taken_bytes() <= part(high) {
            return Ok(());
        }
        let (mut failed, mut first) = (BTreeSet::new(), Ok(()));
        while arena.taken_bytes() > part(low) {
            let Some((key, version)) = self.core.catalog.lock().victim(&failed) else { break };
            let ask = Ask::Any(version);
            let leased = match self.lease_when_there(&key, ask, Wait::No) {
                Ok(leased) => leased,
                // Gone between two looks.
                Err(error) if matches!(error.cause(), Cause::ObjectGone { .. }) => continue,
                Err(error) => return Err(error),
            };
            if let Err(error) = self.demote_leased(&leased.manifest) {
                failed.insert((key, version)); // others may go
                first = first.and(Err(error));
            }
        }
        first
    }

    /// Gives all memory of the host tier back to the machine, with its folder: when the store will not be opened on this machine
    /// again. Versions that are nowhere else are lost; [`spill`](Self::spill) them before. What is set from then on ends with
    /// the process.
    ///
    /// # Errors
    /// `state` when somebody holds a version, or memory is in quarantine.
    pub fn give_back_host(&self) -> Result<()> {
        self.check_open()?;
        let mut catalog = self.core.catalog.lock();
        let (leases, quarantine_bytes) = (catalog.leases().0, catalog.quarantine_bytes());
        if leases > 0 || quarantine_bytes > 0 {
            return Err(Cause::HostInUse { leases, quarantine_bytes }.into());
        }
        let gone = catalog.take_all_host();
        drop(catalog);
        drop(gone);
        self.core.arena.give_back();
        self.core.folder.iter().for_each(super::host::Folder::remove);
        Ok(())
    }
}
