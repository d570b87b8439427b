//! Copies beside the arithmetic: streams of their own, pinned memory, events.

use std::ops::Range;
use std::sync::Arc;

use super::checksums::Parts;
use super::memory::{Pinned, Registered};
use super::stream::{Event, Stream};
use super::under_way::{Copy, Kept};
use super::{CudaBuffer, CudaDevice, CudaError, CudaHost, CudaPinned};
use crate::device::copies::lies_in;
use crate::device::{Copies, CopyRange, Device, ForeignMemory};
use crate::error::Error;

/// A queue of copies.
#[derive(Debug)]
pub struct CudaStream {
    stream: Stream,
    /// Where sums leave what they find of the parts of their runs.
    pub(super) parts: Parts,
}

/// A place in a stream.
#[derive(Debug, Clone)]
pub struct CudaEvent(Place);

#[derive(Debug, Clone)]
enum Place {
    At(Arc<Event>),
    /// What was to be queued was not: the device has failed, or it did not take this and goes on.
    Refused(Arc<Error>),
}

const VALUE: usize = size_of::<f32>();

impl CudaEvent {
    /// Of what the device was not given, for this reason.
    pub(super) fn refused(error: Error) -> Self {
        Self(Place::Refused(Arc::new(error)))
    }

    fn place(&self) -> Option<&Event> {
        match &self.0 {
            Place::At(event) => Some(event),
            Place::Refused(_) => None,
        }
    }
}

/// Where host memory begins, how many values it has, and what keeps it.
fn of_host(host: &CudaHost) -> (*mut u8, usize, Kept) {
    (host.memory.place(), host.length, Kept::of(&host.memory))
}

fn of_pinned(pinned: &CudaPinned) -> (*mut u8, usize, Kept) {
    let memory = &pinned.memory.memory;
    (memory.place(), memory.length(), Kept::of(&pinned.memory))
}

impl CudaDevice {
    /// Queues one copy with `work`, which gets the stream and where device and host values begin.
    fn copy_async(
        &self,
        stream: &CudaStream,
        buffer: &CudaBuffer,
        (place, host_length, host): (*mut u8, usize, Kept),
        range: CopyRange,
        work: impl FnOnce(&Stream, u64, *mut u8, usize) -> Result<(), CudaError>,
    ) -> CudaEvent {
        let CopyRange { device_offset, host_offset, length } = range;
        range.check(buffer.length, host_length);
        let kept = [Kept::of(&buffer.memory), host];
        self.queued(stream, kept, |stream| {
            let address = buffer.memory.address() + (VALUE * device_offset) as u64;
            let place = place.wrapping_add(VALUE * host_offset);
            if length > 0 { work(stream, address, place, VALUE * length) } else { Ok(()) }
        })
    }

    /// Queues what `work` does, and keeps the memory that it uses until that is done. What the device does not take is the event's to tell.
    pub(super) fn queued(
        &self,
        stream: &CudaStream,
        kept: [Kept; 2],
        work: impl FnOnce(&Stream) -> Result<(), CudaError>,
    ) -> CudaEvent {
        if let Err(error) = self.check() {
            return CudaEvent::refused(error);
        }
        let stream = &stream.stream;
        match work(stream).and_then(|()| stream.event()) {
            Ok(end) => {
                let end = Arc::new(end);
                self.queue.under_way.add(Copy { end: Arc::clone(&end), _kept: kept });
                CudaEvent(Place::At(end))
            }
            Err(error) => {
                // Something may be under way, and nobody could tell when it ends: not before its memory is free. Of a device that
                // another thread has failed meanwhile, too, which an attempt asks nothing any more.
                let waited = stream.wait();
                self.queue.attempt(|| waited);
                CudaEvent::refused(self.told(&error, |reason| Error::Copy { reason }))
            }
        }
    }

    /// What a refusal of the driver is told as: as the device's failure where it has failed, for then it refuses everything, and else as
    /// what was refused. To wait for the device needs no memory, and says whether it has.
    fn told(&self, error: &CudaError, refused: impl FnOnce(String) -> Error) -> Error {
        self.queue.attempt(|| self.queue.stream.wait());
        self.check().err().unwrap_or_else(|| refused(error.to_string()))
    }

    /// Pinned memory of so many values, of arbitrary contents.
    ///
    /// Not by the queue: that there is none to be had is no failure of the device.
    pub(super) fn pinned(&self, values: usize) -> Result<Pinned, Error> {
        self.check()?;
        let refused = |reason: String| Error::HostMemory { values, reason };
        let no_address = || refused("so many have no address".to_owned());
        let bytes = values.checked_mul(VALUE).ok_or_else(no_address)?;
        Pinned::new(self.queue.stream.context(), bytes).map_err(|error| self.told(&error, refused))
    }

    /// Asks something of an event.
    fn of_event<T>(
        &self,
        event: &CudaEvent,
        ask: impl FnOnce(&Event) -> Result<T, CudaError>,
    ) -> Result<T, Error> {
        match &event.0 {
            Place::At(event) => Ok(self.queue.outcome(|| ask(event))?),
            Place::Refused(error) => Err(Error::clone(error)),
        }
    }
}

#[allow(unsafe_code, reason = "copies of the driver, between memory that is kept until they are done")]
impl Copies for CudaDevice {
    type Host = CudaHost;
    type Stream = CudaStream;
    type Event = CudaEvent;
    type Pinned = CudaPinned;

    fn allocate_host(&self, length: usize) -> Result<CudaHost, Error> {
        let memory = self.pinned(length)?;
        if length > 0 {
            // SAFETY: so many bytes were just allocated, and nobody else has them yet.
            unsafe { memory.place().write_bytes(0, VALUE * length) };
        }
        Ok(CudaHost { memory: Arc::new(memory), length })
    }

    fn host_length(&self, host: &CudaHost) -> usize {
        host.length
    }

    fn write_host(&self, values: &[f32], host: &mut CudaHost, offset: usize) {
        assert!(lies_in(offset, values.len(), host.length), "values lie in host memory");
        if !values.is_empty() {
            let place = host.memory.place().wrapping_add(VALUE * offset);
            // SAFETY: inside of the memory, which no reference is ever made to. A copy under way that reads it may see old and
            // new bytes, as the rules of `Copies` say; it is the device that does.
            unsafe { place.copy_from_nonoverlapping(values.as_ptr().cast(), VALUE * values.len()) };
        }
    }

    fn read_host(&self, host: &CudaHost, offset: usize, values: &mut [f32]) {
        assert!(lies_in(offset, values.len(), host.length), "values lie in host memory");
        if !values.is_empty() {
            let place = host.memory.place().wrapping_add(VALUE * offset);
            // SAFETY: inside of the memory, which no reference is ever made to; every pattern of bits is an f32.
            unsafe { place.copy_to_nonoverlapping(values.as_mut_ptr().cast(), VALUE * values.len()) };
        }
    }

    fn stream(&self) -> Result<CudaStream, Error> {
        self.check()?;
        // Not by the queue: that there is none to be had is no failure of the device.
        let made = Stream::new(self.queue.stream.context());
        let stream = made.map_err(|error| self.told(&error, |reason| Error::Stream { reason }))?;
        Ok(CudaStream { stream, parts: Parts::default() })
    }

    fn copy_to_host_async(
        &self,
        stream: &CudaStream,
        source: &CudaBuffer,
        target: &mut CudaHost,
        range: CopyRange,
    ) -> CudaEvent {
        self.copy_async(stream, source, of_host(target), range, |stream, address, place, bytes| {
            // SAFETY: both ranges were checked, and both memories are kept until the copy's event is done.
            unsafe { stream.to_host(address, place.cast(), bytes) }
        })
    }

    fn copy_to_device_async(
        &self,
        stream: &CudaStream,
        source: &CudaHost,
        target: &mut CudaBuffer,
        range: CopyRange,
    ) -> CudaEvent {
        self.copy_async(stream, target, of_host(source), range, |stream, address, place, bytes| {
            // SAFETY: as above.
            unsafe { stream.to_device(place.cast_const().cast(), address, bytes) }
        })
    }

    fn pin(&self, memory: ForeignMemory) -> Result<CudaPinned, Error> {
        self.check()?;
        // Not by the queue: a mapping that cannot be pinned is no failure of the device.
        let made = Registered::new(self.queue.stream.context(), memory);
        let made = made.map_err(|error| Error::Pin { reason: error.to_string() })?;
        Ok(CudaPinned { memory: Arc::new(made) })
    }

    fn copy_to_pinned_async(
        &self,
        stream: &CudaStream,
        source: &CudaBuffer,
        target: &CudaPinned,
        range: CopyRange,
    ) -> CudaEvent {
        assert!(target.memory.memory.is_writable(), "pinned memory that is copied to can be written");
        self.copy_async(stream, source, of_pinned(target), range, |stream, address, place, bytes| {
            // SAFETY: both ranges were checked, and both memories are kept until the copy's event is done.
            unsafe { stream.to_host(address, place.cast(), bytes) }
        })
    }

    fn copy_from_pinned_async(
        &self,
        stream: &CudaStream,
        source: &CudaPinned,
        target: &mut CudaBuffer,
        range: CopyRange,
    ) -> CudaEvent {
        self.copy_async(stream, target, of_pinned(source), range, |stream, address, place, bytes| {
            // SAFETY: as above.
            unsafe { stream.to_device(place.cast_const().cast(), address, bytes) }
        })
    }

    fn prepare_sums(&self, stream: &CudaStream, runs: usize) -> Result<(), Error> {
        stream.parts.prepare(self, runs)
    }

    fn sum_up_async(
        &self,
        stream: &CudaStream,
        source: &CudaBuffer,
        runs: (Range<usize>, usize),
        target: &mut CudaHost,
        offset: usize,
    ) -> CudaEvent {
        self.sum_up_on(stream, source, runs, target, offset)
    }

    fn stream_after(&self, stream: &CudaStream, event: &CudaEvent) {
        if let Some(event) = event.place() {
            self.queue.attempt(|| stream.stream.come_after(event));
        }
    }

    fn computed(&self) -> CudaEvent {
        match self.queue.outcome(|| self.queue.stream.event()) {
            Ok(event) => CudaEvent(Place::At(Arc::new(event))),
            Err(error) => CudaEvent::refused(error.into()),
        }
    }

    fn compute_after(&self, event: &CudaEvent) -> Result<(), Error> {
        self.of_event(event, |event| self.queue.stream.come_after(event))
    }

    fn is_done(&self, event: &CudaEvent) -> Result<bool, Error> {
        let is_done = self.of_event(event, Event::is_done)?;
        if is_done {
            self.queue.under_way.sweep();
        }
        Ok(is_done)
    }

    /// Also when the device has failed: what was under way before may go on, and its memory is not to be another's meanwhile.
    fn wait(&self, event: &CudaEvent) -> Result<(), Error> {
        let waited = self.of_event(event, Event::wait);
        if waited.is_err() {
            // The first failure is told. Where the device had failed before there is no event, and all arithmetic is waited for.
            let _ = event.place().map_or_else(|| self.queue.stream.wait(), Event::wait);
        }
        self.queue.under_way.sweep();
        waited
    }
}
