//! Copies that run beside the arithmetic: what a state swap and a publish are made of.
//!
//! The words are those of a GPU. A *stream* is a queue: its copies happen one after the other, those of two streams in any
//! order or at once. An *event* is a place in a stream; a stream or the arithmetic can be told to come after it, and the
//! host can wait for it. *Host memory* is what copies go to and from (pinned, on a GPU); it is read and written by calls
//! that copy, never through a slice, since the device may be changing it.
//!
//! Rules for the caller; a device need not notice when they are broken, [`super::StandInDevice`] does:
//! - what a copy writes is undefined until its event is done;
//! - what a copy reads is not to be changed until its event is done;
//! - two accesses of which one writes are ordered by a stream, by an event, or by the host waiting.
//!
//! A handle may be dropped while copies are under way: they keep the memory that they use.
//!
//! What a device cannot give, host memory or a stream, is told to who asks for it, before anything moves, and the device goes on. So it
//! does after a copy that it did not take: the copy's event fails with [`Error::Copy`], and the copy can be made again. An order that
//! cannot be made ([`Copies::stream_after`], [`Copies::computed`]) is the device's failure, for what was to come after would come at any
//! time; so is whatever breaks the device itself, as a GPU's context stays broken. From then on everything fails with
//! [`Error::Device`]: take another device.
//!
//! Memory that somebody else has mapped can be *pinned* where it lies ([`Copies::pin`]), so that copies go to and from it without a piece
//! of host memory between. That costs about a second for a few GiB, so it is for memory that stays: once for each mapping, not for each
//! copy.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest};

use super::Device;
use super::foreign::ForeignMemory;
use crate::error::Error;

/// A run of values in device memory and one of the same length in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// First value in the device's buffer.
    pub device_offset: usize,
    /// First value in host memory.
    pub host_offset: usize,
    /// Number of values.
    pub length: usize,
}

impl CopyRange {
    /// Refuses a copy that does not lie in both memories: a bug of the caller inside this crate.
    pub(super) fn check(self, device_length: usize, host_length: usize) {
        let Self { device_offset, host_offset, length } = self;
        assert!(lies_in(device_offset, length, device_length), "a copy lies in its buffer");
        assert!(lies_in(host_offset, length, host_length), "a copy lies in its host memory");
    }
}

/// Whether so many values from an offset on lie among so many, however large the numbers are.
pub(super) fn lies_in(offset: usize, length: usize, of: usize) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= of)
}

/// The crc32c (Castagnoli; RFC 3720, appendix B.4) of values, over their bytes as the host has them.
pub fn crc32c(values: &[f32]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(bytemuck::cast_slice(values));
    digest.finalize() as u32
}

/// The crc32c of each run of values, as the bits of a value.
pub(super) fn sums_of(values: &[f32], run: usize) -> impl Iterator<Item = f32> {
    values.chunks(run).map(|run| f32::from_bits(crc32c(run)))
}

/// Refuses sums whose values do not lie in the buffer, or that do not lie in host memory, and runs of nothing: a bug of the caller.
pub(super) fn check_sums(values: &Range<usize>, run: usize, buffer: usize, (offset, host): (usize, usize)) {
    assert!(run > 0, "a run has values");
    assert!(values.start <= values.end && values.end <= buffer, "summed values lie in their buffer");
    assert!(lies_in(offset, values.len().div_ceil(run), host), "sums lie in their host memory");
}

/// A device with copies that run beside its arithmetic.
pub trait Copies: Device {
    /// A flat run of f32 in host memory that copies go to and from.
    type Host: Send + Sync;
    /// A queue of copies.
    type Stream: Send + Sync;
    /// A place in a stream.
    type Event: Clone + Send + Sync;
    /// Memory of somebody else's that is pinned; a handle of it.
    type Pinned: Clone + Send + Sync;

    /// Host memory of `length` zeros. Costly on a GPU: it is pinned once and kept.
    ///
    /// # Errors
    /// [`Error::HostMemory`] if there is none to be had: pinned memory is scarce, and that it has run out harms no state. The device goes
    /// on. [`Error::Device`] if the device has failed.
    fn allocate_host(&self, length: usize) -> Result<Self::Host, Error>;
    /// How many values host memory has room for.
    fn host_length(&self, host: &Self::Host) -> usize;
    /// Copies values into host memory from `offset` on.
    fn write_host(&self, values: &[f32], host: &mut Self::Host, offset: usize);
    /// Copies values out of host memory from `offset` on.
    fn read_host(&self, host: &Self::Host, offset: usize, values: &mut [f32]);

    /// A stream of its own. One a direction is enough to fill a bus.
    ///
    /// # Errors
    /// [`Error::Stream`] if there is none to be had: the device goes on. [`Error::Device`] if it has failed.
    fn stream(&self) -> Result<Self::Stream, Error>;
    /// Queues a copy from the device to the host.
    fn copy_to_host_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Buffer,
        target: &mut Self::Host,
        range: CopyRange,
    ) -> Self::Event;
    /// Queues a copy from the host to the device.
    fn copy_to_device_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Host,
        target: &mut Self::Buffer,
        range: CopyRange,
    ) -> Self::Event;

    /// Pins memory where it lies, until the last handle of it is gone and the copies that use it are done.
    ///
    /// # Errors
    /// [`Error::Pin`] if the device cannot: it has no such memory, it is pinned already, or there is too much of it. Copies through host
    /// memory ([`Self::allocate_host`]) are the way then.
    fn pin(&self, memory: ForeignMemory) -> Result<Self::Pinned, Error>;
    /// Queues a copy from the device to pinned memory, which has to be writable; `range` counts its values from its beginning.
    fn copy_to_pinned_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Buffer,
        target: &Self::Pinned,
        range: CopyRange,
    ) -> Self::Event;
    /// Queues a copy from pinned memory to the device.
    fn copy_from_pinned_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Pinned,
        target: &mut Self::Buffer,
        range: CopyRange,
    ) -> Self::Event;

    /// Makes ready what sums of at most so many runs at a time need on a stream, so that none of them is refused for want of it. By
    /// default they need nothing.
    ///
    /// # Errors
    /// As [`Self::allocate_host`].
    fn prepare_sums(&self, _stream: &Self::Stream, _runs: usize) -> Result<(), Error> {
        Ok(())
    }
    /// Queues the [`crc32c`] of values of a buffer, of each run of so many of them by itself (the last may be shorter). They are written
    /// as the bits of as many values of `target`, from `offset` on. It reads and writes as a copy does, and a GPU sums up at the rate of its
    /// memory: on a stream of its own it holds up no copy.
    ///
    /// Whoever could not do without them asks [`Self::prepare_sums`] first: where there is no memory for what they need, nothing is queued,
    /// and the event fails with [`Error::HostMemory`].
    fn sum_up_async(
        &self,
        stream: &Self::Stream,
        source: &Self::Buffer,
        runs: (Range<usize>, usize),
        target: &mut Self::Host,
        offset: usize,
    ) -> Self::Event;

    /// Everything that is queued on `stream` from now on comes after `event`.
    fn stream_after(&self, stream: &Self::Stream, event: &Self::Event);
    /// The end of all arithmetic that the device has been given so far.
    fn computed(&self) -> Self::Event;
    /// All arithmetic that the device is given from now on comes after `event`.
    ///
    /// # Errors
    /// [`Error::Copy`] if it is known already that the copy failed, [`Error::Device`] if the device has.
    fn compute_after(&self, event: &Self::Event) -> Result<(), Error>;
    /// Whether the event is done.
    ///
    /// # Errors
    /// [`Error::Copy`] if the copy failed, [`Error::Device`] if the device has.
    fn is_done(&self, event: &Self::Event) -> Result<bool, Error>;
    /// Waits until the event is done.
    ///
    /// # Errors
    /// [`Error::Copy`] if the copy failed, [`Error::Device`] if the device has; what [`Self::sum_up_async`] says of its own.
    fn wait(&self, event: &Self::Event) -> Result<(), Error>;
}
