//! One state out, another in, through the same device memory.
//!
//! Chunk by chunk: as soon as a chunk of the old state has reached the host, the chunk of the new state takes its place. The
//! way out and the way in are two streams, so both directions of the bus are busy, and no second buffer is needed.

use super::copies::{Copies, CopyRange};
use crate::error::Error;

/// One flat buffer of a state (parameters, a moment, a gradient) that is to be exchanged.
pub struct Exchanged<'a, D: Copies> {
    /// Device memory: the old values, then the new ones.
    pub buffer: &'a mut D::Buffer,
    /// Where the old values go.
    pub outgoing: &'a mut D::Host,
    /// Where the new values are.
    pub incoming: &'a D::Host,
    /// Number of values.
    pub length: usize,
}

/// Exchanges the buffers of a state in chunks of `chunk_values`, and waits until all is done.
///
/// Arithmetic that was given before comes before the first copy, and what is given afterwards comes after the last.
///
/// # Errors
/// [`Error::Config`] if the chunks have no values, or one of the three memories has fewer values than are to be exchanged: nothing was
/// copied then, nor with [`Error::Stream`]. [`Error::Copy`] if a copy failed, [`Error::Device`] if the device has. Then what the buffers and `outgoing` hold is undefined; `incoming` is as it was.
pub fn exchange<D: Copies>(
    device: &D,
    state: &mut [Exchanged<'_, D>],
    chunk_values: usize,
) -> Result<(), Error> {
    if chunk_values == 0 {
        return Err(Error::Config { field: "chunk_values", value: "0".into(), reason: "has to be positive" });
    }
    state.iter().enumerate().try_for_each(|(number, part)| check_length(device, number, part))?;
    let (out, back) = (device.stream()?, device.stream()?);
    device.stream_after(&out, &device.computed());
    let mut events = Vec::new();
    for part in state {
        for first in (0..part.length).step_by(chunk_values) {
            let length = chunk_values.min(part.length - first);
            let range = CopyRange { device_offset: first, host_offset: first, length };
            let left = device.copy_to_host_async(&out, part.buffer, part.outgoing, range);
            device.stream_after(&back, &left);
            events.push(device.copy_to_device_async(&back, part.incoming, part.buffer, range));
            events.push(left);
        }
    }
    // Every copy is waited for, also after one has failed: nothing may be under way when the buffers are handed back.
    let mut result = Ok(());
    for event in &events {
        result = result.and(device.wait(event));
    }
    result?;
    events.iter().try_for_each(|event| device.compute_after(event))
}

/// Refuses a part that does not lie in all of its memories.
fn check_length<D: Copies>(device: &D, number: usize, part: &Exchanged<'_, D>) -> Result<(), Error> {
    let memories = [
        ("buffer", device.length(part.buffer)),
        ("outgoing memory", device.host_length(part.outgoing)),
        ("incoming memory", device.host_length(part.incoming)),
    ];
    let Some((memory, has)) = memories.into_iter().find(|&(_, has)| has < part.length) else { return Ok(()) };
    let value = format!("{} (part {number}, whose {memory} has {has})", part.length);
    let reason = "has to be at most what the buffer and both host memories have room for";
    Err(Error::Config { field: "length", value, reason })
}
