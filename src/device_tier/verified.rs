//! Whether what lies on a device is what was set: the same checksums, taken of bytes that come from there.

use std::collections::VecDeque;

use super::part::{self, Extent, Piece};
use super::ring::{Ring, range_of};
use super::{DevicePart, DeviceTier, DeviceTierError};
use crate::client::{GetObject, HeldObject};
use crate::store::Which;
use crate::trainer::device::Copies;

impl<D: Copies> DeviceTier<D> {
    /// Compares what the parts hold, after everything that the device was told to compute before, with the checksums of a version: those
    /// that were taken when it was set. Gives its number. Nothing on the device changes.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`DeviceTierError::Damaged`] names a chunk that is not what was set.
    pub fn verify(
        &self,
        key: &str,
        which: Which,
        parts: &[DevicePart<'_, D>],
    ) -> Result<u64, DeviceTierError> {
        let held = self.objects.get_with(key, which, &GetObject::default())?;
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let extents = part::extents(&held.manifest().layout, named)?;
        self.in_lanes(self.pieces(&extents), |[ring], lane| {
            let mut looking = Looking::new(&self.device, ring, &held);
            for (number, (part, extent)) in parts.iter().zip(&extents).enumerate() {
                for piece in lane.share(number, extent.pieces(self.piece_values)) {
                    looking.take(part.buffer, extent, piece)?;
                }
            }
            looking.finish()
        })?;
        Ok(held.version())
    }
}

/// Pieces on their way to be looked at.
struct Looking<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    held: &'a HeldObject,
    /// The oldest first: each has the slot of its number.
    under_way: VecDeque<(D::Event, Extent, Piece)>,
    taken: usize,
}

impl<'a, D: Copies> Looking<'a, D> {
    fn new(device: &'a D, ring: &'a mut Ring<D>, held: &'a HeldObject) -> Self {
        device.stream_after(&ring.copies, &device.computed());
        Looking { device, ring, held, under_way: VecDeque::new(), taken: 0 }
    }

    /// Begins to copy a piece.
    fn take(&mut self, buffer: &D::Buffer, extent: &Extent, piece: Piece) -> Result<(), DeviceTierError> {
        let slots = self.ring.slots.len();
        if self.under_way.len() == slots {
            self.look()?;
        }
        let range = range_of(extent.offset + piece.first, 0, piece);
        let slot = &mut self.ring.slots[self.taken % slots];
        let event = self.device.copy_to_host_async(&self.ring.copies, buffer, slot, range);
        self.taken += 1;
        self.under_way.push_back((event, extent.clone(), piece));
        Ok(())
    }

    /// Waits for the oldest piece, and compares its chunks.
    fn look(&mut self) -> Result<(), DeviceTierError> {
        let slot = (self.taken - self.under_way.len()) % self.ring.slots.len();
        let Some((event, extent, piece)) = self.under_way.pop_front() else { return Ok(()) };
        self.device.wait(&event)?;
        let values = &mut self.ring.piece[..piece.length];
        self.device.read_host(&self.ring.slots[slot], 0, values);
        self.device.check()?;
        let offset = (piece.first * size_of::<f32>()) as u64;
        let mut bytes = bytemuck::cast_slice::<f32, u8>(values).to_vec();
        if piece.first + piece.length == extent.values {
            // What a payload has behind its last tensor is in the checksum, and not on the device.
            let end = bytes.len();
            bytes.resize((extent.payload_bytes - offset) as usize, 0);
            self.held.read_class(&extent.class, offset + end as u64, &mut bytes[end..])?;
        }
        let damage = self.held.manifest().damage(&extent.class, offset, &bytes);
        match damage.map_err(crate::client::Error::from)? {
            None => Ok(()),
            Some(reason) => Err(DeviceTierError::Damaged { reason: format!("on the device, {reason}") }),
        }
    }

    fn finish(&mut self) -> Result<(), DeviceTierError> {
        while !self.under_way.is_empty() {
            self.look()?;
        }
        Ok(())
    }
}

/// Nothing is under way when the buffers are handed back, also after a failure.
impl<D: Copies> Drop for Looking<'_, D> {
    fn drop(&mut self) {
        for (event, ..) in self.under_way.drain(..) {
            let _ = self.device.wait(&event); // the call has failed already
        }
    }
}
