//! A get from where the version is held: the copy, the end of the hold, and what is looked at afterwards.

use std::sync::atomic::Ordering;

use super::domain::Held;
use super::error::PublicationError;
use super::form::{ClassForm, Form, TargetPart, targets_of};
use super::reader::Reader;
use super::step::Step;
use super::wanted::{Source, Stamp};
use super::wire::Grant;
use super::writing::finish;
use crate::device::{DeviceRange, Share};
use crate::error::Error;

impl<D: Share> Reader<D> {
    /// Copies what is held, ends the hold, and looks whether what arrived is the version.
    pub(super) fn take(
        &self,
        key: &str,
        held: Held<D>,
        targets: &mut [TargetPart<'_, D>],
    ) -> Result<Stamp, PublicationError> {
        let of = targets_of(&self.device, &held.grant.form, targets)?;
        let copied = self.copy(&held, targets, &of);
        let (grant, pid, device) = (held.grant.clone(), held.pid, held.device.clone());
        let still = held.end().inspect_err(|error| self.after(error));
        let still = still.map_err(|error| after_the_copy(error, (key, grant.version)));
        copied?;
        self.accept(key, &grant, still?, (targets, &of))?;
        self.counters.got.fetch_add(1, Ordering::Relaxed);
        Ok(Stamp {
            key: key.to_owned(),
            version: grant.version,
            layout: grant.form.layout,
            fingerprint: grant.fingerprint,
            is_in_place: grant.is_in_place,
            source: Source { node: self.node.clone(), pid, device },
        })
    }

    /// Refuses what arrived unless it is the version: it lay there to the end, and adds up to what was published.
    fn accept(
        &self,
        key: &str,
        grant: &Grant,
        still: Option<u64>,
        (targets, of): (&[TargetPart<'_, D>], &[usize]),
    ) -> Result<(), PublicationError> {
        let (key, version) = (key.to_owned(), grant.version);
        let refused = || self.counters.refused.fetch_add(1, Ordering::Relaxed);
        if still != Some(version) {
            refused();
            return Err(PublicationError::Ended { key, version });
        }
        self.options.observer.reached(Step::Released);
        let Some(published) = grant.fingerprint else { return Ok(()) };
        // Without memory to add it up nobody knows what arrived; a device that has failed says so itself.
        let found = self.fingerprint(&grant.form, targets, of).map_err(|error| match error {
            PublicationError::Device(Error::Share { .. }) => {
                PublicationError::Unconfirmed { key: key.clone(), version, why: Box::new(error) }
            }
            other => other,
        })?;
        if found != published {
            refused();
            return Err(PublicationError::Damaged { key, version, found, published });
        }
        Ok(())
    }

    fn copy(
        &self,
        held: &Held<D>,
        targets: &mut [TargetPart<'_, D>],
        of: &[usize],
    ) -> Result<(), PublicationError> {
        let (device, classes) = (&self.device, held.grant.form.classes.iter().zip(&held.grant.places));
        let stream = self.stream()?;
        device.stream_after(&stream, &device.computed());
        let mut events = Vec::with_capacity(targets.len());
        for (((class, place), memory), at) in classes.zip(&held.memories).zip(of) {
            let target = &mut targets[*at];
            // Both lie in memory that was checked to be so long.
            let (source_offset, length) = (place.offset as usize, class.values as usize);
            let range = DeviceRange { source_offset, target_offset: target.offset, length };
            events.push(device.copy_imported_async(&stream, memory, target.buffer, range));
        }
        self.options.observer.reached(Step::Copying);
        finish(device, &events)?;
        self.keep_stream(stream);
        self.options.observer.reached(Step::Copied);
        Ok(())
    }

    /// What arrived adds up to.
    fn fingerprint(
        &self,
        form: &Form,
        targets: &[TargetPart<'_, D>],
        of: &[usize],
    ) -> Result<u64, PublicationError> {
        let firsts = form.places().map(|(firsts, _)| firsts).unwrap_or_default();
        let sum = |total: u64, ((class, first), at): ((&ClassForm, u64), &usize)| {
            let TargetPart { buffer, offset, .. } = &targets[*at];
            let values = *offset..*offset + class.values as usize;
            Ok(total.wrapping_add(self.device.fingerprint(buffer, values, first)?))
        };
        form.classes.iter().zip(firsts).zip(of).try_fold(0, sum)
    }
}

/// A publisher that is gone now was there when its values were copied; and one with whom nothing more can be said does not say what
/// became of the version meanwhile.
fn after_the_copy(error: PublicationError, (key, version): (&str, u64)) -> PublicationError {
    match error {
        PublicationError::PublisherGone { key, pid, .. } => {
            PublicationError::PublisherGone { key, pid, wrote: true }
        }
        other => PublicationError::Unconfirmed { key: key.to_owned(), version, why: Box::new(other) },
    }
}
