//! From a device into an object that is being filled.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;

use super::DeviceTierError;
use super::part::{Extent, Piece};
use super::pins::Pins;
use super::ring::{DIRECT, Ring, Summed, range_of};
use crate::client::ObjectFilling;
use crate::store::FillingRange;
use crate::trainer::device::Copies;

/// Pieces on their way out.
pub(super) struct Outward<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    filling: &'a ObjectFilling,
    pins: &'a Pins<D>,
    /// Classes that lie where nothing is pinned.
    unpinned: BTreeSet<String>,
    /// What the device was told to compute before.
    computed: D::Event,
    /// The oldest first.
    under_way: VecDeque<Leaving<D>>,
    /// Pieces that slots were taken for, and those that needed none.
    staged: usize,
    direct: usize,
}

struct Leaving<D: Copies> {
    event: D::Event,
    piece: Piece,
    to: To<D>,
}

/// Where a piece goes.
enum To<D: Copies> {
    /// To a slot of the ring, and from there to this memory class.
    Slot(usize, String),
    /// To where the object lies, while the device sums it up.
    Object(FillingRange, Summed<D>),
}

/// When nothing more is read of the memory that a piece has left.
pub(super) struct Left<D: Copies> {
    copied: D::Event,
    summed: Option<D::Event>,
}

impl<D: Copies> Left<D> {
    /// Has what is given to a stream from now on come after it.
    pub(super) fn comes_before(&self, device: &D, stream: &D::Stream) {
        device.stream_after(stream, &self.copied);
        if let Some(summed) = &self.summed {
            device.stream_after(stream, summed);
        }
    }
}

impl<'a, D: Copies> Outward<'a, D> {
    /// Whatever the device was told to compute before comes before the first piece.
    pub(super) fn new(
        device: &'a D,
        ring: &'a mut Ring<D>,
        (filling, pins): (&'a ObjectFilling, &'a Pins<D>),
    ) -> Self {
        let computed = device.computed();
        device.stream_after(&ring.copies, &computed);
        let (unpinned, under_way) = Default::default();
        Outward { device, ring, filling, pins, unpinned, computed, under_way, staged: 0, direct: 0 }
    }

    /// Begins to copy a piece out of `buffer`, which is asked for when there is room for it. Gives when it has left the device.
    pub(super) fn take<B: Deref<Target = D::Buffer>>(
        &mut self,
        buffer: impl FnOnce() -> B,
        extent: &Extent,
        piece: Piece,
    ) -> Result<Left<D>, DeviceTierError> {
        let (direct, slots) = (self.lend(extent, piece)?, self.ring.slots.len());
        while self.under_way.len() >= if direct.is_some() { DIRECT } else { slots } {
            self.arrive()?;
        }
        self.pins.count(direct.is_some(), piece.bytes());
        let buffer = buffer();
        let first = extent.offset + piece.first;
        let (event, to) = match direct {
            Some((memory, lent)) => {
                let range = range_of(first, lent.offset() / size_of::<f32>(), piece);
                let event = self.device.copy_to_pinned_async(&self.ring.copies, &buffer, &memory, range);
                let (what, after) = ((&*buffer, first, piece), &self.computed);
                let summed = self.ring.sum_up(self.device, what, self.direct, after);
                self.direct += 1;
                (event, To::Object(lent, summed))
            }
            None => {
                let slot = self.staged % slots;
                self.staged += 1;
                let (range, target) = (range_of(first, 0, piece), &mut self.ring.slots[slot]);
                let event = self.device.copy_to_host_async(&self.ring.copies, &buffer, target, range);
                (event, To::Slot(slot, extent.class.clone()))
            }
        };
        let summed = match &to {
            To::Object(_, summed) => Some(summed.event.clone()),
            To::Slot(..) => None,
        };
        self.under_way.push_back(Leaving { event: event.clone(), piece, to });
        Ok(Left { copied: event, summed })
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
        let Some(leaving) = self.under_way.pop_front() else { return Ok(()) };
        leaving.wait(self.device)?;
        self.device.check()?;
        let Leaving { piece, to, .. } = leaving;
        match to {
            To::Object(lent, summed) => {
                lent.filled_as(&self.ring.sums_of(self.device, &summed));
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

impl<D: Copies> Leaving<D> {
    /// Until the device is done with it, whatever came of it.
    fn wait(&self, device: &D) -> Result<(), DeviceTierError> {
        let copied = device.wait(&self.event);
        let summed = match &self.to {
            To::Object(_, summed) => device.wait(&summed.event),
            To::Slot(..) => Ok(()),
        };
        Ok(copied.and(summed)?)
    }
}

/// Nothing is under way when the buffers are handed back, also after a failure.
impl<D: Copies> Drop for Outward<'_, D> {
    fn drop(&mut self) {
        for leaving in self.under_way.drain(..) {
            let _ = leaving.wait(self.device); // what it brought is not looked at
        }
    }
}
