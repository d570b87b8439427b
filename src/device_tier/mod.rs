//! The device tier of objects: versions that come out of a device's memory, and go into it.
//!
//! A store keeps the directory of objects, their host tier and their disk tier, and knows no device. Here they meet: a memory
//! class of an object is a flat run of f32 in a device's buffer ([`DevicePart`]), laid out as the object's layout says.
//!
//! # How bytes move
//! In pieces, through a ring of pinned host memory that is made with the first move and kept: later moves pin nothing
//! ([`DeviceTier::pinned_bytes`]). Where there is none a move is refused before it begins, and the device goes on; where there is not
//! enough for as many threads as may share a move, fewer do. On the way out the device copies a piece while the host sums up the one before
//! and puts it where the object lies; on the way in the host reads and checks a piece while the device takes the one before. An
//! [exchange](DeviceTier::exchange) does both at once, so both directions of the bus are busy: a piece of the new state follows as
//! soon as that of the old one has left. One thread of the host copies and sums up about a tenth of what a bus moves, so several can share
//! a move ([`host_threads`](DeviceTier::host_threads), `lanes`).
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
//! Calls run on the caller's thread, any number at a time; where threads share a move the others are over when it returns. Each thread has
//! a ring of its own out of the pool, two in an exchange; the pool's lock is held for nothing else. Where values come in, a part's buffer
//! has a lock, which is held while a copy is queued.

mod error;
mod exchange;
mod inward;
mod lanes;
mod nearest;
mod outward;
mod part;
mod pins;
mod ring;
mod verified;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

pub use error::DeviceTierError;
pub use exchange::DeviceExchange;
pub use nearest::{GotFrom, Nearest};
pub use part::{DevicePart, DevicePartMut};
pub use pins::DeviceTierStats;

use crate::client::{GetObject, HeldObject, Objects};
use crate::store::{Expected, Layout, OBJECT_CHUNK_BYTES, Which};
use crate::trainer;
use crate::trainer::device::Copies;
use inward::Inward;
use lanes::Lane;
use outward::Outward;
use part::Extent;
use pins::Pins;
use ring::Ring;

/// Values in a chunk that has a checksum of its own.
const CHUNK_VALUES: usize = OBJECT_CHUNK_BYTES as usize / size_of::<f32>();
/// Chunks that are copied at a time: enough to fill a bus, few enough that a ring of them costs little.
const PIECE_CHUNKS: usize = 4;
/// A GiB: more at a time is faster nowhere.
const PIECE_CHUNKS_MAX: usize = 1024;

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
    host_threads: usize,
    rings: Mutex<Vec<Ring<D>>>,
    pinned_values: AtomicUsize,
    pins: Pins<D>,
}

impl<D: Copies> DeviceTier<D> {
    /// Moves objects of a store, in this process or behind a server, out of and into the memory of `device`.
    pub fn new(device: D, objects: Objects) -> Self {
        let piece_values = PIECE_CHUNKS * CHUNK_VALUES;
        let (rings, pins) = (Mutex::default(), Pins::new(0));
        DeviceTier { device, objects, piece_values, host_threads: 1, rings, pinned_values: 0.into(), pins }
    }

    /// How many chunks of [`OBJECT_CHUNK_BYTES`] are copied at a time, at least one and at most 1,024; three times as many are pinned, and
    /// a few checksums, for each thread that shares a move. Default: 4.
    pub fn piece_chunks(self, chunks: usize) -> Self {
        let (rings, pinned_values) = (Mutex::default(), 0.into());
        let piece_values = chunks.clamp(1, PIECE_CHUNKS_MAX) * CHUNK_VALUES;
        DeviceTier { piece_values, rings, pinned_values, ..self }
    }

    /// How many threads may share a move, the caller's among them: one copies and sums up about a tenth of what a bus moves through pieces of
    /// host memory. Each has a ring of pieces of its own; there are at most as many as four pieces each make, and as there is pinned memory
    /// for, which the log says. Default: 1.
    pub fn host_threads(self, threads: usize) -> Self {
        DeviceTier { host_threads: threads.max(1), ..self }
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

    /// Bytes of pinned host memory that were made so far. They are kept, and grow with the number of threads that move at the same time alone.
    pub fn pinned_bytes(&self) -> usize {
        self.pinned_values.load(Ordering::Relaxed) * size_of::<f32>()
    }

    /// Sets a version from what lies on the device now, after all arithmetic that the device was given before. Gives its number.
    ///
    /// # Errors
    /// [`DeviceTierError::Part`] when the parts are not what the layout says; [`DeviceTierError::Objects`] as for
    /// [`Objects::begin`] and [`commit`](crate::client::ObjectFilling::commit), [`DeviceTierError::HostMemory`] when there is none for
    /// pieces to pass through, [`DeviceTierError::Device`] when a copy failed. No version is there then.
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
        self.in_lanes(self.pieces(&extents), |[ring], lane| {
            let mut outward = Outward::new(&self.device, ring, (&filling, &self.pins));
            for (number, (part, extent)) in parts.iter().zip(&extents).enumerate() {
                for piece in lane.share(number, extent.pieces(self.piece_values)) {
                    outward.take(|| part.buffer, extent, piece)?;
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
    /// As [`Objects::get`]; [`DeviceTierError::Part`] when the parts are not what its layout says and [`DeviceTierError::HostMemory`] when
    /// there is none for pieces to pass through, and nothing was written then; [`DeviceTierError::Damaged`] when its bytes do not have
    /// their checksums, [`DeviceTierError::Device`] when a copy failed: what the parts hold is undefined then.
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
        let buffers = shared(parts);
        self.in_lanes(self.pieces(&extents), |[ring], lane| {
            let mut inward = Inward::new(&self.device, ring, (held, &self.pins));
            for (number, (buffer, extent)) in buffers.iter().zip(&extents).enumerate() {
                for piece in lane.share(number, extent.pieces(self.piece_values)) {
                    inward.give(buffer, extent, piece, None)?;
                }
            }
            inward.finish()
        })?;
        Ok(held.version())
    }

    fn extents_of(
        &self,
        held: &HeldObject,
        parts: &[DevicePartMut<'_, D>],
    ) -> Result<Vec<Extent>, DeviceTierError> {
        let named = parts.iter().map(|part| (part.class, self.device.length(part.buffer), part.offset));
        part::extents(&held.manifest().layout, named)
    }

    /// How many pieces a state is moved in.
    fn pieces(&self, extents: &[Extent]) -> usize {
        extents.iter().map(|extent| extent.pieces(self.piece_values).count()).sum()
    }

    /// Runs `work` on as many threads as so many pieces are worth, each with its own share and `N` rings that nobody else has; what they
    /// come to.
    fn in_lanes<const N: usize, T: Send>(
        &self,
        pieces: usize,
        work: impl Fn(&mut [Ring<D>; N], Lane<'_>) -> Result<T, DeviceTierError> + Sync,
    ) -> Result<Vec<T>, DeviceTierError> {
        let mut rings: Vec<[Ring<D>; N]> = self.rings_for(lanes::worth(pieces, self.host_threads))?;
        let outcome = lanes::run(&mut rings, |rings, lane| work(rings, lane));
        self.rings.lock().extend(rings.into_iter().flatten());
        outcome
    }

    /// The rings of so many lanes; where there is not as much host memory, of fewer, and of one at least. All of them before the first
    /// piece: how many are made does not hang on which thread is the fastest.
    fn rings_for<const N: usize>(&self, lanes: usize) -> Result<Vec<[Ring<D>; N]>, DeviceTierError> {
        let mut rings = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            match self.rings_of_a_lane::<N>() {
                Ok(own) => rings.push(own),
                Err(error) if lane == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, threads = lane, "fewer threads share a move than may");
                    break;
                }
            }
        }
        Ok(rings)
    }

    /// All rings of a lane, or none is taken out of the pool.
    fn rings_of_a_lane<const N: usize>(&self) -> Result<[Ring<D>; N], DeviceTierError> {
        let mut own = Vec::with_capacity(N);
        while own.len() < N {
            match self.ring() {
                Ok(ring) => own.push(ring),
                Err(error) => {
                    self.rings.lock().extend(own);
                    return Err(error);
                }
            }
        }
        Ok(own.try_into().expect("as many as were asked for"))
    }

    /// A ring of the pool, or a new one.
    fn ring(&self) -> Result<Ring<D>, DeviceTierError> {
        let kept = self.rings.lock().pop();
        if let Some(ring) = kept {
            return Ok(ring);
        }
        let made = Ring::new(&self.device, self.piece_values);
        let ring = made.map_err(|error| match error {
            source @ trainer::Error::HostMemory { .. } => DeviceTierError::HostMemory { source },
            other => other.into(),
        })?;
        self.pinned_values.fetch_add(ring.values(), Ordering::Relaxed);
        Ok(ring)
    }
}

/// What values come to, as several threads give it copies.
type Shared<'a, B> = Mutex<&'a mut B>;

fn shared<'a, D: Copies>(parts: &'a mut [DevicePartMut<'_, D>]) -> Vec<Shared<'a, D::Buffer>> {
    parts.iter_mut().map(|part| Mutex::new(&mut *part.buffer)).collect()
}
