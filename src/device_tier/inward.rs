//! From a version that is held into a device.

use std::collections::{BTreeMap, VecDeque};

use super::outward::Left;
use super::part::{Extent, Piece};
use super::pins::Pins;
use super::ring::{DIRECT, Ring, Summed, range_of};
use super::{DeviceTierError, Shared};
use crate::client::HeldObject;
use crate::trainer::device::Copies;

const VALUE_BYTES: u64 = size_of::<f32>() as u64;

/// Pieces on their way in.
pub(super) struct Inward<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    held: &'a HeldObject,
    pins: &'a Pins<D>,
    /// By memory class, the memory that it lies in, and where; nothing where that is not pinned.
    sources: BTreeMap<String, Option<(D::Pinned, usize)>>,
    /// Pieces that slots were taken for, and those that needed none.
    staged: usize,
    direct: usize,
    /// The oldest first.
    under_way: VecDeque<Coming<D>>,
    /// Every piece's, for what the device is told to compute afterwards.
    given: Vec<D::Event>,
}

struct Coming<D: Copies> {
    event: D::Event,
    /// What the device sums up of it when it has arrived; nothing where the host has done it before.
    summed: Option<(Summed<D>, Extent, Piece)>,
}

impl<D: Copies> Coming<D> {
    /// Until the device is done with it, whatever came of it.
    fn wait(&self, device: &D) -> Result<(), DeviceTierError> {
        let copied = device.wait(&self.event);
        let summed = self.summed.as_ref().map_or(Ok(()), |(summed, ..)| device.wait(&summed.event));
        Ok(copied.and(summed)?)
    }
}

impl<'a, D: Copies> Inward<'a, D> {
    /// Whatever the device was told to compute before comes before the first piece.
    pub(super) fn new(
        device: &'a D,
        ring: &'a mut Ring<D>,
        (held, pins): (&'a HeldObject, &'a Pins<D>),
    ) -> Self {
        device.stream_after(&ring.copies, &device.computed());
        let (sources, under_way, given) = Default::default();
        Inward { device, ring, held, pins, sources, staged: 0, direct: 0, under_way, given }
    }

    /// Begins to copy a piece, once what lay there has left; it is checked before, where it passes through the ring, and when it has
    /// arrived, where it goes by itself.
    pub(super) fn give(
        &mut self,
        buffer: &Shared<'_, D::Buffer>,
        extent: &Extent,
        piece: Piece,
        left: Option<&Left<D>>,
    ) -> Result<(), DeviceTierError> {
        let (direct, slots) = (self.source(extent)?, self.ring.slots.len());
        while self.under_way.len() >= if direct.is_some() { DIRECT } else { slots } {
            self.arrive()?;
        }
        if direct.is_none() {
            self.read(extent, piece)?;
        }
        if let Some(left) = left {
            left.comes_before(self.device, &self.ring.copies);
        }
        self.pins.count(direct.is_some(), piece.bytes());
        let first = extent.offset + piece.first;
        let coming = match direct {
            Some((memory, start)) => {
                let mut buffer = buffer.lock();
                let range = range_of(first, start / size_of::<f32>() + piece.first, piece);
                let event =
                    self.device.copy_from_pinned_async(&self.ring.copies, &memory, &mut buffer, range);
                let summed = self.ring.sum_up(self.device, (&buffer, first, piece), self.direct, &event);
                self.direct += 1;
                Coming { event, summed: Some((summed, extent.clone(), piece)) }
            }
            None => {
                let slot = &mut self.ring.slots[self.staged % slots];
                self.staged += 1;
                self.device.write_host(&self.ring.piece[..piece.length], slot, 0);
                let (copies, range) = (&self.ring.copies, range_of(first, 0, piece));
                let event = self.device.copy_to_device_async(copies, slot, &mut buffer.lock(), range);
                Coming { event, summed: None }
            }
        };
        self.given.push(coming.event.clone());
        self.under_way.push_back(coming);
        Ok(())
    }

    /// Waits for the oldest piece, and checks it where the device has summed it up.
    fn arrive(&mut self) -> Result<(), DeviceTierError> {
        let Some(coming) = self.under_way.pop_front() else { return Ok(()) };
        coming.wait(self.device)?;
        let Some((summed, extent, piece)) = coming.summed else { return Ok(()) };
        self.device.check()?;
        let sums = self.ring.sums_of(self.device, &summed);
        let (offset, end) = (piece.offset(), extent.end_of(piece));
        let mut rest = vec![0; (end - offset - piece.bytes()) as usize];
        self.held.read_class(&extent.class, offset + piece.bytes(), &mut rest)?;
        let manifest = self.held.manifest();
        Self::whole(manifest.damage_by_sums(&extent.class, (offset, end - offset), &sums, &rest))
    }

    fn whole(damage: Result<Option<String>, crate::store::Error>) -> Result<(), DeviceTierError> {
        match damage.map_err(crate::client::Error::from)? {
            None => Ok(()),
            Some(reason) => Err(DeviceTierError::Damaged { reason }),
        }
    }

    /// The memory that a class lies in, and where; nothing where it has to pass through the ring.
    fn source(&mut self, extent: &Extent) -> Result<Option<(D::Pinned, usize)>, DeviceTierError> {
        if !self.pins.are_wanted() {
            return Ok(None);
        }
        if let Some(found) = self.sources.get(&extent.class) {
            return Ok(found.clone());
        }
        let mapping = self.held.bytes(&extent.class)?.and_then(|bytes| bytes.mapping());
        let found = mapping.and_then(|(mapping, start)| Some((self.pins.of(self.device, &mapping)?, start)));
        self.sources.insert(extent.class.clone(), found.clone());
        Ok(found)
    }

    /// Fills the ring's own piece. What a payload has behind its last tensor is read too: it has a part in the checksum.
    fn read(&mut self, extent: &Extent, piece: Piece) -> Result<(), DeviceTierError> {
        let (offset, end) = (piece.offset(), extent.end_of(piece));
        let values = (end - offset).div_ceil(VALUE_BYTES) as usize;
        if self.ring.piece.len() < values {
            self.ring.piece.resize(values, 0.0); // a last piece that is filled up
        }
        let bytes = bytemuck::cast_slice_mut(&mut self.ring.piece[..values]);
        self.held.read_class(&extent.class, offset, bytes)?;
        Self::whole(self.held.manifest().damage(&extent.class, offset, bytes))
    }

    /// Whether anything was written to the device.
    pub(super) fn has_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Waits for every piece, and has what the device computes afterwards come after it.
    pub(super) fn finish(&mut self) -> Result<(), DeviceTierError> {
        while !self.under_way.is_empty() {
            self.arrive()?;
        }
        self.given.iter().try_for_each(|event| self.device.compute_after(event))?;
        Ok(self.device.check()?)
    }
}

/// Nothing is under way when the buffers are handed back, also after a failure.
impl<D: Copies> Drop for Inward<'_, D> {
    fn drop(&mut self) {
        for coming in self.under_way.drain(..) {
            let _ = coming.wait(self.device); // the call has failed already
        }
    }
}
