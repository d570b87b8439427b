//! Columns that came along with claims, until they are asked for or their claim ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use forebay_store::Hold;

use crate::connection::Epoch;

/// The columns of one claim: their names, their stream, and what holds their values if those are in files.
pub(super) type Along = (Vec<String>, Bytes, Option<Hold>);

/// The columns of all claims. Cheap to clone. One lock, for a look-up.
#[derive(Clone, Debug, Default)]
pub(super) struct Alongside(Arc<Mutex<HashMap<Epoch, Along>>>);

impl Alongside {
    fn lock(&self) -> MutexGuard<'_, HashMap<Epoch, Along>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// The stream of exactly these columns, once.
    pub(super) fn take(&self, claim: Epoch, names: &[&str]) -> Option<(Bytes, Option<Hold>)> {
        let mut all = self.lock();
        let fits = all.get(&claim).is_some_and(|(columns, ..)| columns == names);
        fits.then(|| all.remove(&claim).map(|(_, stream, hold)| (stream, hold))).flatten()
    }

    pub(super) fn keep(&self, claim: Epoch, columns: Along) {
        self.lock().insert(claim, columns);
    }

    pub(super) fn drop(&self, claim: Epoch) {
        self.lock().remove(&claim);
    }
}
