//! Pinned host memory that pieces pass through, and the streams that move them.

use super::CHUNK_VALUES;
use super::part::Piece;
use crate::trainer;
use crate::trainer::device::{Copies, CopyRange};

/// Pieces of host memory: one is copied by the device, one is looked at by the host, one waits.
const SLOTS: usize = 3;
/// Pieces that are under way at a time where they need none: the device is never without the next.
pub(super) const DIRECT: usize = 8;

/// A few pieces of host memory, used in turn, and the host's own memory for one.
pub(super) struct Ring<D: Copies> {
    pub(super) slots: Vec<D::Host>,
    /// A piece as the host looks at it: pinned memory is read and written by copies alone.
    pub(super) piece: Vec<f32>,
    /// Moves pieces one way.
    pub(super) copies: D::Stream,
    /// Sums up what moves, beside the copies.
    sums: D::Stream,
    /// The checksums of [`DIRECT`] pieces, chunk by chunk.
    summed: D::Host,
    /// Chunks of a piece.
    chunks: usize,
}

/// A piece that the device sums up.
pub(super) struct Summed<D: Copies> {
    pub(super) event: D::Event,
    place: usize,
    chunks: usize,
}

impl<D: Copies> Ring<D> {
    /// All that a move takes of the host's memory: none fails for want of it once it has begun.
    pub(super) fn new(device: &D, piece_values: usize) -> Result<Self, trainer::Error> {
        let slots = (0..SLOTS).map(|_| device.allocate_host(piece_values)).collect::<Result<_, _>>()?;
        let chunks = piece_values.div_ceil(CHUNK_VALUES);
        let summed = device.allocate_host(DIRECT * chunks)?;
        let (copies, sums) = (device.stream()?, device.stream()?);
        device.prepare_sums(&sums, chunks)?;
        Ok(Ring { slots, piece: vec![0.0; piece_values], copies, sums, summed, chunks })
    }

    /// Values of pinned memory.
    pub(super) fn values(&self) -> usize {
        self.slots.len() * self.chunks * CHUNK_VALUES + DIRECT * self.chunks
    }

    /// Begins to sum up the chunks of a piece where it lies on the device, after `event`: the `number`th that goes directly. Of the
    /// [`DIRECT`] before it the first has been read.
    pub(super) fn sum_up(
        &mut self,
        device: &D,
        (buffer, first, piece): (&D::Buffer, usize, Piece),
        number: usize,
        event: &D::Event,
    ) -> Summed<D> {
        let place = number % DIRECT * self.chunks;
        device.stream_after(&self.sums, event);
        let values = first..first + piece.length;
        let runs = (values, CHUNK_VALUES);
        let event = device.sum_up_async(&self.sums, buffer, runs, &mut self.summed, place);
        Summed { event, place, chunks: piece.length.div_ceil(CHUNK_VALUES) }
    }

    /// The checksums of a piece whose event was waited for.
    pub(super) fn sums_of(&self, device: &D, summed: &Summed<D>) -> Vec<u32> {
        let mut sums = vec![0.0; summed.chunks];
        device.read_host(&self.summed, summed.place, &mut sums);
        sums.into_iter().map(f32::to_bits).collect()
    }
}

/// Where a piece lies in a buffer; in host memory it begins at `host_offset`.
pub(super) fn range_of(first: usize, host_offset: usize, piece: Piece) -> CopyRange {
    CopyRange { device_offset: first, host_offset, length: piece.length }
}

impl<D: Copies> std::fmt::Debug for Ring<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} values)", self.values())
    }
}
