//! The ready queue of one consumer for one table and one policy version.
//!
//! An entry is a row, or the number of a complete group; where it stands is its ticket, which the row's word or the
//! group's record holds. Tickets are given in ascending order, so the entries of a first-in-first-out queue lie in the
//! order of their tickets, four bytes each, in blocks: one that leaves from the middle is found by its ticket's block.
//! A block's entries are a page, so that a checkpoint takes a reference and an opening maps what was stored.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::heap::HeapBytes;
use crate::page::{CowArc, Page, Rows};

/// A row or the number of a group: a consumer's entries are all of one kind.
pub(crate) type Entry = u32;

/// Entries in a full block.
const BLOCK_ENTRIES: usize = 512;

/// Where the first entry of a queue stands among the queues of its consumer: least first.
pub(crate) type Place = (Reverse<u64>, u64);

/// Entries in the order in which they are to be handed out.
#[derive(Clone, Debug)]
pub(crate) enum Queue {
    /// By age.
    Fifo(Fifo),
    /// By priority, and then by age.
    Priority(Priority),
}

/// Entries by age.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fifo {
    blocks: VecDeque<Block>,
    rows: usize,
}

/// Up to [`BLOCK_ENTRIES`] entries, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The ticket of the entry that the block began with.
    pub(crate) ticket_min: u64,
    pub(crate) entries: BlockPage,
}

/// The entries of a block.
pub(crate) type BlockPage = CowArc<Page<Rows<Entry>>>;

/// Entries by priority, greatest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Priority {
    entries: BTreeMap<Place, Entry>,
    places: HashMap<Entry, Place>,
    rows: usize,
}

impl Queue {
    pub(crate) fn new(by_priority: bool) -> Self {
        if by_priority { Queue::Priority(Priority::default()) } else { Queue::Fifo(Fifo::default()) }
    }

    /// A queue as it was, of `rows` rows, in the order of age. `None` where the blocks cannot be those of any.
    pub(crate) fn of_blocks(blocks: Vec<Block>, rows: usize) -> Option<Self> {
        let whole = blocks.iter().all(|block| (1..=BLOCK_ENTRIES).contains(&block.entries.len()))
            && blocks.is_sorted_by(|a, b| a.ticket_min < b.ticket_min);
        whole.then(|| Queue::Fifo(Fifo { blocks: blocks.into(), rows }))
    }

    /// The blocks of a queue by age.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        match self {
            Queue::Fifo(queue) => queue.blocks.iter().cloned().collect(),
            Queue::Priority(_) => Vec::new(),
        }
    }

    /// The same, to be put back as they are stored.
    pub(crate) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        let queue = match self {
            Queue::Fifo(queue) => Some(queue),
            Queue::Priority(_) => None,
        };
        queue.into_iter().flat_map(|queue| &mut queue.blocks)
    }

    /// The places of a queue by priority, in its order.
    pub(crate) fn places(&self) -> Vec<(Entry, u64, u64)> {
        match self {
            Queue::Fifo(_) => Vec::new(),
            Queue::Priority(queue) => {
                queue.entries.iter().map(|((Reverse(p), t), entry)| (*entry, *t, *p)).collect()
            }
        }
    }

    /// Rows over all entries.
    pub(crate) fn rows(&self) -> usize {
        match self {
            Queue::Fifo(queue) => queue.rows,
            Queue::Priority(queue) => queue.rows,
        }
    }

    /// Entries in order.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = Entry> + '_> {
        match self {
            Queue::Fifo(queue) => {
                Box::new(queue.blocks.iter().flat_map(|block| block.entries.iter().copied()))
            }
            Queue::Priority(queue) => Box::new(queue.entries.values().copied()),
        }
    }

    /// Adds an entry of `rows` rows with the newest ticket there is.
    pub(crate) fn push(&mut self, entry: Entry, rows: u32, ticket: u64, priority: u64) {
        match self {
            Queue::Fifo(queue) => {
                queue.push(entry, ticket);
                queue.rows += rows as usize;
            }
            Queue::Priority(queue) => {
                let place = (Reverse(priority), ticket);
                queue.entries.insert(place, entry);
                queue.places.insert(entry, place);
                queue.rows += rows as usize;
            }
        }
    }

    /// Takes out an entry of `rows` rows that stands at `ticket`.
    pub(crate) fn remove(&mut self, entry: Entry, rows: u32, ticket: u64) {
        let was_there = match self {
            Queue::Fifo(queue) => queue.remove(entry, ticket),
            Queue::Priority(queue) => {
                queue.places.remove(&entry).is_some_and(|place| queue.entries.remove(&place).is_some())
            }
        };
        let all = match self {
            Queue::Fifo(queue) => &mut queue.rows,
            Queue::Priority(queue) => &mut queue.rows,
        };
        *all -= if was_there { rows as usize } else { 0 };
    }

    /// Gives entries other numbers: each its own.
    pub(crate) fn renumber(&mut self, new: impl Fn(Entry) -> Entry) {
        match self {
            Queue::Fifo(queue) => {
                for block in &mut queue.blocks {
                    let entries = Page::edit(&mut block.entries).to_mut();
                    entries.iter_mut().for_each(|entry| *entry = new(*entry));
                }
            }
            Queue::Priority(queue) => {
                queue.entries.values_mut().for_each(|entry| *entry = new(*entry));
                queue.places = queue.entries.iter().map(|(place, entry)| (*entry, *place)).collect();
            }
        }
    }

    /// Where the first entry stands.
    pub(crate) fn first(&self, ticket_of: impl Fn(Entry) -> u64) -> Option<Place> {
        match self {
            Queue::Fifo(queue) => queue.blocks.front().map(|block| (Reverse(0), ticket_of(block.entries[0]))),
            Queue::Priority(queue) => queue.entries.first_key_value().map(|(place, _)| *place),
        }
    }

    /// Bytes of memory, other than mapped files'.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Queue::Fifo(queue) => {
                let pages = queue.blocks.iter();
                let pages = pages.map(|block| size_of::<Page<Rows<Entry>>>() + block.entries.heap_bytes());
                queue.blocks.heap_bytes() + pages.sum::<usize>()
            }
            Queue::Priority(queue) => queue.entries.len() * (2 * size_of::<Place>() + 4 * size_of::<Entry>()),
        }
    }
}

impl Fifo {
    fn push(&mut self, entry: Entry, ticket: u64) {
        match self.blocks.back_mut() {
            Some(block) if block.entries.len() < BLOCK_ENTRIES => {
                Page::edit(&mut block.entries).to_mut().push(entry);
            }
            _ => {
                let entries = Page::new(Rows::Owned(vec![entry]));
                self.blocks.push_back(Block { ticket_min: ticket, entries });
            }
        }
    }

    fn remove(&mut self, entry: Entry, ticket: u64) -> bool {
        let begins_before = |block: &Block| block.ticket_min <= ticket;
        // Nearly all leave from the first block: the search, over a long queue, looks at memory that nobody else does.
        let blocks = match self.blocks.get(1).is_some_and(begins_before) {
            true => self.blocks.partition_point(begins_before),
            false => usize::from(self.blocks.front().is_some_and(begins_before)),
        };
        let Some(at) = blocks.checked_sub(1) else { return false };
        let entries = &mut self.blocks[at].entries;
        let Some(place) = entries.iter().position(|other| *other == entry) else { return false };
        if entries.len() == 1 {
            self.blocks.remove(at);
            return true;
        }
        Page::edit(entries).to_mut().remove(place);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue beside the list that it stands for.
    fn check(by_priority: bool, operations: &[(bool, usize, u64)]) {
        let (mut queue, mut model) = (Queue::new(by_priority), Vec::<(Entry, u32, u64, u64)>::new());
        let mut tickets = HashMap::new();
        for (ticket, &(add, at, priority)) in operations.iter().enumerate() {
            let ticket = ticket as u64 + 1;
            if add || model.is_empty() {
                let (entry, rows) = (ticket as Entry * 7 % 1009, 1 + at as u32 % 3);
                tickets.insert(entry, ticket);
                queue.push(entry, rows, ticket, priority);
                model.push((entry, rows, ticket, priority));
            } else {
                let (entry, rows, ticket, _) = model.remove(at % model.len());
                queue.remove(entry, rows, ticket);
            }
            if by_priority {
                model.sort_by_key(|(_, _, ticket, priority)| (Reverse(*priority), *ticket));
            }
            let expected: Vec<Entry> = model.iter().map(|(entry, ..)| *entry).collect();
            assert_eq!(queue.iter().collect::<Vec<_>>(), expected);
            assert_eq!(queue.rows(), model.iter().map(|(_, rows, ..)| *rows as usize).sum::<usize>());
            assert_eq!(queue.first(|entry| tickets[&entry]).map(|place| place.1), model.first().map(|m| m.2));
        }
    }

    /// A row leaves from its own block, wherever that is by then: one that stayed would be handed out twice.
    #[test]
    fn entries_leave_from_every_place_of_every_block() {
        let (blocks, size) = (4_usize, BLOCK_ENTRIES);
        let places = [0, 1, size / 2, size - 1];
        let mut queue = Queue::new(false);
        let mut model: Vec<Entry> = (0..(blocks * size) as Entry).collect();
        model.iter().for_each(|&entry| queue.push(entry, 1, u64::from(entry) + 10, 0));
        let mut leave = |entry: usize| {
            queue.remove(entry as Entry, 1, entry as u64 + 10);
            model.retain(|other| *other != entry as Entry);
            assert_eq!(queue.iter().collect::<Vec<_>>(), model, "after {entry} left");
            assert_eq!(queue.rows(), model.len());
        };
        for block in [2, 0, 3, 1] {
            places.into_iter().for_each(|place| leave(block * size + place));
        }
        (0..size).for_each(|place| leave(2 * size + place)); // a block in the middle goes, and some are asked for again
        (0..size).for_each(&mut leave); // and the first
        places.into_iter().for_each(|place| leave(3 * size + place));
        leave(blocks * size); // was never there
    }

    proptest! {
        #[test]
        fn a_queue_is_a_list_from_which_anything_may_leave(
            by_priority: bool,
            operations in prop::collection::vec((prop::bool::weighted(0.6), 0..100_usize, 0..3_u64), 0..300),
        ) {
            check(by_priority, &operations);
        }
    }
}
