//! Pages that nobody but snapshots keeps: what a table was made of when a snapshot was taken, and is no more.
//!
//! A snapshot holds the chunks of every table as [`HeldChunks`]. The store knows all that are held, without holding them,
//! so that it can tell what they cost and whose they are. Chunks and pages that the table still has cost nothing.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::page::CowArc;
use crate::state::State;
use crate::sync::{Event, Mutex};
use crate::table::Chunk;

/// The chunks of one table as a snapshot holds them. Whoever waits for memory is woken when they go.
#[derive(Debug)]
pub(crate) struct HeldChunks {
    chunks: Vec<CowArc<Chunk>>,
    freed: Arc<Event>,
}

impl Deref for HeldChunks {
    type Target = [CowArc<Chunk>];

    fn deref(&self) -> &[CowArc<Chunk>] {
        &self.chunks
    }
}

impl Drop for HeldChunks {
    fn drop(&mut self) {
        self.chunks.clear();
        self.freed.notify(usize::MAX);
    }
}

/// All that snapshots hold.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    held: Mutex<Vec<Holding>>,
    /// Notified when memory is let go.
    pub(crate) freed: Arc<Event>,
}

/// What one snapshot holds of one table.
#[derive(Debug)]
struct Holding {
    pin: u64,
    table: usize,
    chunks: Weak<HeldChunks>,
}

/// Bytes of pages that only snapshots keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes {
    /// Each page once.
    pub(crate) all: u64,
    /// By pin: what would go with it alone, or with others that hold the same.
    pub(crate) by_pin: Vec<(u64, u64)>,
    /// What was looked at. A snapshot may have been dropped meanwhile, so this is the last that has it: it frees the pages,
    /// and wakes who waits for that, when the state is no longer locked.
    looked_at: Vec<Arc<HeldChunks>>,
}

impl Holdings {
    /// Notes what the snapshot of a pin is given of a table.
    pub(crate) fn give(&self, pin: u64, table: usize, chunks: Vec<CowArc<Chunk>>) -> Arc<HeldChunks> {
        let chunks = Arc::new(HeldChunks { chunks, freed: self.freed.clone() });
        let mut held = self.held.lock();
        held.retain(|holding| holding.chunks.strong_count() > 0);
        held.push(Holding { pin, table, chunks: Arc::downgrade(&chunks) });
        chunks
    }

    /// Whether a snapshot is held.
    pub(crate) fn is_any(&self) -> bool {
        self.held.lock().iter().any(|holding| holding.chunks.strong_count() > 0)
    }

    /// What snapshots keep that the state does not have. To be dropped when the state is locked no longer.
    pub(crate) fn bytes(&self, state: &State) -> HeldBytes {
        let held: Vec<(u64, usize, Arc<HeldChunks>)> = {
            let held = self.held.lock();
            held.iter().filter_map(|h| Some((h.pin, h.table, h.chunks.upgrade()?))).collect()
        };
        let (mut bytes, mut counted) = (HeldBytes::default(), HashSet::new());
        for (pin, table, chunks) in &held {
            let current = &state.tables[*table].chunks;
            let changed = chunks.iter().zip(current).filter(|(theirs, ours)| !CowArc::ptr_eq(theirs, ours));
            let mut of_pin = 0;
            for (theirs, ours) in changed {
                let ours: HashSet<usize> = ours.heap_pages().map(|(page, _)| page).collect();
                for (page, size) in theirs.heap_pages().filter(|(page, _)| !ours.contains(page)) {
                    of_pin += size as u64;
                    bytes.all += if counted.insert(page) { size as u64 } else { 0 };
                }
            }
            match bytes.by_pin.iter_mut().find(|(of, _)| of == pin) {
                Some((_, sum)) => *sum += of_pin,
                None => bytes.by_pin.push((*pin, of_pin)),
            }
        }
        bytes.looked_at = held.into_iter().map(|(.., chunks)| chunks).collect();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, Schema, SimulatedDisk, Store};

    #[test]
    fn a_snapshot_that_goes_while_it_is_looked_at_frees_its_pages_after_that() {
        let disk = std::sync::Arc::new(SimulatedDisk::default());
        let store = Store::open("/store", Options::default().disk(disk)).unwrap();
        store.create_table("solver", Schema::new()).unwrap();
        let (snapshot, holdings) = (store.snapshot(), &store.0.memory.holdings);
        let bytes = holdings.bytes(&store.0.state.lock());
        drop(snapshot);
        assert!(holdings.is_any(), "whoever looked has them still");
        drop(bytes);
        assert!(!holdings.is_any());
    }
}
