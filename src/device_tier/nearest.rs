//! One get for a version wherever it is: on another device of this node, or in the store.
//!
//! A publisher gives a version the number that the store's key has for it, so that both are one sequence. Then a version that lies on
//! a device of this node comes from there, by one copy; everything else comes from the store, which has it in memory, on the disk, or
//! behind a server.

use std::time::Duration;

use super::part::{self, Extent};
use super::{DevicePart, DevicePartMut, DeviceTier, DeviceTierError};
use crate::client::GetObject;
use crate::store::{Layout, Which};
use crate::trainer::device::Share;
use crate::trainer::publication::{
    self, PublicationError, PublishedPart, Publisher, Reader, Stamp, TargetPart, Wanted,
};

/// Where a version came from.
#[derive(Debug)]
pub enum GotFrom {
    /// From a device of this node.
    Device(Stamp),
    /// From the store, and why not from a device.
    Store(PublicationError),
}

/// A version that was got.
#[derive(Debug)]
pub struct Nearest {
    /// Its number.
    pub version: u64,
    /// Where it came from.
    pub from: GotFrom,
}

impl<D: Share> DeviceTier<D> {
    /// Publishes a version from device to device, with a layout as the store knows it: see [`Publisher::publish`]. The publisher is
    /// of the same device, and the version's number the one that the store has for it.
    ///
    /// # Errors
    /// [`DeviceTierError::Part`] when the parts are not what the layout says; [`DeviceTierError::Publication`].
    pub fn publish(
        &self,
        publisher: &Publisher<D>,
        (key, version): (&str, u64),
        layout: &Layout,
        parts: &[DevicePart<'_, D>],
    ) -> Result<(), DeviceTierError> {
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let extents = part::extents(layout, named)?;
        let published = parts.iter().zip(&extents).map(|(part, extent)| PublishedPart {
            class: part.class,
            buffer: part.buffer,
            offset: extent.offset,
            values: extent.values,
        });
        Ok(publisher.publish(key, version, layout.fingerprint(), &published.collect::<Vec<_>>())?)
    }

    /// Puts a version into the device's memory from wherever it is nearest: from a device of this node that `reader` finds, else
    /// from the store, as [`get`](Self::get) does. [`Which::Latest`] is the newest that either of them has; a wait for
    /// [`Which::AtLeast`] is for the store, when no device has the version at once.
    ///
    /// For [`Which::Latest`] the store is asked first which version is its newest, by a list of what it has under names that begin
    /// with the key (an embedded store looks through all of its objects for that): a store that cannot be reached fails the call,
    /// also when a device has the version. Ask for [`Which::Exact`] or [`Which::AtLeast`] where that matters: they ask the device
    /// first.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`DeviceTierError::Nowhere`] with both reasons when neither has it. What the parts hold is
    /// undefined then if the device's reason is [`PublicationError::PublisherGone`] with `wrote`, [`PublicationError::Ended`],
    /// [`PublicationError::Unconfirmed`] or [`PublicationError::Damaged`], or the store's says so;
    /// [`DeviceTierError::Publication`] when it is on a device and of another layout, or this device does not copy.
    pub fn get_nearest(
        &self,
        reader: &Reader<D>,
        key: &str,
        which: Which,
        layout: &Layout,
        parts: &mut [DevicePartMut<'_, D>],
    ) -> Result<Nearest, DeviceTierError> {
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let extents = part::extents(layout, named)?;
        let which_there = self.which_of_a_device(key, which)?;
        let wanted = Wanted::new(key, which_there).layout(layout.fingerprint());
        let instead = match reader.get_into(&wanted, &mut targets(parts, &extents)) {
            Ok(stamp) => return Ok(Nearest { version: stamp.version, from: GotFrom::Device(stamp) }),
            Err(error) if error.may_be_elsewhere() => error,
            Err(error) => return Err(error.into()),
        };
        let held = self.objects.get_with(key, which, &GetObject::default().layout(layout));
        match held.map_err(DeviceTierError::from).and_then(|held| self.bring(&held, parts)) {
            Ok(version) => Ok(Nearest { version, from: GotFrom::Store(instead) }),
            Err(store) => {
                let (device, store) = (Box::new(instead), Box::new(store));
                Err(DeviceTierError::Nowhere { key: key.to_owned(), device, store })
            }
        }
    }

    /// What a device has to have so that it need not come from the store.
    fn which_of_a_device(&self, key: &str, which: Which) -> Result<publication::Which, DeviceTierError> {
        let at_once = |least| publication::Which::AtLeast(least, Duration::ZERO);
        Ok(match which {
            Which::Exact(version) => publication::Which::Exact(version),
            Which::AtLeast(least, _) => at_once(least),
            Which::Latest => {
                let listed = self.objects.list_of(key)?.into_iter();
                let of_key = listed.filter(|shown| shown.key == key && !shown.once);
                of_key.map(|shown| shown.version).max().map_or(publication::Which::Latest, at_once)
            }
        })
    }
}

fn targets<'a, D: Share>(
    parts: &'a mut [DevicePartMut<'_, D>],
    extents: &[Extent],
) -> Vec<TargetPart<'a, D>> {
    let parts = parts.iter_mut().zip(extents);
    parts
        .map(|(part, extent)| TargetPart { class: part.class, buffer: part.buffer, offset: extent.offset })
        .collect()
}
