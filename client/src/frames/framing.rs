//! What one call puts into frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use forebay_store::Value;

use super::Buffers;
use crate::changes::Changes;
use crate::neighbour::placeable;
use crate::wire::{FrameWriter, from_changes_placed, from_framed, proto};

/// How much goes into a frame, unless a single value is larger: what both sides have near while they work on it.
const FRAME_BYTES: usize = 256 << 10;
/// Room for the places of a frame's values.
const PLACES_BYTES: usize = 8 << 10;
/// A frame is sent packed where that makes it shorter by one part of so many.
const SAVING: usize = 8;
/// How many frames are sent as they are after one that could not be packed.
const LEFT_ALONE: u32 = 31;

/// Whether frames are packed, for one connection: where it pays, by what it did lately. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Packing(Option<Arc<AtomicU32>>);

impl Packing {
    /// Never, or where it pays.
    pub(crate) fn new(where_it_pays: bool) -> Self {
        Packing(where_it_pays.then(Arc::default))
    }

    /// Whether to try the next frame.
    fn tries(&self) -> bool {
        let Some(left_alone) = &self.0 else { return false };
        let counted =
            left_alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        counted.is_err() // it was 0
    }

    fn failed(&self) {
        self.0.iter().for_each(|left_alone| left_alone.store(LEFT_ALONE, Ordering::Relaxed));
    }
}

/// The frames of a call while they are made.
#[derive(Debug)]
pub(crate) struct Framing<'b> {
    buffers: &'b Buffers,
    packing: &'b Packing,
    open: Option<FrameWriter>,
    done: Framed,
}

/// The frames of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Framed {
    /// As they are sent.
    pub(crate) frames: Vec<Bytes>,
    /// What they take, unpacked.
    pub(crate) bytes: u64,
}

impl<'b> Framing<'b> {
    /// Changes on the wire, with their larger values in frames.
    pub(crate) fn message(
        changes: &Changes<'_>,
        buffers: &'b Buffers,
        packing: &'b Packing,
    ) -> (proto::Changes, Framed) {
        let mut framing = Framing { buffers, packing, open: None, done: Framed::default() };
        let message = from_changes_placed(changes, &mut |_, value| framing.place(value));
        framing.close();
        (message, framing.done)
    }

    fn place(&mut self, value: &Value<'_>) -> Option<proto::Value> {
        let (kind, bytes) = placeable(value)?;
        if self.open.as_ref().is_some_and(|open| open.content_bytes() + bytes.len() > FRAME_BYTES) {
            self.close();
        }
        let room = FRAME_BYTES.max(bytes.len()) + PLACES_BYTES;
        let open = self.open.get_or_insert_with(|| FrameWriter::new(self.buffers.take(room)));
        Some(from_framed(self.done.frames.len() as u32, open.push(bytes), kind))
    }

    /// The open frame is full.
    fn close(&mut self) {
        let Some(frame) = self.open.take() else { return };
        self.done.bytes += frame.total_bytes();
        let bytes = match self.packed(&frame) {
            Some(packed) => {
                self.buffers.put(frame.into_buffer());
                packed
            }
            None => frame.finish(),
        };
        self.done.frames.push(self.buffers.share(bytes));
    }

    fn packed(&self, frame: &FrameWriter) -> Option<Vec<u8>> {
        if !self.packing.tries() {
            return None;
        }
        let packed = frame.pack(self.buffers.take(frame.content_bytes()), SAVING);
        if packed.is_none() {
            self.packing.failed();
        }
        packed
    }
}

/// How many bytes of changes would come in frames.
pub(crate) fn bytes_for_frames(changes: &Changes<'_>) -> usize {
    changes.values().filter_map(|value| placeable(value)).map(|(_, bytes)| bytes.len()).sum()
}
