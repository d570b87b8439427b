//! What the store may take and what it keeps, as an operator may change it while the store is open.
//!
//! The options of opening are what it begins with; a change holds until the store is closed, and is written nowhere. Whoever
//! writes looks at a budget without a lock, so a change counts from the next look on; those who wait for room are woken
//! by it. One change is made at a time.
//!
//! # Order
//! A waiter counts itself or listens, and then looks at the budget; a change is stored and then tells those who wait. Both
//! sides are sequentially consistent, so nobody sleeps through a change.

mod budgets;
mod change;

pub use budgets::Budgets;
pub use change::BudgetChange;

use crate::error::Result;
use crate::options::Options;
use crate::retention::Retention;
use crate::shared::Shared;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Stands for a budget that is not set.
const NONE: u64 = u64::MAX;

/// The limits that hold now.
#[derive(Debug)]
pub(crate) struct Limits {
    memory_bytes_max: AtomicU64,
    disk_bytes_max: AtomicU64,
    /// Held by whoever changes anything of it.
    retention: Mutex<Retention>,
}

fn stored(limit: Option<u64>) -> u64 {
    limit.unwrap_or(NONE)
}

fn shown(limit: &AtomicU64) -> Option<u64> {
    Some(limit.load(Ordering::SeqCst)).filter(|bytes| *bytes != NONE)
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Self {
        let Budgets { memory_bytes_max, disk_bytes_max } = options.budgets();
        Limits {
            memory_bytes_max: AtomicU64::new(stored(memory_bytes_max)),
            disk_bytes_max: AtomicU64::new(stored(disk_bytes_max)),
            retention: Mutex::new(options.retention),
        }
    }

    pub(crate) fn memory_bytes_max(&self) -> Option<u64> {
        shown(&self.memory_bytes_max)
    }

    pub(crate) fn disk_bytes_max(&self) -> Option<u64> {
        shown(&self.disk_bytes_max)
    }

    pub(crate) fn budgets(&self) -> Budgets {
        Budgets { memory_bytes_max: self.memory_bytes_max(), disk_bytes_max: self.disk_bytes_max() }
    }

    pub(crate) fn retention(&self) -> Retention {
        *self.retention.lock()
    }
}

impl Shared {
    /// Changes budgets, all that are named or none, and gives what holds then.
    pub(crate) fn change_budgets(&self, change: &BudgetChange) -> Result<Budgets> {
        self.check_writable("change its budgets")?;
        let retention = self.limits.retention.lock();
        let budgets = change.applied_to(self.limits.budgets());
        budgets.validate(self.options.extent_bytes_first)?;
        self.limits.memory_bytes_max.store(stored(budgets.memory_bytes_max), Ordering::SeqCst);
        self.limits.disk_bytes_max.store(stored(budgets.disk_bytes_max), Ordering::SeqCst);
        self.values.expect(*retention, budgets);
        drop(retention);
        tracing::info!(?budgets, "the budgets were changed");
        self.memory_may_be_free();
        self.space_freed.notify(usize::MAX);
        Ok(budgets)
    }

    /// Puts another rule in place of the one that holds.
    pub(crate) fn change_retention(&self, rule: Retention) -> Result<()> {
        self.check_writable("change what it keeps")?;
        let mut retention = self.limits.retention.lock();
        *retention = rule;
        self.values.expect(rule, self.limits.budgets());
        drop(retention);
        tracing::info!(?rule, "the retention was changed");
        Ok(())
    }
}
