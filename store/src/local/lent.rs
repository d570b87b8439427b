//! An extent that another process fills, as the store has it.

use std::sync::Arc;

use super::loan::Loan;
use super::lock::announce;
use super::placed::{Placed, PlacedKind, Spot};
use super::ranges::Ranges;
use crate::error::Result;
use crate::extent::{Extent, HEADER_BYTES, Lifetime};
use crate::store::Store;
use crate::sync::Mutex;
use crate::value::Value;

/// Where values begin in a lent extent, in bytes: at multiples of this.
pub(super) const ALIGN_BYTES: usize = 64;

/// An extent that another process of this machine fills, with values of rows of one policy version. See the head of
/// `local`. Dropping it takes it back: nothing more is believed to lie there, and its space is used again once its filler's
/// process is gone or has let go of it. A batch that was given values of it holds it, too.
#[derive(Debug)]
pub struct LentExtent(pub(super) Arc<Lent>);

/// What is lent, until nobody needs it.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) store: Store,
    pub(super) extent: Arc<Extent>,
    policy_version: u64,
    pub(super) taken: Mutex<Ranges>,
}

impl LentExtent {
    /// Lends an extent with room for at least `bytes` of values.
    pub(crate) fn lend(store: &Store, policy_version: u64, bytes: usize) -> Result<Self> {
        store.0.check_writable("write to it")?;
        let extent = store.0.values.lend(Lifetime::Version(policy_version), bytes, &*store.0)?;
        let lent = Lent { store: store.clone(), extent, policy_version, taken: Mutex::default() };
        let lent = LentExtent(Arc::new(lent));
        announce(&store.0.directory, &lent.loan())?; // if that fails the extent is sealed, and empty
        Ok(lent)
    }

    /// What to tell the process that is to fill it.
    pub fn loan(&self) -> Loan {
        let extent = &self.0.extent;
        let capacity = u32::try_from(extent.capacity()).unwrap_or(u32::MAX);
        Loan { extent: extent.number(), generation: extent.generation(), capacity }
    }

    /// The policy version whose rows' values it is for. Values of others are copied.
    pub fn policy_version(&self) -> u64 {
        self.0.policy_version
    }

    /// A value that was put into the extent, to be given to a batch.
    pub fn value(&self, kind: PlacedKind, spot: Spot) -> Value<'_> {
        Value::Placed(Placed { lent: self, kind, spot })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let end = self.taken.lock().end().max(HEADER_BYTES as u32);
        self.store.0.values.take_back(&self.extent, end as usize);
    }
}
