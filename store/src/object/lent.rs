//! Memory that another process was given, as who has given it looks after it.

use std::sync::Arc;

use super::host::HostExtent;
use super::objects::Objects;
use super::owner::Owner;
use crate::error::Result;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Held by who has lent memory to another process. When it is dropped without its word the memory is in quarantine.
#[derive(Debug)]
pub(super) struct Lent {
    objects: Objects,
    number: u64,
    owner: Owner,
    has_let_go: AtomicBool,
}

impl Lent {
    /// Lends memory; `None` when it is this process that has it.
    ///
    /// # Errors
    /// `capacity` when that cannot be written down.
    pub(super) fn lend(
        objects: &Objects,
        owner: &Owner,
        extents: &Arc<Vec<HostExtent>>,
    ) -> Result<Option<Self>> {
        let Owner::Process(process) = owner else { return Ok(None) };
        let record = process.record();
        let number = objects.core.catalog.lock().lend(owner.clone(), record, extents)?;
        Ok(Some(Lent {
            objects: objects.clone(),
            number,
            owner: owner.clone(),
            has_let_go: AtomicBool::new(false),
        }))
    }

    /// The other process says that it does not use the memory any more.
    pub(super) fn let_go(&self) {
        self.has_let_go.store(true, Ordering::Release);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.objects.store.check_process().is_err() {
            return; // a forked child: the loan is its parent's
        }
        let has_let_go = self.has_let_go.load(Ordering::Acquire) || self.owner.may_be_trusted_gone();
        let free = self.objects.core.catalog.lock().end_loan(self.number, has_let_go);
        drop(free);
    }
}
