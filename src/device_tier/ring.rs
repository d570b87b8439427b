//! Pinned host memory that pieces pass through.

use crate::trainer::device::Copies;

/// Pieces that are under way at a time: one is copied by the device, one is looked at by the host, one waits.
const SLOTS: usize = 3;

/// A few pieces of host memory, used in turn, and the host's own memory for one.
pub(super) struct Ring<D: Copies> {
    pub(super) slots: Vec<D::Host>,
    /// A piece as the host looks at it: pinned memory is read and written by copies alone.
    pub(super) piece: Vec<f32>,
}

impl<D: Copies> Ring<D> {
    pub(super) fn new(device: &D, piece_values: usize) -> Self {
        let slots = (0..SLOTS).map(|_| device.allocate_host(piece_values)).collect();
        Ring { slots, piece: vec![0.0; piece_values] }
    }

    /// Values of pinned memory.
    pub(super) fn values(&self) -> usize {
        self.slots.len() * self.piece.len()
    }
}

impl<D: Copies> std::fmt::Debug for Ring<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} values)", self.values())
    }
}
