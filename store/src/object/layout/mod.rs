//! How the bytes of an object lie: which tensors it has, in which payload, at which offset.
//!
//! Invariants
//! - A payload holds the tensors of one memory class, in the order in which they were named.
//! - Every tensor begins at a multiple of 256 bytes, and every payload is a multiple of 256 bytes long; what lies between
//!   is zeros unless somebody writes there.
//! - Two layouts have the same fingerprint when they have the same tensors in the same classes in the same order; so the
//!   bytes of an object mean the same under both.

mod builder;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub use builder::LayoutBuilder;
use foldhash::fast::RandomState;

use super::dtype::Dtype;
use crate::error::{Cause, Result};
use crate::schema::nearest;

/// Where tensors begin: at multiples of this many bytes.
pub const TENSOR_ALIGN_BYTES: u64 = 256;
/// What names of the engine's own begin with in a safetensors file.
pub(crate) const PAD_PREFIX: &str = "__pad_";

/// One tensor of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, unique in the object.
    pub name: String,
    /// Which of [`Layout::payloads`] it lies in.
    pub payload: usize,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions, the slowest first; none for a scalar.
    pub shape: Vec<u64>,
    /// Where it begins in its payload, in bytes.
    pub offset: u64,
    /// How many bytes it takes.
    pub bytes: u64,
}

impl Tensor {
    /// Its bytes in the payload.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }

    /// Its bytes with those that fill it up to where the next one may begin.
    pub(crate) fn padded_end(&self) -> u64 {
        (self.offset + self.bytes).next_multiple_of(TENSOR_ALIGN_BYTES)
    }

    /// How many bytes one row (one index of the first dimension) takes; all of it for a scalar.
    pub fn row_bytes(&self) -> u64 {
        self.shape.iter().skip(1).product::<u64>() * self.dtype.bytes()
    }
}

/// All tensors of one memory class, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The memory class, for instance `weights`, `master`, `moments` or `gradient`.
    pub class: String,
    /// How many bytes it takes.
    pub bytes: u64,
    /// Which of [`Layout::tensors`] it holds.
    pub tensors: Vec<usize>,
}

/// What an object is made of. Cheap to clone; make it once and set every version with it.
///
/// ```
/// use forebay_store::{Dtype, Layout};
/// let layout = Layout::builder()
///     .tensor("weights", "embed", Dtype::Bf16, &[100, 3])
///     .tensor("weights", "head", Dtype::Bf16, &[3, 100])
///     .tensor("moments", "embed.first", Dtype::F32, &[100, 3])
///     .build()?;
/// let head = layout.tensor("head")?;
/// assert_eq!((head.offset, head.bytes), (768, 600)); // 600 bytes of `embed`, filled up to a multiple of 256
/// assert_eq!(layout.payloads().len(), 2);
/// # Ok::<(), forebay_store::Error>(())
/// ```
#[derive(Clone)]
pub struct Layout(Arc<Inner>);

struct Inner {
    tensors: Vec<Tensor>,
    payloads: Vec<Payload>,
    by_name: HashMap<String, usize, RandomState>,
    fingerprint: u64,
}

impl Layout {
    /// Names tensors one by one.
    pub fn builder() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// The tensors in the order in which they were named.
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }

    /// One payload a memory class, in the order in which the classes were first named.
    pub fn payloads(&self) -> &[Payload] {
        &self.0.payloads
    }

    /// The tensor of that name.
    ///
    /// # Errors
    /// `input` with the nearest name when there is none.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        let unknown = || Cause::Unknown {
            what: "tensor",
            name: name.to_owned(),
            close: nearest(name, self.0.tensors.iter().map(|tensor| &*tensor.name)),
        };
        Ok(self.0.by_name.get(name).map(|&at| &self.0.tensors[at]).ok_or_else(unknown)?)
    }

    /// Which of [`payloads`](Self::payloads) holds a memory class.
    ///
    /// # Errors
    /// `input` with the nearest name when there is none.
    pub fn payload(&self, class: &str) -> Result<usize> {
        let unknown = || Cause::Unknown {
            what: "memory class",
            name: class.to_owned(),
            close: nearest(class, self.0.payloads.iter().map(|payload| &*payload.class)),
        };
        Ok(self.0.payloads.iter().position(|payload| payload.class == class).ok_or_else(unknown)?)
    }

    /// The bytes of all payloads.
    pub fn bytes(&self) -> u64 {
        self.0.payloads.iter().map(|payload| payload.bytes).sum()
    }

    /// A hash of what is said here. Readers that mean another layout are told apart by it.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// The tensors that have bytes in a range of a payload, for messages.
    pub(crate) fn tensors_in(&self, payload: usize, range: Range<u64>) -> Vec<&str> {
        let held = &self.0.payloads[payload].tensors;
        let first = held.partition_point(|&at| self.0.tensors[at].padded_end() <= range.start);
        let inside = held[first..].iter().map(|&at| &self.0.tensors[at]);
        inside.take_while(|tensor| tensor.offset < range.end).map(|tensor| &*tensor.name).collect()
    }

    /// How many bytes of padding follow when `length` bytes that end at `end` of a payload are written: a tensor that ends there
    /// is filled up.
    pub(crate) fn pad_after(&self, payload: usize, end: u64, length: usize) -> u64 {
        match self.tensor_that_ends_at(payload, end) {
            Some(tensor) if length > 0 => tensor.padded_end() - end,
            _ => 0,
        }
    }

    /// The tensor of a payload whose last byte lies right before `end`, if one ends there.
    pub(crate) fn tensor_that_ends_at(&self, payload: usize, end: u64) -> Option<&Tensor> {
        let held = &self.0.payloads[payload].tensors;
        let first = held.partition_point(|&at| self.0.tensors[at].range().end < end);
        held.get(first).map(|&at| &self.0.tensors[at]).filter(|tensor| tensor.range().end == end)
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.fingerprint == other.0.fingerprint
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Layout({:016x}, {} tensors, {} bytes)",
            self.fingerprint(),
            self.0.tensors.len(),
            self.bytes()
        )
    }
}
