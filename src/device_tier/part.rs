//! Memory classes as runs of a device's buffers.

use super::DeviceTierError;
use crate::store::{Dtype, Layout};
use crate::trainer::device::Copies;

/// A memory class of an object, and the device memory that it is taken from.
#[derive(Debug)]
pub struct DevicePart<'a, D: Copies> {
    pub(super) class: &'a str,
    pub(super) buffer: &'a D::Buffer,
    pub(super) offset: usize,
}

/// A memory class of an object, and the device memory that it is put into.
#[derive(Debug)]
pub struct DevicePartMut<'a, D: Copies> {
    pub(super) class: &'a str,
    pub(super) buffer: &'a mut D::Buffer,
    pub(super) offset: usize,
}

impl<'a, D: Copies> DevicePart<'a, D> {
    /// The class that begins where the buffer does.
    pub fn of(class: &'a str, buffer: &'a D::Buffer) -> Self {
        DevicePart { class, buffer, offset: 0 }
    }

    /// The class that begins at value `offset` of the buffer.
    pub fn from(self, offset: usize) -> Self {
        DevicePart { offset, ..self }
    }
}

impl<'a, D: Copies> DevicePartMut<'a, D> {
    /// The class that begins where the buffer does.
    pub fn of(class: &'a str, buffer: &'a mut D::Buffer) -> Self {
        DevicePartMut { class, buffer, offset: 0 }
    }

    /// The class that begins at value `offset` of the buffer.
    pub fn from(self, offset: usize) -> Self {
        DevicePartMut { offset, ..self }
    }
}

/// A part that fits its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) class: String,
    /// Where it begins in the buffer.
    pub(super) offset: usize,
    /// Up to the end of the last tensor.
    pub(super) values: usize,
    /// Bytes of the payload, which is filled up behind the last tensor.
    pub(super) payload_bytes: u64,
}

/// Some values of a part, counted from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) first: usize,
    pub(super) length: usize,
}

impl Piece {
    /// Where it begins in its payload.
    pub(super) fn offset(self) -> u64 {
        (self.first * size_of::<f32>()) as u64
    }

    pub(super) fn bytes(self) -> u64 {
        (self.length * size_of::<f32>()) as u64
    }
}

impl Extent {
    /// Where a piece ends in its payload: the last one has what the payload has behind its last tensor.
    pub(super) fn end_of(&self, piece: Piece) -> u64 {
        match piece.first + piece.length == self.values {
            true => self.payload_bytes,
            false => piece.offset() + piece.bytes(),
        }
    }

    /// All of it, in the pieces that are moved at a time.
    pub(super) fn pieces(&self, piece_values: usize) -> impl Iterator<Item = Piece> + use<> {
        let values = self.values;
        let piece = move |first| Piece { first, length: piece_values.min(values - first) };
        (0..values).step_by(piece_values).map(piece)
    }
}

/// Checks parts (class, length of the buffer, offset) against a layout: every class once, each of f32, each in its buffer.
pub(super) fn extents<'a>(
    layout: &Layout,
    parts: impl ExactSizeIterator<Item = (&'a str, usize, usize)>,
) -> Result<Vec<Extent>, DeviceTierError> {
    let mut extents: Vec<Extent> = Vec::with_capacity(parts.len());
    for (class, length, offset) in parts {
        let wrong = |reason: String| DeviceTierError::Part { class: class.to_owned(), reason };
        if extents.iter().any(|extent| extent.class == class) {
            return Err(wrong("is named twice; name each memory class once".to_owned()));
        }
        let payload = &layout.payloads()[layout.payload(class).map_err(crate::client::Error::from)?];
        let tensors = payload.tensors.iter().map(|&tensor| &layout.tensors()[tensor]);
        if let Some(tensor) = tensors.clone().find(|tensor| tensor.dtype != Dtype::F32) {
            let (name, dtype) = (&tensor.name, tensor.dtype);
            return Err(wrong(format!("tensor {name:?} is {dtype:?}; buffers of a device hold F32")));
        }
        let some = tensors.filter(|tensor| tensor.bytes > 0);
        let bytes = some.map(|tensor| tensor.offset + tensor.bytes).max().unwrap_or(0);
        let values = (bytes / size_of::<f32>() as u64) as usize;
        if offset.checked_add(values).is_none_or(|end| end > length) {
            return Err(wrong(format!(
                "{values} values from {offset} on do not lie in a buffer of {length}"
            )));
        }
        extents.push(Extent { class: class.to_owned(), offset, values, payload_bytes: payload.bytes });
    }
    let missing = layout.payloads().iter().find(|payload| !extents.iter().any(|e| e.class == payload.class));
    match missing {
        None => Ok(extents),
        Some(payload) => {
            let reason = "has no part; give one for each memory class of the layout".to_owned();
            Err(DeviceTierError::Part { class: payload.class.clone(), reason })
        }
    }
}
