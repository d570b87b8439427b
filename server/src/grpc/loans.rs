//! The extents that a neighbour was lent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::Error;
use forebay_store::{Kind, LentExtent, Loan, Store};

/// The most extents that one neighbour has: it gives back what it has filled.
const LOANS_MAX: usize = 64;

/// The extents that one neighbour was lent and has not given back. They are taken back when its session ends.
#[derive(Debug, Default)]
pub(super) struct Loans(Mutex<Vec<Arc<LentExtent>>>);

impl Loans {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<LentExtent>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // whoever panicked left whole entries
    }

    /// All of them, for a call that may name values in any.
    pub(super) fn all(&self) -> Vec<Arc<LentExtent>> {
        self.lock().clone()
    }

    /// Takes all of them back.
    pub(super) fn take_back(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all); // with nothing locked
    }

    /// Takes some back, and lends another.
    pub(super) fn lend(
        &self,
        store: &Store,
        policy_version: u64,
        bytes: u64,
        back: &[Loan],
    ) -> Result<Loan, Error> {
        self.lock().retain(|lent| !back.contains(&lent.loan()));
        if self.lock().len() >= LOANS_MAX {
            let message = format!(
                "{LOANS_MAX} extents are lent to this session already; give some back, or send the values"
            );
            return Err(Error::new(Kind::Capacity, "Loans", message));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let lent = store.lend_extent(policy_version, bytes)?; // with nothing locked: it may wait for room
        let loan = lent.loan();
        self.lock().push(Arc::new(lent));
        Ok(loan)
    }
}

#[cfg(test)]
mod tests {
    use forebay_store::Options;

    use super::*;

    #[test]
    fn a_neighbour_that_gives_nothing_back_is_lent_so_many_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default().extent_bytes(4096, 1 << 16);
        let store = Store::open(dir.path().join("store"), options).unwrap();
        let loans = Loans::default();
        let first = loans.lend(&store, 0, 100, &[]).unwrap();
        for _ in 1..LOANS_MAX {
            loans.lend(&store, 0, 100, &[]).unwrap();
        }
        let refused = loans.lend(&store, 0, 100, &[]).unwrap_err();
        assert_eq!((refused.kind(), refused.cause()), (Kind::Capacity, "Loans"));
        loans.lend(&store, 0, 100, &[first]).unwrap();
        assert_eq!(loans.all().len(), LOANS_MAX);
        loans.take_back();
        loans.lend(&store, 0, 100, &[]).unwrap();
    }
}
