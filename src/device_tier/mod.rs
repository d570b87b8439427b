//! The device tier of objects: versions that come out of a device's memory, and go into it.
//!
//! A store keeps the directory of objects, their host tier and their disk tier, and knows no device. Here they meet: a memory
//! class of an object is a flat run of f32 in a device's buffer ([`DevicePart`]), laid out as the object's layout says.
//!
//! # How bytes move
//! In pieces, through a ring of pinned host memory that is made with the first move and kept: later moves pin nothing
//! ([`DeviceTier::pinned_bytes`]). On the way out the device copies a piece while the host sums up the one before and puts it
//! where the object lies; on the way in the host reads and checks a piece while the device takes the one before. An
//! [exchange](DeviceTier::exchange) does both at once, so both directions of the bus are busy: a piece of the new state follows as
//! soon as that of the old one has left.
//!
//! With [`pin_objects`](DeviceTier::pin_objects) the memory that objects lie in is pinned itself (`pins`), and pieces go to and from there
//! without the host touching a byte: the device sums up what it copies, in its own memory, beside the copies (`ring`).
//!
//! A version that lies on a device of the same node already need not come from the store: `nearest` has that way, and publishes it.
//!
//! # Invariants
//! - A version is committed when every byte of it has left the device and arrived: a copy that fails leaves no version behind.
//! - Every chunk that comes in is compared with the checksum that its writer took: by the host, after it has left the object's memory
//!   and before it goes to the device; where it goes by itself, by the device, when it is there. What goes out by itself has the
//!   checksum of what lay on the device, so damage on its way is found by whoever reads it.
//! - Nothing is under way on a device that works when a call returns, also after a failed copy.
//! - An exchange loses no state for want of the new one or for a conflict: the old one is committed all the same, and the error
//!   names its version; where it may not be committed the error holds it. It does lose it when the device can no longer be
//!   read, or the object no longer be filled, while the two change places: there is no room for both. Then it says so
//!   ([`DeviceTierError::Overwritten`]); set the old state first where that must not be.
//!
//! # Threads and locks
//! Calls run on the caller's thread, any number at a time; each takes a ring of its own out of the pool, whose lock is held for
//! nothing else.

mod error;
mod inward;
mod nearest;
mod outward;
mod part;
mod pins;
mod ring;
mod verified;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use error::DeviceTierError;
pub use nearest::{GotFrom, Nearest};
pub use part::{DevicePart, DevicePartMut};
pub use pins::DeviceTierStats;

use crate::client::{GetObject, HeldObject, Objects};
use crate::store::{Expected, Layout, OBJECT_CHUNK_BYTES, Which};
use crate::trainer::device::Copies;
use inward::Inward;
use outward::Outward;
use part::Extent;
use pins::Pins;
use ring::Ring;

/// Values in a chunk that has a checksum of its own.
const CHUNK_VALUES: usize = OBJECT_CHUNK_BYTES as usize / size_of::<f32>();
/// Chunks that are copied at a time: enough to fill a bus, few enough that a ring of them costs little.
const PIECE_CHUNKS: usize = 4;

/// What an exchange did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceExchange {
    /// The version that the old state was set as.
    pub set: u64,
    /// The version that is on the device now.
    pub got: u64,
}

/// Sets and gets objects out of and into the memory of one device.
///
/// ```
/// use forebay::client::Client;
/// use forebay::store::{Dtype, Expected, Layout, Options, Store, Which};
/// use forebay::trainer::device::{Device, StandInDevice, StandInOptions};
/// use forebay::{DevicePart, DevicePartMut, DeviceTier};
/// # let dir = tempfile::tempdir()?;
/// let objects = Client::embedded(Store::open(dir.path(), Options::default())?).objects();
/// let device = StandInDevice::new(StandInOptions::default());
/// let tier = DeviceTier::new(device.clone(), objects);
///
/// let layout = Layout::builder().tensor("weights", "embed", Dtype::F32, &[2, 32]).build()?;
/// let mut weights = device.allocate(64);
/// device.upload(&[1.5; 64], &mut weights, 0);
/// let version = tier.set("solver", Expected::Absent, &layout, &[DevicePart::of("weights", &weights)])?;
///
/// let mut again = device.allocate(64);
/// assert_eq!(tier.get("solver", Which::Latest, &mut [DevicePartMut::of("weights", &mut again)])?, version);
/// let mut values = [0.0; 64];
/// device.download(&again, 0, &mut values);
/// assert_eq!(values, [1.5; 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DeviceTier<D: Copies> {
    device: D,
    objects: Objects,
    piece_values: usize,
    rings: Mutex<Vec<Ring<D>>>,
    pinned_values: AtomicUsize,
    pins: Pins<D>,
}

impl<D: Copies> DeviceTier<D> {
    /// Moves objects of a store, in this process or behind a server, out of and into the memory of `device`.
    pub fn new(device: D, objects: Objects) -> Self {
        let piece_values = PIECE_CHUNKS * CHUNK_VALUES;
        let (rings, pins) = (Mutex::default(), Pins::new(0));
        DeviceTier { device, objects, piece_values, rings, pinned_values: 0.into(), pins }
    }

    /// How many chunks of [`OBJECT_CHUNK_BYTES`] are copied at a time, at least one; three times as many are pinned, and a few
    /// checksums. Default: 4.
    pub fn piece_chunks(self, chunks: usize) -> Self {
        let (rings, pinned_values) = (Mutex::default(), 0.into());
        DeviceTier { piece_values: chunks.max(1) * CHUNK_VALUES, rings, pinned_values, ..self }
    }

    /// Pins the memory that objects lie in, at most so many bytes at a time, so that copies go to and from there. A mapping is pinned when
    /// the first move meets it, which takes about a second for a few GiB, and stays so while the store has it: for processes that stay, and
    /// not for one that moves a state once. Beyond the limit, and where the device refuses, moves go through pieces as without.
    /// Default: 0, nothing is pinned.
    pub fn pin_objects(self, bytes_max: u64) -> Self {
        DeviceTier { pins: Pins::new(bytes_max), ..self }
    }

    /// What was moved how, and what is pinned.
    pub fn stats(&self) -> DeviceTierStats {
        self.pins.stats()
    }

    /// Bytes of pinned host memory that were made so far. They are kept, and grow with the number of moves at the same time alone.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_values.load(Ordering::Relaxed) * size_of::<f32>()
    }

    /// Sets a version from what lies on the device now, after all arithmetic that the device was given before. Gives its number.
    ///
    /// # Errors
    /// [`DeviceTierError::Part`] when the parts are not what the layout says; [`DeviceTierError::Objects`] as for
    /// [`Objects::begin`] and [`commit`](crate::client::ObjectFilling::commit), [`DeviceTierError::Device`] when a copy failed. No
    /// version is there then.
    pub fn set(
        &self,
        key: &str,
        expected: Expected,
        layout: &Layout,
        parts: &[DevicePart<'_, D>],
    ) -> Result<u64, DeviceTierError> {
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let extents = part::extents(layout, named)?;
        let filling = self.objects.begin(key, expected, layout)?;
        self.with_ring(|ring| {
            let mut outward = Outward::new(&self.device, ring, (&filling, &self.pins));
            for (part, extent) in parts.iter().zip(&extents) {
                for piece in extent.pieces(self.piece_values) {
                    outward.take(part.buffer, extent, piece)?;
                }
            }
            outward.finish()
        })?;
        let mut filling = filling;
        Ok(filling.commit()?)
    }

    /// Puts a version into the device's memory, before all arithmetic that the device is given afterwards. Gives its number.
    ///
    /// # Errors
    /// As [`Objects::get`]; [`DeviceTierError::Part`] when the parts are not what its layout says, and nothing was written then;
    /// [`DeviceTierError::Damaged`] when its bytes do not have their checksums, [`DeviceTierError::Device`] when a copy failed: what
    /// the parts hold is undefined then.
    pub fn get(
        &self,
        key: &str,
        which: Which,
        parts: &mut [DevicePartMut<'_, D>],
    ) -> Result<u64, DeviceTierError> {
        self.bring(&self.objects.get_with(key, which, &GetObject::default())?, parts)
    }

    /// Copies a version that is held into the parts. Gives its number.
    fn bring(&self, held: &HeldObject, parts: &mut [DevicePartMut<'_, D>]) -> Result<u64, DeviceTierError> {
        let extents = self.extents_of(held, parts)?;
        self.with_ring(|ring| {
            let mut inward = Inward::new(&self.device, ring, (held, &self.pins));
            for (part, extent) in parts.iter_mut().zip(&extents) {
                for piece in extent.pieces(self.piece_values) {
                    inward.give(part.buffer, extent, piece, None)?;
                }
            }
            inward.finish()
        })?;
        Ok(held.version())
    }

    /// One state out, another in, through the same device memory and at the same time. The two need not have the same layout; what
    /// is longer of a class says how much of a part's buffer is used.
    ///
    /// # Errors
    /// As [`set`](Self::set) and [`get`](Self::get), when nothing has been moved yet. From then on the old state comes first: when the
    /// new one cannot be had, the old one is committed and [`DeviceTierError::Exchanged`] names its version; what the parts hold is
    /// undefined then. [`DeviceTierError::Uncommitted`] when the old one could be filled and not committed. When it could not be filled,
    /// for the device or the connection to the store has failed, it is partly overwritten and
    /// [`DeviceTierError::Overwritten`] says why.
    pub fn exchange(
        &self,
        out: (&str, Expected, &Layout),
        into: (&str, Which),
        parts: &mut [DevicePartMut<'_, D>],
    ) -> Result<DeviceExchange, DeviceTierError> {
        let (key, expected, layout) = out;
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        let leaving = part::extents(layout, named)?;
        let mut filling = self.objects.begin(key, expected, layout)?; // there is room before anything is waited for
        let held = self.objects.get_with(into.0, into.1, &GetObject::default())?;
        let coming = self.extents_of(&held, parts)?;
        let moved = self.with_ring(|ring_out| {
            self.with_ring(|ring_in| {
                let mut outward = Outward::new(&self.device, ring_out, (&filling, &self.pins));
                let mut inward = Inward::new(&self.device, ring_in, (&held, &self.pins));
                let came = swap((&mut outward, &mut inward), parts, (&leaving, &coming), self.piece_values);
                let settled = inward.finish();
                match came.and_then(|came| outward.finish().map(|()| came)) {
                    Ok(came) => Ok(came.and(settled)),
                    Err(error) if inward.has_given() => {
                        Err(DeviceTierError::Overwritten { source: Box::new(error) })
                    }
                    Err(error) => Err(error),
                }
            })
        })?;
        let got = moved.map(|()| held.version());
        match (filling.commit(), got) {
            (Ok(set), Ok(got)) => Ok(DeviceExchange { set, got }),
            (Ok(set), Err(error)) => {
                Err(DeviceTierError::Exchanged { key: key.to_owned(), set, source: Box::new(error) })
            }
            (Err(source), got) => {
                let (filling, got) = (Box::new(filling), got.map_err(Box::new));
                Err(DeviceTierError::Uncommitted { filling, got, source })
            }
        }
    }

    fn extents_of(
        &self,
        held: &HeldObject,
        parts: &[DevicePartMut<'_, D>],
    ) -> Result<Vec<Extent>, DeviceTierError> {
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        part::extents(&held.manifest().layout, named)
    }

    /// Runs `work` with a ring that nobody else has.
    fn with_ring<T>(
        &self,
        work: impl FnOnce(&mut Ring<D>) -> Result<T, DeviceTierError>,
    ) -> Result<T, DeviceTierError> {
        let kept = self.rings.lock().pop();
        let mut ring = kept.unwrap_or_else(|| {
            let ring = Ring::new(&self.device, self.piece_values);
            self.pinned_values.fetch_add(ring.values(), Ordering::Relaxed);
            ring
        });
        let outcome = work(&mut ring);
        self.rings.lock().push(ring);
        outcome
    }
}

/// Takes the old values out piece by piece, and gives the new ones their place. `Ok(Err(_))` when it is the new ones that cannot be
/// had: the old ones have left then, all of them.
fn swap<D: Copies>(
    (outward, inward): (&mut Outward<'_, D>, &mut Inward<'_, D>),
    parts: &mut [DevicePartMut<'_, D>],
    (leaving, coming): (&[Extent], &[Extent]),
    piece_values: usize,
) -> Result<Result<(), DeviceTierError>, DeviceTierError> {
    let mut came = Ok(());
    for (part, (leaving, coming)) in parts.iter_mut().zip(leaving.iter().zip(coming)) {
        let (mut out, mut back) = (leaving.pieces(piece_values), coming.pieces(piece_values));
        loop {
            let (gone, next) = (out.next(), back.next());
            if gone.is_none() && next.is_none() {
                break;
            }
            let left = gone.map(|piece| outward.take(part.buffer, leaving, piece)).transpose()?;
            if let (Some(piece), Ok(())) = (next, &came) {
                came = inward.give(part.buffer, coming, piece, left.as_ref());
            }
        }
    }
    Ok(came)
}
