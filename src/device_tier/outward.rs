//! From a device into an object that is being filled.

use std::collections::{BTreeSet, VecDeque};

use super::DeviceTierError;
use super::part::{Extent, Piece};
use super::pins::Pins;
use super::ring::Ring;
use crate::client::ObjectFilling;
use crate::store::FillingRange;
use crate::trainer::device::{Copies, CopyRange};

/// Pieces on their way out.
pub(super) struct Outward<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    filling: &'a ObjectFilling,
    pins: &'a Pins<D>,
    /// Classes that lie where nothing is pinned.
    unpinned: BTreeSet<String>,
    stream: D::Stream,
    /// The oldest first.
    under_way: VecDeque<Leaving<D>>,
    /// Pieces that slots were taken for.
    staged: usize,
}

struct Leaving<D: Copies> {
    event: D::Event,
    piece: Piece,
    to: To,
}

/// Where a piece goes.
enum To {
    /// To a slot of the ring, and from there to this memory class.
    Slot(usize, String),
    /// To where the object lies.
    Object(FillingRange),
}

impl<'a, D: Copies> Outward<'a, D> {
    /// Whatever the device was told to compute before comes before the first piece.
    pub(super) fn new(
        device: &'a D,
        ring: &'a mut Ring<D>,
        (filling, pins): (&'a ObjectFilling, &'a Pins<D>),
    ) -> Self {
        let stream = device.stream();
        device.stream_after(&stream, &device.computed());
        let (unpinned, under_way) = Default::default();
        Outward { device, ring, filling, pins, unpinned, stream, under_way, staged: 0 }
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
        let direct = self.lend(extent, piece)?;
        self.pins.count(direct.is_some(), piece.bytes());
        let (event, to) = match direct {
            Some((memory, lent)) => {
                let range = CopyRange { host_offset: lent.offset() / size_of::<f32>(), ..range };
                let event = self.device.copy_to_pinned_async(&self.stream, buffer, &memory, range);
                (event, To::Object(lent))
            }
            None => {
                let slot = self.staged % slots;
                self.staged += 1;
                let target = &mut self.ring.slots[slot];
                let event = self.device.copy_to_host_async(&self.stream, buffer, target, range);
                (event, To::Slot(slot, extent.class.clone()))
            }
        };
        self.under_way.push_back(Leaving { event: event.clone(), piece, to });
        Ok(event)
    }

    /// Where a piece goes by itself; nothing where it has to pass through the ring.
    fn lend(
        &mut self,
        extent: &Extent,
        piece: Piece,
    ) -> Result<Option<(D::Pinned, FillingRange)>, DeviceTierError> {
        if !self.pins.are_wanted() || self.unpinned.contains(&extent.class) {
            return Ok(None);
        }
        let lent = self.filling.lend_class(&extent.class, piece.offset(), piece.bytes())?;
        let found = lent.and_then(|lent| Some((self.pins.of(self.device, lent.mapping())?, lent)));
        if found.is_none() {
            self.unpinned.insert(extent.class.clone());
        }
        Ok(found)
    }

    /// Waits for the oldest piece, and has it where the object lies.
    fn arrive(&mut self) -> Result<(), DeviceTierError> {
        let Some(Leaving { event, piece, to }) = self.under_way.pop_front() else { return Ok(()) };
        self.device.wait(&event)?;
        match to {
            To::Object(lent) => {
                self.device.check()?;
                lent.filled();
                Ok(())
            }
            To::Slot(slot, class) => {
                let values = &mut self.ring.piece[..piece.length];
                self.device.read_host(&self.ring.slots[slot], 0, values);
                self.device.check()?;
                Ok(self.filling.write_class(&class, piece.offset(), bytemuck::cast_slice(values))?)
            }
        }
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
