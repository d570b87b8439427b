//! What is known of what becomes of extents, and so how they are best made, filled and sealed.
//!
//! The kernel zeroes every page that a new file is mapped to be filled with, and the store then fills it: a file that is used once
//! is filled at half the price by calls. One that comes again and again is zeroed once, in large pages, and then cheaper
//! to store to than to call for. So new files are made for their mapping where versions go by a rule, and with them what they
//! lie in comes again. Numbers at [`ValuePath`].

use super::file::ExtentFile;
use super::writer::Path;
use crate::durability::Durability;
use crate::limits::Budgets;
use crate::options::{Options, ValuePath};
use crate::retention::Retention;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Fewer gathered bytes than this go through the mapping: a call costs more than the page or two that they touch. More pages
/// cost more than the call, above all new ones, for the kernel reads ahead around each.
const CALL_BYTES_MIN: usize = 4 << 10;
/// A part of a value that is so long, or as a quarter of the largest extent, is not gathered: the kernel has it from where the caller
/// has it.
const DIRECT_BYTES_MIN: usize = 256 << 10;

/// How extents are made, filled and sealed from now on.
#[derive(Debug)]
pub(super) struct Outlook {
    path: ValuePath,
    durability: Durability,
    direct_bytes_min: usize,
    /// Unused tails are left to extents.
    tails_stay: AtomicBool,
    /// New files are made to be filled through their mapping.
    fills_mapped: AtomicBool,
}

impl Outlook {
    pub(super) fn new(options: &Options) -> Self {
        let (path, durability) = (options.value_path, options.durability);
        let outlook = Outlook {
            path,
            durability,
            direct_bytes_min: DIRECT_BYTES_MIN.min(options.extent_bytes_max / 4),
            tails_stay: AtomicBool::default(),
            fills_mapped: AtomicBool::default(),
        };
        outlook.change(options.retention, options.budgets());
        outlook
    }

    /// Takes note of another rule, or of other budgets.
    pub(super) fn change(&self, retention: Retention, budgets: Budgets) {
        let come_again = retention.retires_versions();
        // They are used again soon then, and no budget asks for every byte meanwhile.
        self.tails_stay.store(come_again && budgets.disk_bytes_max.is_none(), Ordering::Relaxed);
        let mapped = match self.path {
            // A few bytes between two syncs would have a large page written each time.
            ValuePath::Chosen => come_again && !self.syncs_at_once(),
            path => path == ValuePath::Mapped,
        };
        self.fills_mapped.store(mapped, Ordering::Relaxed);
    }

    /// Whether the unused tail of an extent is left to it when it is sealed.
    pub(super) fn tails_stay(&self) -> bool {
        self.tails_stay.load(Ordering::Relaxed)
    }

    /// Whether a new file is made to be filled through its mapping.
    pub(super) fn fills_mapped(&self) -> bool {
        self.fills_mapped.load(Ordering::Relaxed)
    }

    /// Whether a call's values are about to be synced as they are written.
    fn syncs_at_once(&self) -> bool {
        self.durability == Durability::Synced
    }

    /// How values go into an extent.
    pub(super) fn path_for(&self, file: &ExtentFile) -> Path {
        let gathered = |call_bytes_min| Path::Gathered {
            call_bytes_min,
            direct_bytes_min: self.direct_bytes_min,
            syncs_at_once: self.syncs_at_once(),
        };
        match self.path {
            ValuePath::Mapped => Path::Mapped,
            ValuePath::Gathered => gathered(0),
            ValuePath::Chosen if self.fills_mapped() && file.is_large() => Path::Mapped,
            ValuePath::Chosen => gathered(CALL_BYTES_MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_are_mapped_to_be_filled_where_versions_go_by_a_rule_and_nobody_waits_for_the_disk() {
        let keep = Retention::default().versions(2);
        let cases = [
            (ValuePath::Chosen, Durability::Logged, Retention::default(), false),
            (ValuePath::Chosen, Durability::Logged, keep, true),
            (ValuePath::Chosen, Durability::Memory, keep, true),
            (ValuePath::Chosen, Durability::Synced, keep, false),
            (ValuePath::Mapped, Durability::Synced, Retention::default(), true),
            (ValuePath::Gathered, Durability::Logged, keep, false),
        ];
        for (path, level, rule, mapped) in cases {
            let options = Options::default().value_path(path).durability(level);
            let outlook = Outlook::new(&options.clone().retention(rule));
            assert_eq!(outlook.fills_mapped(), mapped, "{path:?} at {level} with {rule:?}");
            let changed = Outlook::new(&options);
            changed.change(rule, Budgets::default());
            assert_eq!(changed.fills_mapped(), mapped, "{path:?} at {level}, changed to {rule:?}");
        }
    }

    #[test]
    fn tails_stay_where_versions_go_by_a_rule_and_no_budget_asks_for_them() {
        let outlook = Outlook::new(&Options::default());
        let budget = Budgets { disk_bytes_max: Some(1 << 40), ..Budgets::default() };
        let keep = Retention::default().versions(2);
        for (rule, budgets, stay) in [
            (keep, Budgets::default(), true),
            (keep, budget, false),
            (Retention::default(), Budgets::default(), false),
        ] {
            outlook.change(rule, budgets);
            assert_eq!(outlook.tails_stay(), stay, "{rule:?} with {budgets:?}");
        }
    }
}
