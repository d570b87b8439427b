//! Waits for rows that are under way, by the names of their calls, so that a client can give one up without cutting it off.
//!
//! One lock, for a look-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The waits of one session: of each name those that are under way, which are several where a call was sent again.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<u128, Vec<Arc<Notify>>>>);

/// One wait, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'w> {
    waits: &'w Waits,
    name: u128,
    told: Arc<Notify>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Vec<Arc<Notify>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// Begins a wait.
    pub(super) fn begin(&self, name: u128) -> Waiting<'_> {
        let told = Arc::new(Notify::new());
        self.lock().entry(name).or_default().push(told.clone());
        Waiting { waits: self, name, told }
    }

    /// Ends the waits of that name: the client has given it up, or one of them has found what it waits for.
    pub(super) fn give_up(&self, name: u128) {
        self.lock().get(&name).into_iter().flatten().for_each(|told| told.notify_one());
    }
}

impl Waiting<'_> {
    /// Until the wait is over by its name.
    pub(super) async fn given_up(&self) {
        self.told.notified().await;
    }

    /// Whether no other wait of that name is under way.
    pub(super) fn is_alone(&self) -> bool {
        self.waits.lock().get(&self.name).is_none_or(|told| told.len() < 2)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = self.waits.lock();
        let Some(told) = waits.get_mut(&self.name) else { return };
        told.retain(|told| !Arc::ptr_eq(told, &self.told));
        if told.is_empty() {
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
        assert!(!first.is_alone() && !again.is_alone() && second.is_alone());
        drop(first); // cut off; the call was sent again
        assert!(again.is_alone());
        waits.give_up(1);
        again.given_up().await;
        drop((again, second));
        waits.give_up(1);
        assert!(waits.lock().is_empty());
    }
}
