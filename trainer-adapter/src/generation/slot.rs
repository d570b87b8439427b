//! Places in a key-value cache.

use crate::device::{AttentionHeads, CacheRow};

/// Positions of a slot are a multiple of this.
const STEP: usize = 16;

/// Where a piece of a sequence lies in each layer's cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slot {
    offset: usize,
    capacity: usize,
}

impl Slot {
    /// The place of the prompt's position `index`, in the prompt's slot.
    pub(super) fn prompt_row(self, index: usize) -> CacheRow {
        CacheRow {
            prompt_slot: 0,
            prompt_capacity: 0,
            prompt_length: 0,
            own_slot: self.offset,
            own_capacity: self.capacity,
            own_index: index,
        }
    }

    /// The place of the response's token `index`, in the response's slot, behind a prompt of `prompt_length` tokens.
    pub(super) fn response_row(self, index: usize, prompt: Self, prompt_length: usize) -> CacheRow {
        CacheRow {
            prompt_slot: prompt.offset,
            prompt_capacity: prompt.capacity,
            prompt_length,
            own_slot: self.offset,
            own_capacity: self.capacity,
            own_index: index,
        }
    }
}

/// Hands out slots one behind the other, the same in each layer.
pub(super) struct Slots {
    heads: AttentionHeads,
    end: usize,
}

impl Slots {
    pub(super) fn new(heads: AttentionHeads) -> Self {
        Self { heads, end: 0 }
    }

    pub(super) fn take(&mut self, positions: usize) -> Slot {
        let capacity = positions.next_multiple_of(STEP);
        let slot = Slot { offset: self.end, capacity };
        self.end += 2 * self.heads.key_columns() * capacity;
        slot
    }

    /// Values that one layer's slots need.
    pub(super) fn length(&self) -> usize {
        self.end
    }
}
