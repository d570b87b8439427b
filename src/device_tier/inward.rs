//! From a version that is held into a device.

use std::collections::{BTreeMap, VecDeque};

use super::DeviceTierError;
use super::part::{Extent, Piece};
use super::pins::Pins;
use super::ring::Ring;
use crate::client::HeldObject;
use crate::trainer::device::{Copies, CopyRange};

const VALUE_BYTES: u64 = size_of::<f32>() as u64;

/// Pieces on their way in.
pub(super) struct Inward<'a, D: Copies> {
    device: &'a D,
    ring: &'a mut Ring<D>,
    held: &'a HeldObject,
    pins: &'a Pins<D>,
    /// By memory class, the memory that it lies in, and where; nothing where that is not pinned.
    sources: BTreeMap<String, Option<(D::Pinned, usize)>>,
    /// Pieces that slots were taken for.
    staged: usize,
    stream: D::Stream,
    /// The oldest first.
    under_way: VecDeque<D::Event>,
    /// Every piece's, for what the device is told to compute afterwards.
    given: Vec<D::Event>,
}

impl<'a, D: Copies> Inward<'a, D> {
    /// Whatever the device was told to compute before comes before the first piece.
    pub(super) fn new(
        device: &'a D,
        ring: &'a mut Ring<D>,
        (held, pins): (&'a HeldObject, &'a Pins<D>),
    ) -> Self {
        let stream = device.stream();
        device.stream_after(&stream, &device.computed());
        let (sources, under_way, given) = Default::default();
        Inward { device, ring, held, pins, sources, staged: 0, stream, under_way, given }
    }

    /// Reads and checks a piece, and begins to copy it, once `after` has happened.
    pub(super) fn give(
        &mut self,
        buffer: &mut D::Buffer,
        extent: &Extent,
        piece: Piece,
        after: Option<&D::Event>,
    ) -> Result<(), DeviceTierError> {
        let slots = self.ring.slots.len();
        if self.under_way.len() == slots
            && let Some(event) = self.under_way.pop_front()
        {
            self.device.wait(&event)?;
        }
        self.read(extent, piece)?;
        if let Some(event) = after {
            self.device.stream_after(&self.stream, event);
        }
        let range =
            CopyRange { device_offset: extent.offset + piece.first, host_offset: 0, length: piece.length };
        let direct = self.source(extent)?;
        self.pins.count(direct.is_some(), piece.bytes());
        let event = match direct {
            Some((memory, start)) => {
                let range = CopyRange { host_offset: start / size_of::<f32>() + piece.first, ..range };
                self.device.copy_from_pinned_async(&self.stream, &memory, buffer, range)
            }
            None => {
                let slot = &mut self.ring.slots[self.staged % slots];
                self.staged += 1;
                self.device.write_host(&self.ring.piece[..piece.length], slot, 0);
                self.device.copy_to_device_async(&self.stream, slot, buffer, range)
            }
        };
        self.given.push(event.clone());
        self.under_way.push_back(event);
        Ok(())
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
        let offset = piece.first as u64 * VALUE_BYTES;
        let end = match piece.first + piece.length == extent.values {
            true => extent.payload_bytes,
            false => offset + piece.length as u64 * VALUE_BYTES,
        };
        let values = (end - offset).div_ceil(VALUE_BYTES) as usize;
        if self.ring.piece.len() < values {
            self.ring.piece.resize(values, 0.0); // a last piece that is filled up
        }
        let bytes = bytemuck::cast_slice_mut(&mut self.ring.piece[..values]);
        self.held.read_class(&extent.class, offset, bytes)?;
        let damage = self.held.manifest().damage(&extent.class, offset, bytes);
        match damage.map_err(crate::client::Error::from)? {
            None => Ok(()),
            Some(reason) => Err(DeviceTierError::Damaged { reason }),
        }
    }

    /// Whether anything was written to the device.
    pub(super) fn has_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Waits for every piece, and has what the device computes afterwards come after it.
    pub(super) fn finish(&mut self) -> Result<(), DeviceTierError> {
        while let Some(event) = self.under_way.pop_front() {
            self.device.wait(&event)?;
        }
        self.given.iter().try_for_each(|event| self.device.compute_after(event))?;
        Ok(self.device.check()?)
    }
}

/// Nothing is under way when the buffers are handed back, also after a failure.
impl<D: Copies> Drop for Inward<'_, D> {
    fn drop(&mut self) {
        for event in self.under_way.drain(..) {
            let _ = self.device.wait(&event); // the call has failed already
        }
    }
}
