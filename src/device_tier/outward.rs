//! From a device into an object that is being filled.

use std::collections::VecDeque;

use super::DeviceTierError;
use super::part::{Extent, Piece};
use super::ring::Ring;
use crate::client::ObjectFilling;
use crate::trainer::device::{Copies, CopyRange};

/// Pieces on their way out.
pub(super) struct Outward<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    filling: &'a ObjectFilling,
    stream: D::Stream,
    /// The oldest first: each has the slot of its number.
    under_way: VecDeque<Leaving<D>>,
    taken: usize,
}

struct Leaving<D: Copies> {
    event: D::Event,
    class: String,
    piece: Piece,
}

impl<'a, D: Copies> Outward<'a, D> {
    /// Whatever the device was told to compute before comes before the first piece.
    pub(super) fn new(device: &'a D, ring: &'a mut Ring<D>, filling: &'a ObjectFilling) -> Self {
        let stream = device.stream();
        device.stream_after(&stream, &device.computed());
        Outward { device, ring, filling, stream, under_way: VecDeque::new(), taken: 0 }
    }

    /// Begins to copy a piece. Gives the event at which it has left the device.
    pub(super) fn take(
        &mut self,
        buffer: &D::Buffer,
        extent: &Extent,
        piece: Piece,
    ) -> Result<D::Event, DeviceTierError> {
        let slots = self.ring.slots.len();
        if self.under_way.len() == slots {
            self.arrive()?;
        }
        let range =
            CopyRange { device_offset: extent.offset + piece.first, host_offset: 0, length: piece.length };
        let slot = &mut self.ring.slots[self.taken % slots];
        let event = self.device.copy_to_host_async(&self.stream, buffer, slot, range);
        self.taken += 1;
        self.under_way.push_back(Leaving { event: event.clone(), class: extent.class.clone(), piece });
        Ok(event)
    }

    /// Waits for the oldest piece and puts it where the object lies.
    fn arrive(&mut self) -> Result<(), DeviceTierError> {
        let slot = (self.taken - self.under_way.len()) % self.ring.slots.len();
        let Some(Leaving { event, class, piece }) = self.under_way.pop_front() else { return Ok(()) };
        self.device.wait(&event)?;
        let values = &mut self.ring.piece[..piece.length];
        self.device.read_host(&self.ring.slots[slot], 0, values);
        self.device.check()?;
        let offset = (piece.first * size_of::<f32>()) as u64;
        Ok(self.filling.write_class(&class, offset, bytemuck::cast_slice(values))?)
    }

    /// Waits for every piece.
    pub(super) fn finish(&mut self) -> Result<(), DeviceTierError> {
        while !self.under_way.is_empty() {
            self.arrive()?;
        }
        Ok(())
    }
}

/// Nothing is under way when the buffers are handed back, also after a failure.
impl<D: Copies> Drop for Outward<'_, D> {
    fn drop(&mut self) {
        for leaving in self.under_way.drain(..) {
            let _ = self.device.wait(&leaving.event); // what it brought is not looked at
        }
    }
}
