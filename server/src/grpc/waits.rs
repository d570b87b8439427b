//! Waits for rows that are under way, by the names of their calls, so that a client can give one up without cutting it off.
//!
//! One lock, for a look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The waits of one session.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<u128, Arc<Notify>>>);

/// One wait, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'w> {
    waits: &'w Waits,
    name: u128,
    told: Arc<Notify>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// Begins a wait. Of two under one name (the call was sent again) the later is the one that is told.
    pub(super) fn begin(&self, name: u128) -> Waiting<'_> {
        let told = Arc::new(Notify::new());
        self.lock().insert(name, told.clone());
        Waiting { waits: self, name, told }
    }

    /// Ends the wait of that name, if there is one.
    pub(super) fn give_up(&self, name: u128) {
        if let Some(told) = self.lock().get(&name) {
            told.notify_one();
        }
    }
}

impl Waiting<'_> {
    /// Until the client gives the wait up.
    pub(super) async fn given_up(&self) {
        self.told.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.waits.lock();
        if waits.get(&self.name).is_some_and(|told| Arc::ptr_eq(told, &self.told)) {
            waits.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_is_told_by_its_name_and_forgotten_when_it_is_over() {
        let waits = Waits::default();
        let (first, second) = (waits.begin(1), waits.begin(2));
        waits.give_up(2);
        second.given_up().await;
        let again = waits.begin(1);
        drop(first); // cut off; the call was sent again
        waits.give_up(1);
        again.given_up().await;
        drop((again, second));
        waits.give_up(1);
        assert!(waits.lock().is_empty());
    }
}
