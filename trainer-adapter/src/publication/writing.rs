//! A publish: into a slot, by one copy on the device.

use std::fmt;
use std::time::Instant;

use super::announcement::Announced;
use super::catalog::{NoSlot, Place, Version};
use super::error::PublicationError;
use super::form::{Form, PublishedPart, published_form};
use super::publisher::Publisher;
use super::step::Step;
use crate::device::{DeviceRange, Share};

/// What the thread that publishes a key has of it.
pub(super) struct KeyWriter<D: Share> {
    slots: [Option<SlotMemory<D>>; 2],
    stream: Option<D::Stream>,
    /// None once the key is withdrawn.
    announced: Option<Announced>,
}

struct SlotMemory<D: Share> {
    memory: u64,
    buffer: D::Buffer,
}

impl<D: Share> KeyWriter<D> {
    pub(super) fn new(announced: Announced) -> Self {
        Self { slots: [None, None], stream: None, announced: Some(announced) }
    }

    pub(super) fn withdraw(&mut self) {
        (self.slots, self.announced) = ([None, None], None);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.announced.is_none()
    }
}

impl<D: Share> fmt::Debug for KeyWriter<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyWriter({} slots)", self.slots.iter().flatten().count())
    }
}

impl<D: Share> Publisher<D> {
    /// Publishes what lies in the parts now, after all arithmetic that the device was given before, as a version: copies it, and
    /// returns when the copy is done. The parts may be changed at once. `layout` is the fingerprint of the layout that says which
    /// tensors lie in them.
    ///
    /// # Errors
    /// [`PublicationError::Part`] and [`PublicationError::Key`] for what no version can be; [`PublicationError::Taken`] when another
    /// process has the key; [`PublicationError::OldVersion`]; [`PublicationError::Held`] when readers hold the slot for longer than
    /// the publisher's patience; [`PublicationError::Device`] when there is no memory, or a copy failed. The newest version before
    /// it can still be had.
    pub fn publish(
        &self,
        key: &str,
        version: u64,
        layout: u64,
        parts: &[PublishedPart<'_, D>],
    ) -> Result<(), PublicationError> {
        let form = published_form(&self.device, layout, parts)?;
        self.with_key(key, |writer| self.publish_by(writer, (key, version), form, parts))
    }

    fn publish_by(
        &self,
        writer: &mut KeyWriter<D>,
        (key, number): (&str, u64),
        form: Form,
        parts: &[PublishedPart<'_, D>],
    ) -> Result<(), PublicationError> {
        let slot = self.take_slot(key, number)?;
        self.options.observer.reached(Step::SlotTaken);
        let memory = self.make_room(writer, (key, slot), &form)?;
        let fingerprint = self.fill(writer, slot, &form, parts)?;
        self.options.observer.reached(Step::SlotFilled);
        let firsts = form.places().map(|(firsts, _)| firsts).unwrap_or_default();
        let places = firsts.into_iter().map(|offset| Place { memory, offset }).collect();
        self.board.state().catalog.fill(key, slot, Version { number, form, fingerprint, places });
        self.board.wake();
        self.options.observer.reached(Step::Published);
        Ok(())
    }

    /// A slot that nobody holds.
    fn take_slot(&self, key: &str, version: u64) -> Result<usize, PublicationError> {
        let (began, patience) = (Instant::now(), self.options.patience);
        let (mut state, mut is_told) = (self.board.state(), false);
        loop {
            let readers = match state.catalog.take_slot(key, version) {
                Ok(slot) => return Ok(slot),
                Err(NoSlot::Old(newest)) => {
                    return Err(PublicationError::OldVersion { key: key.to_owned(), version, newest });
                }
                Err(NoSlot::Held(readers)) => readers,
            };
            let Some(left) = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                return Err(PublicationError::Held { key: key.to_owned(), readers, waited: patience });
            };
            if is_told {
                state = self.board.wait_for_release(state, left);
            } else {
                drop(state);
                is_told = true;
                self.options.observer.reached(Step::Waiting);
                state = self.board.state(); // and look again
            }
        }
    }

    /// Memory for a version behind the slot. The same as before, where that is long enough.
    fn make_room(
        &self,
        writer: &mut KeyWriter<D>,
        (key, slot): (&str, usize),
        form: &Form,
    ) -> Result<u64, PublicationError> {
        let end = form.places().and_then(|(_, end)| usize::try_from(end).ok()).unwrap_or(usize::MAX);
        let fits = |memory: &&SlotMemory<D>| self.device.length(&memory.buffer) >= end;
        if let Some(memory) = writer.slots[slot].as_ref().filter(fits) {
            return Ok(memory.memory);
        }
        let forget = || {
            let mut state = self.board.state();
            state.catalog.set_memory(key, slot, None);
            state.forget_memories();
        };
        forget();
        writer.slots[slot] = None; // there may be no room for both
        let buffer = self.device.allocate_shared(end)?;
        let descriptor = self.device.export(&buffer)?;
        let mut state = self.board.state();
        let memory = state.catalog.memory();
        state.memories.insert(memory, (descriptor.into(), end as u64));
        state.catalog.set_memory(key, slot, Some(memory));
        writer.slots[slot] = Some(SlotMemory { memory, buffer });
        Ok(memory)
    }

    /// Copies the parts into the slot, and waits for it. Gives what they add up to.
    fn fill(
        &self,
        writer: &mut KeyWriter<D>,
        slot: usize,
        form: &Form,
        parts: &[PublishedPart<'_, D>],
    ) -> Result<Option<u64>, PublicationError> {
        let device = &self.device;
        let stream = match &mut writer.stream {
            Some(stream) => stream,
            none => none.insert(device.stream()?),
        };
        let (Some(slot), Some((firsts, _))) = (&mut writer.slots[slot], form.places()) else {
            return Ok(None);
        };
        device.stream_after(stream, &device.computed());
        let mut events = Vec::with_capacity(parts.len());
        for (part, first) in parts.iter().zip(&firsts) {
            let target_offset = *first as usize; // in the memory that was made for it
            let range = DeviceRange { source_offset: part.offset, target_offset, length: part.values };
            events.push(device.copy_async(stream, part.buffer, &mut slot.buffer, range));
        }
        finish(device, &events)?;
        let sum = |total: u64, (part, first): (&PublishedPart<'_, D>, &u64)| {
            let values = *first as usize..*first as usize + part.values;
            Ok::<_, PublicationError>(total.wrapping_add(device.fingerprint(&slot.buffer, values, *first)?))
        };
        self.options.fingerprint.then(|| parts.iter().zip(&firsts).try_fold(0, sum)).transpose()
    }
}

/// Waits for copies, every one of them, and has what the device computes from now on come after them.
pub(super) fn finish<D: Share>(device: &D, events: &[D::Event]) -> Result<(), PublicationError> {
    let mut done = Ok(());
    for event in events {
        done = done.and(device.wait(event)); // also after one has failed: nothing may be under way
    }
    done?;
    events.iter().try_for_each(|event| device.compute_after(event))?;
    Ok(device.check()?)
}
