//! The orders of rows that a holder's snapshots keep: who reads a table batch by batch sorts it once.
//!
//! They take as many bytes as there are rows, times four, so how many bytes all of a holder's take is bounded; the one that was read
//! last is kept, however long. One that was let go of is sorted again by whoever reads on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes of them together where there are several, and the most of them.
const BYTES_MAX: usize = 256 << 20;
const ORDERS_MAX: usize = 64;

/// Which rows of which table of which snapshot, in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) snapshot: u64,
    pub(super) table: String,
    pub(super) version: Option<u64>,
    pub(super) is_arrival: bool,
}

/// The numbers of rows, in order.
type Rows = Arc<Vec<u32>>;

/// The one that was read last is the last.
#[derive(Debug)]
pub(super) struct Orders {
    kept: Mutex<VecDeque<(Order, Rows)>>,
    bytes_max: usize,
}

impl Default for Orders {
    fn default() -> Self {
        Orders { kept: Mutex::default(), bytes_max: BYTES_MAX }
    }
}

fn bytes_of(rows: &Rows) -> usize {
    rows.capacity() * size_of::<u32>()
}

impl Orders {
    fn kept(&self) -> MutexGuard<'_, VecDeque<(Order, Rows)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// The rows in that order, sorted by `sort` where they are not there. They are sorted with nothing locked.
    pub(super) fn rows(&self, order: &Order, sort: impl FnOnce() -> Vec<u32>) -> Rows {
        if let Some(rows) = self.find(order) {
            return rows;
        }
        let rows = Arc::new(sort());
        drop(self.keep(order.clone(), rows.clone()));
        rows
    }

    fn find(&self, order: &Order) -> Option<Rows> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(known, _)| known == order)?;
        let found = kept.remove(at)?;
        let rows = found.1.clone();
        kept.push_back(found);
        Some(rows)
    }

    /// Keeps an order, and gives those that are let go of for it.
    fn keep(&self, order: Order, rows: Rows) -> Vec<(Order, Rows)> {
        let (mut kept, mut gone) = (self.kept(), Vec::new());
        kept.push_back((order, rows));
        let mut bytes: usize = kept.iter().map(|(_, rows)| bytes_of(rows)).sum();
        while (bytes > self.bytes_max || kept.len() > ORDERS_MAX) && kept.len() > 1 {
            let Some(oldest) = kept.pop_front() else { break };
            bytes -= bytes_of(&oldest.1);
            gone.push(oldest);
        }
        gone
    }

    /// Lets go of those of snapshots that have ended.
    pub(super) fn forget(&self, has_ended: impl Fn(u64) -> bool) {
        let mut kept = self.kept();
        let all = std::mem::take(&mut *kept).into_iter();
        let (ended, left): (Vec<_>, Vec<_>) = all.partition(|(order, _)| has_ended(order.snapshot));
        *kept = left.into();
        drop(kept);
        drop(ended); // with nothing locked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(snapshot: u64) -> Order {
        Order { snapshot, table: "solver".to_owned(), version: None, is_arrival: false }
    }

    /// How many of these are sorted when they are read.
    fn sorted(orders: &Orders, snapshots: &[u64]) -> usize {
        let mut sorted = 0;
        for snapshot in snapshots {
            orders.rows(&of(*snapshot), || {
                sorted += 1;
                vec![0; 100]
            });
        }
        sorted
    }

    #[test]
    fn orders_are_sorted_once_and_take_no_more_than_they_may_together() {
        let orders = Orders { bytes_max: 1_000, ..Orders::default() };
        assert_eq!(sorted(&orders, &[1, 2, 1, 2, 2, 1]), 2);
        assert_eq!(sorted(&orders, &[3, 1]), 1, "what was not read for longest goes");
        let bytes = |orders: &Orders| orders.kept().iter().map(|(_, rows)| bytes_of(rows)).sum::<usize>();
        assert_eq!((sorted(&orders, &[2]), bytes(&orders)), (1, 800));
        orders.rows(&of(9), || vec![0; 1_000]);
        orders.rows(&of(9), || panic!("the one that was read last is kept, however long"));
        assert_eq!(bytes(&orders), 4_000);
        orders.forget(|snapshot| snapshot == 9);
        assert_eq!((bytes(&orders), sorted(&orders, &[9])), (0, 1));
        (0..200).for_each(|snapshot| _ = orders.rows(&of(snapshot), Vec::new));
        assert_eq!(orders.kept().len(), ORDERS_MAX);
    }
}
