//! Slabs of clients: memory that they fill and the server copies from.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::Error;
use forebay_client::wire::{not_lent, parts_of_slabs, proto};
use forebay_store::{Copied, Kind, Slab};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How large a slab is.
pub(super) const SLAB_BYTES: u32 = 8 << 20;
/// The most slabs of one client: as many bytes as it may have under way.
const SLABS_MAX: usize = 8;

/// The slabs of one client. They are gone with its session; what the client still has of them is its own.
#[derive(Debug)]
pub(super) struct Slabs {
    /// How many more there may be, of all clients.
    room: Arc<Semaphore>,
    made: Mutex<BTreeMap<u32, Arc<Made>>>,
}

#[derive(Debug)]
pub(super) struct Made {
    pub(super) slab: Slab,
    _place: OwnedSemaphorePermit,
}

/// Room for as many slabs of all clients as have so many bytes together.
pub(super) fn room(bytes: u64) -> Arc<Semaphore> {
    let slabs = usize::try_from(bytes / u64::from(SLAB_BYTES)).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(slabs.min(Semaphore::MAX_PERMITS)))
}

impl Slabs {
    /// None yet.
    pub(super) fn new(room: &Arc<Semaphore>) -> Self {
        Slabs { room: room.clone(), made: Mutex::default() }
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Made>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner) // entries are whole
    }

    /// Makes another, and gives it a number; none where there are as many as there may be.
    pub(super) fn make(&self) -> Result<Option<(u32, Arc<Made>)>, Error> {
        let mut made = self.made();
        let Ok(place) = self.room.clone().try_acquire_owned() else { return Ok(None) };
        if made.len() >= SLABS_MAX {
            return Ok(None);
        }
        // Not those of the sessions before: a message may come late that names one of them.
        let number = loop {
            let number = getrandom::u32().map_err(|error| no_numbers(&error))?;
            if !made.contains_key(&number) {
                break number;
            }
        };
        let slab = Arc::new(Made { slab: Slab::make(SLAB_BYTES)?, _place: place });
        made.insert(number, slab.clone());
        Ok(Some((number, slab)))
    }

    /// Copies what changes name.
    pub(super) fn copy(&self, changes: &proto::Changes) -> Result<BTreeMap<u32, Copied>, Error> {
        let find = |number: u32| {
            self.made().get(&number).cloned().ok_or_else(|| not_lent(&format!("slab {number}")))
        };
        let parts = parts_of_slabs(changes);
        parts.into_iter().map(|(number, part)| Ok((number, find(number)?.slab.copy(part)?))).collect()
    }

    /// Lets go of one that its client did not get.
    pub(super) fn unmake(&self, number: u32) {
        self.made().remove(&number);
    }

    /// Lets go of all of them.
    pub(super) fn let_go(&self) {
        self.made().clear();
    }
}

fn no_numbers(error: &getrandom::Error) -> Error {
    Error::new(Kind::Retry, "Random", format!("the system gives no random number for a slab: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_so_many_and_all_together_have_so_many() {
        let room = room(u64::from(SLAB_BYTES) * (SLABS_MAX as u64 + 2));
        let (greedy, late) = (Slabs::new(&room), Slabs::new(&room));
        let mut numbers = std::collections::HashSet::new();
        while let Some((number, _)) = greedy.make().unwrap() {
            numbers.insert(number);
        }
        assert_eq!(numbers.len(), SLABS_MAX);
        assert!(late.make().unwrap().is_some() && late.make().unwrap().is_some());
        assert!(late.make().unwrap().is_none(), "nothing is left");
        greedy.unmake(*numbers.iter().next().unwrap());
        assert!(late.make().unwrap().is_some() && late.make().unwrap().is_none());
        greedy.let_go();
        assert!(late.make().unwrap().is_some());
    }
}
