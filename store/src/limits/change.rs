//! A change of budgets.

use super::Budgets;

/// Which budgets are to be others; those that are not named stay.
///
/// ```
/// use forebay_store::{BudgetChange, Budgets, Options, Store};
/// # let dir = tempfile::tempdir().unwrap();
/// let store = Store::open(dir.path().join("store"), Options::default().disk_bytes_max(1 << 30))?;
/// let budgets = store.change_budgets(&BudgetChange::new().memory_bytes_max(Some(4 << 30)))?;
/// assert_eq!(budgets, Budgets { memory_bytes_max: Some(4 << 30), disk_bytes_max: Some(1 << 30) });
/// let budgets = store.change_budgets(&BudgetChange::new().disk_bytes_max(None))?;
/// assert_eq!(budgets.disk_bytes_max, None);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a change changes nothing before it is given to a store"]
pub struct BudgetChange {
    /// None: it stays; else the bytes of memory, or that there is no limit.
    pub memory_bytes_max: Option<Option<u64>>,
    /// None: it stays; else the bytes of extents and log, or that there is no limit but the disk's.
    pub disk_bytes_max: Option<Option<u64>>,
}

impl BudgetChange {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// So much memory, in bytes; none for no limit.
    pub fn memory_bytes_max(self, limit: Option<u64>) -> Self {
        BudgetChange { memory_bytes_max: Some(limit), ..self }
    }

    /// So many bytes of extents and log; none for no limit but the disk's.
    pub fn disk_bytes_max(self, limit: Option<u64>) -> Self {
        BudgetChange { disk_bytes_max: Some(limit), ..self }
    }

    /// What holds after it.
    pub fn applied_to(&self, now: Budgets) -> Budgets {
        Budgets {
            memory_bytes_max: self.memory_bytes_max.unwrap_or(now.memory_bytes_max),
            disk_bytes_max: self.disk_bytes_max.unwrap_or(now.disk_bytes_max),
        }
    }
}
