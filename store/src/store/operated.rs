//! What an operator asks of a store: what it may take and keeps, and copies of it.

use std::ops::ControlFlow;
use std::path::{Component, Path};

use super::Store;
use crate::backup::{BackupOptions, BackupProgress, BackupReport};
use crate::durability::Durability;
use crate::error::{Cause, Result};
use crate::limits::{BudgetChange, Budgets};
use crate::retention::Retention;

impl Store {
    /// Whether a write may have to wait for others: for room within a budget, or for a rate limiter.
    pub fn holds_writers_back(&self) -> bool {
        self.budgets() != Budgets::default() || self.0.state.lock().has_limiters()
    }

    /// How much it may take now.
    pub fn budgets(&self) -> Budgets {
        self.0.limits.budgets()
    }

    /// Changes how much it may take, until it is closed: the next opening begins with its own options. All that is named is
    /// changed or nothing. Writers who wait for room look at once. A budget below what is taken is legal: nothing is dropped
    /// for it, writers wait, and space that nobody needs is given back as they do.
    ///
    /// # Errors
    /// `input` for less than an empty store needs; `state` when the store is read only.
    pub fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets> {
        self.0.change_budgets(change)
    }

    /// Which rows go by themselves now.
    pub fn retention(&self) -> Retention {
        self.0.limits.retention()
    }

    /// Puts another rule in place of the one that holds, until the store is closed. It is followed from the next
    /// [`run_once`](Self::run_once) on; what the former has deleted does not come back.
    ///
    /// # Errors
    /// `state` when the store is read only.
    pub fn change_retention(&self, rule: Retention) -> Result<()> {
        self.0.change_retention(rule)
    }

    /// Copies the store, as it is at one position of its log, to a directory that is empty or does not exist. Others go on
    /// writing; they wait for nothing. The copy is on stable storage when the call returns, and is a store of its own.
    ///
    /// A store that is open for writing replays its own log for this, as another process that reads it would. Of the objects
    /// that are set, those go along that steps name; see [`backup_with`](Self::backup_with) for the others.
    ///
    /// # Errors
    /// `state` when `to` is taken; `capacity` when the disk is full. What was copied until then is removed again, but for empty
    /// folders, which the next copy takes.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupReport> {
        self.backup_with(to, BackupOptions::default())
    }

    /// As [`backup`](Self::backup), with what `options` say.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup).
    pub fn backup_with(&self, to: impl AsRef<Path>, options: BackupOptions) -> Result<BackupReport> {
        self.backup_watched(to, options, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`backup_with`](Self::backup_with); `progress` is told after each piece how far it is, and says whether it goes on.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup); `retry` (`Stopped`) when `progress` has stopped it.
    pub fn backup_watched(
        &self,
        to: impl AsRef<Path>,
        options: BackupOptions,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.backup_beneath(to.as_ref(), "", options, progress)
    }

    /// As [`backup_watched`](Self::backup_watched), to the directory `inside` that one, which has to be there unless it is the
    /// copy's. No part of `inside` may be a link, or become one meanwhile: for copies to where others can write, too.
    ///
    /// # Errors
    /// As for [`backup_watched`](Self::backup_watched); `state` (`Link`) where a link is met, `input` where `inside` leads out of
    /// the directory.
    pub fn backup_beneath(
        &self,
        folder: &Path,
        inside: impl AsRef<Path>,
        options: BackupOptions,
        progress: &mut dyn FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        let (inside, what) = (inside.as_ref(), options);
        if inside.components().any(|part| !matches!(part, Component::Normal(_))) {
            let reason = format!("{} is not made of plain names, such as \"nightly/1\"", inside.display());
            return Err(Cause::Argument { what: "inside", reason }.into());
        }
        let to = if inside.as_os_str().is_empty() { folder.to_owned() } else { folder.join(inside) };
        if self.0.options.read_only {
            return self.0.copy_to((folder, &to), what, progress);
        }
        self.0.bring_all_to(Durability::Logged)?;
        let options = self.0.options.clone().read_only(true);
        Store::open(&self.0.directory.path, options)?.0.copy_to((folder, &to), what, progress)
    }
}
