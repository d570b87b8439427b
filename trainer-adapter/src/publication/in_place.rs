//! A version in place: nothing is copied, and nothing may change while it can be had.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::catalog::{NoSlot, Place, Version};
use super::error::PublicationError;
use super::form::{Form, PublishedPart, published_form};
use super::publisher::Publisher;
use super::step::Step;
use crate::device::Share;

/// A barrier around a version that readers copy out of the publisher's own buffers, which it borrows. When it ends, by
/// [`end`](Self::end) or by being dropped, no reader begins any more, and the buffers may change.
///
/// Do not forget it (`std::mem::forget`): its version could be had for ever, whatever became of the buffers. Readers would notice
/// by its fingerprint, if it has one.
#[derive(Debug)]
#[must_use = "the version can be had as long as this lives"]
pub struct InPlace<'a, D: Share> {
    publisher: &'a Publisher<D>,
    _buffers: Vec<&'a D::Buffer>,
    key: String,
    is_over: bool,
}

/// Buffers that a version lies in, which nobody knows yet.
struct Shown {
    /// With how many values each has.
    memories: Vec<(OwnedFd, u64)>,
    /// For each part which of them it lies in, and where it begins.
    parts: Vec<(usize, u64)>,
}

impl<D: Share> Publisher<D> {
    /// Lets a version be had from where it lies, after all arithmetic that the device was given before. The buffers are from
    /// [`Share::allocate_shared`]. Readers map them anew with each barrier; a snapshot's slot they map once.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), but that nothing is held; [`PublicationError::Device`] with [`crate::Error::Share`] when a
    /// buffer cannot be shared; [`PublicationError::Taken`] while another version of the key can be had in place.
    pub fn in_place<'a>(
        &'a self,
        key: &str,
        version: u64,
        layout: u64,
        parts: &[PublishedPart<'a, D>],
    ) -> Result<InPlace<'a, D>, PublicationError> {
        let form = published_form(&self.device, layout, parts)?;
        self.with_key(key, |_writer| {
            self.check_barrier(key, version)?;
            self.device.wait(&self.device.computed())?;
            let fingerprint = self.fingerprint_of(&form, parts)?;
            let shown = self.show(parts)?;
            self.open_barrier(key, shown, |places| Version { number: version, form, fingerprint, places });
            Ok(())
        })?;
        self.board.wake();
        let buffers = parts.iter().map(|part| part.buffer).collect();
        let barrier = InPlace { publisher: self, _buffers: buffers, key: key.to_owned(), is_over: false };
        self.options.observer.reached(Step::InPlace);
        Ok(barrier)
    }

    fn check_barrier(&self, key: &str, version: u64) -> Result<(), PublicationError> {
        let state = self.board.state();
        if state.catalog.has_barrier(key) {
            let by = "this process in place; end that barrier".to_owned();
            return Err(PublicationError::Taken { key: key.to_owned(), by });
        }
        match state.catalog.check_new(key, version) {
            Err(NoSlot::Old(newest)) => {
                Err(PublicationError::OldVersion { key: key.to_owned(), version, newest })
            }
            _ => Ok(()),
        }
    }

    fn fingerprint_of(
        &self,
        form: &Form,
        parts: &[PublishedPart<'_, D>],
    ) -> Result<Option<u64>, PublicationError> {
        let firsts = form.places().map(|(firsts, _)| firsts).unwrap_or_default();
        let sum = |total: u64, (part, first): (&PublishedPart<'_, D>, u64)| {
            let values = part.offset..part.offset + part.values;
            Ok::<_, PublicationError>(total.wrapping_add(self.device.fingerprint(
                part.buffer,
                values,
                first,
            )?))
        };
        self.options.fingerprint.then(|| parts.iter().zip(firsts).try_fold(0, sum)).transpose()
    }

    /// Descriptors of the buffers, each once.
    fn show(&self, parts: &[PublishedPart<'_, D>]) -> Result<Shown, PublicationError> {
        let mut buffers: Vec<*const D::Buffer> = Vec::new();
        let mut shown = Shown { memories: Vec::new(), parts: Vec::with_capacity(parts.len()) };
        for part in parts {
            let at: *const D::Buffer = part.buffer;
            let known = buffers.iter().position(|buffer| *buffer == at);
            let memory = known.unwrap_or(buffers.len());
            if known.is_none() {
                let descriptor = self.device.export(part.buffer)?;
                shown.memories.push((descriptor, self.device.length(part.buffer) as u64));
                buffers.push(at);
            }
            shown.parts.push((memory, part.offset as u64));
        }
        Ok(shown)
    }

    /// Memories become known and live at once: whoever ends another barrier lets go of those in which nothing lies.
    fn open_barrier(&self, key: &str, shown: Shown, version: impl FnOnce(Vec<Place>) -> Version) {
        let mut state = self.board.state();
        let mut known = Vec::with_capacity(shown.memories.len());
        for (descriptor, values) in shown.memories {
            let memory = state.catalog.memory();
            state.memories.insert(memory, (descriptor.into(), values));
            known.push(memory);
        }
        let place = |(memory, offset): (usize, u64)| Place { memory: known[memory], offset };
        let places = shown.parts.into_iter().map(place).collect();
        state.catalog.open_barrier(key, version(places));
    }
}

impl<D: Share> InPlace<'_, D> {
    /// Ends the barrier, and waits for readers under way. After the publisher's patience it ends all the same: they find, when they
    /// are done, that what they have is not to be used.
    ///
    /// # Errors
    /// [`PublicationError::Held`] names the processes that were not waited for any longer.
    pub fn end(mut self) -> Result<(), PublicationError> {
        let (began, patience) = (Instant::now(), self.publisher.options.patience);
        let board = &self.publisher.board;
        let mut state = board.state();
        let mut readers = state.catalog.close_barrier(&self.key);
        drop(state);
        self.publisher.options.observer.reached(Step::Ending);
        state = board.state();
        while !readers.is_empty() {
            readers = state.catalog.close_barrier(&self.key);
            let left = patience.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
            let (false, Some(left)) = (readers.is_empty(), left) else { break };
            state = board.wait_for_release(state, left);
        }
        drop(state);
        let key = self.key.clone();
        self.over();
        if readers.is_empty() {
            Ok(())
        } else {
            Err(PublicationError::Held { key, readers, waited: patience })
        }
    }

    fn over(&mut self) {
        self.is_over = true;
        let mut state = self.publisher.board.state();
        state.catalog.remove_barrier(&self.key);
        state.forget_memories();
    }
}

/// Waits for nobody: readers under way are told.
impl<D: Share> Drop for InPlace<'_, D> {
    fn drop(&mut self) {
        if !self.is_over {
            self.over();
        }
    }
}
