//! How the bytes of an object lie: which tensors it has, in which payload, at which offset.
//!
//! Invariants
//! - A payload holds the tensors of one memory class, in the order in which they were named.
//! - Every tensor begins at a multiple of 256 bytes, and every payload is a multiple of 256 bytes long; what lies between
//!   is zeros unless somebody writes there.
//! - Two layouts have the same fingerprint when they have the same tensors in the same classes in the same order; so the
//!   bytes of an object mean the same under both.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use xxhash_rust::xxh3::Xxh3Default;

use super::dtype::Dtype;
use crate::error::{Cause, Result};
use crate::schema::{check_name, nearest};

/// Where tensors begin: at multiples of this many bytes.
pub const TENSOR_ALIGN_BYTES: u64 = 256;
/// The longest name of a tensor.
const NAME_BYTES_MAX: usize = 256;
/// The most tensors of one object: with their names they have to fit a safetensors header of 100 MB.
const TENSORS_MAX: usize = 200_000;
/// The most bytes of a payload: what a file and an address can hold with room to spare.
const PAYLOAD_BYTES_MAX: u64 = 1 << 46;
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

/// Names the tensors of a [`Layout`].
#[derive(Clone, Debug, Default)]
pub struct LayoutBuilder {
    named: Vec<(String, String, Dtype, Vec<u64>)>,
}

impl LayoutBuilder {
    /// One more tensor: its memory class, its name, the type of its elements and its dimensions.
    pub fn tensor(mut self, class: &str, name: &str, dtype: Dtype, shape: &[u64]) -> Self {
        self.named.push((class.to_owned(), name.to_owned(), dtype, shape.to_vec()));
        self
    }

    /// Lays them out.
    ///
    /// # Errors
    /// `input` when there is none, a name or class is not legal or a name comes twice, or one is larger than can be.
    pub fn build(self) -> Result<Layout> {
        if self.named.is_empty() || self.named.len() > TENSORS_MAX {
            let reason = format!("{} tensors; an object has 1 to {TENSORS_MAX}", self.named.len());
            return Err(Cause::Argument { what: "layout", reason }.into());
        }
        let mut layout = Inner {
            tensors: Vec::with_capacity(self.named.len()),
            payloads: Vec::new(),
            by_name: HashMap::default(),
            fingerprint: 0,
        };
        for (class, name, dtype, shape) in self.named {
            layout.add(class, name, dtype, shape)?;
        }
        layout.fingerprint = layout.compute_fingerprint();
        Ok(Layout(Arc::new(layout)))
    }
}

impl Inner {
    fn add(&mut self, class: String, name: String, dtype: Dtype, shape: Vec<u64>) -> Result<()> {
        check_tensor_name(&name)?;
        let payload = self.payload_of(class)?;
        let too_large = || Cause::TensorTooLarge { tensor: name.clone(), limit: PAYLOAD_BYTES_MAX };
        let elements = shape.iter().try_fold(1_u64, |product, &dimension| product.checked_mul(dimension));
        let bytes =
            elements.and_then(|elements| elements.checked_mul(dtype.bytes())).ok_or_else(too_large)?;
        let offset = self.payloads[payload].bytes;
        let end = offset.checked_add(bytes).filter(|end| *end <= PAYLOAD_BYTES_MAX).ok_or_else(too_large)?;
        let at = self.tensors.len();
        if self.by_name.insert(name.clone(), at).is_some() {
            return Err(Cause::Exists { what: "tensor", name }.into());
        }
        self.payloads[payload].bytes = end.next_multiple_of(TENSOR_ALIGN_BYTES);
        self.payloads[payload].tensors.push(at);
        self.tensors.push(Tensor { name, payload, dtype, shape, offset, bytes });
        Ok(())
    }

    fn payload_of(&mut self, class: String) -> Result<usize> {
        if let Some(at) = self.payloads.iter().position(|payload| payload.class == class) {
            return Ok(at);
        }
        check_name("memory class", &class)?;
        self.payloads.push(Payload { class, bytes: 0, tensors: Vec::new() });
        Ok(self.payloads.len() - 1)
    }

    fn compute_fingerprint(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        let mut text = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for tensor in &self.tensors {
            text(&self.payloads[tensor.payload].class);
            text(&tensor.name);
            text(tensor.dtype.name());
            let shape: Vec<u8> = tensor.shape.iter().flat_map(|dimension| dimension.to_le_bytes()).collect();
            text(&tensor.shape.len().to_string());
            shape.chunks(8).for_each(|dimension| text(&format!("{dimension:?}")));
        }
        hash.digest()
    }
}

fn check_tensor_name(name: &str) -> Result<()> {
    let reason = match name {
        "" => "it is empty",
        "__metadata__" => "safetensors files keep their metadata under it",
        _ if name.starts_with(PAD_PREFIX) => "names of padding begin so",
        _ if name.len() > NAME_BYTES_MAX => "it has more than 256 bytes",
        _ if name.chars().any(char::is_control) => "it holds a control character",
        _ => return Ok(()),
    };
    Err(Cause::Argument { what: "tensor", reason: format!("{name:?} cannot be its name: {reason}") }.into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    type Named<'a> = (&'a str, &'a str, Dtype, &'a [u64]);

    fn of(tensors: &[Named<'_>]) -> Result<Layout> {
        let builder = tensors.iter().fold(Layout::builder(), |b, (c, n, d, s)| b.tensor(c, n, *d, s));
        builder.build()
    }

    #[test]
    fn tensors_begin_at_multiples_of_256_bytes_in_the_payload_of_their_class() {
        let layout = of(&[
            ("weights", "a", Dtype::Bf16, &[3, 5]),
            ("moments", "b", Dtype::F32, &[64]),
            ("weights", "empty", Dtype::F32, &[0, 7]),
            ("weights", "scalar", Dtype::F64, &[]),
        ])
        .unwrap();
        let places: Vec<_> = layout.tensors().iter().map(|t| (t.payload, t.offset, t.bytes)).collect();
        assert_eq!(places, [(0, 0, 30), (1, 0, 256), (0, 256, 0), (0, 256, 8)]);
        assert_eq!(layout.payloads().iter().map(|p| p.bytes).collect::<Vec<_>>(), [512, 256]);
        assert_eq!(layout.tensors_in(0, 0..256), ["a"]);
        assert_eq!(layout.tensor_that_ends_at(0, 264).unwrap().name, "scalar");
        assert!(layout.tensor_that_ends_at(0, 29).is_none());
    }

    // FX-69
    #[test]
    fn what_cannot_be_laid_out_is_refused_with_its_name() {
        let long = "x".repeat(300);
        let cases: [(&[Named<'_>], &str); 8] = [
            (&[], "0 tensors"),
            (&[("weights", "a", Dtype::U8, &[1]), ("moments", "a", Dtype::U8, &[1])], "\"a\" exists"),
            (&[("weights", "", Dtype::U8, &[1])], "empty"),
            (&[("weights", "__metadata__", Dtype::U8, &[1])], "__metadata__"),
            (&[("weights", "__pad_0", Dtype::U8, &[1])], "__pad_0"),
            (&[("weights", &long, Dtype::U8, &[1])], "256 bytes"),
            (&[("not a class", "a", Dtype::U8, &[1])], "memory class \"not a class\""),
            (&[("weights", "huge", Dtype::F64, &[1 << 40, 1 << 40])], "\"huge\""),
        ];
        for (tensors, message) in cases {
            let error = of(tensors).unwrap_err();
            assert_eq!(error.kind(), Kind::Input, "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
        let layout = of(&[("weights", "layers.0.query", Dtype::U8, &[1])]).unwrap();
        let error = layout.tensor("layers.0.qery").unwrap_err();
        assert!(error.to_string().contains("did you mean \"layers.0.query\""), "{error}");
    }

    #[test]
    fn a_fingerprint_changes_with_all_that_gives_bytes_another_meaning() {
        let base: &[Named<'_>] = &[("weights", "a", Dtype::F32, &[2, 3]), ("weights", "b", Dtype::F32, &[1])];
        let print = |tensors: &[Named<'_>]| of(tensors).unwrap().fingerprint();
        assert_eq!(print(base), print(base));
        let others: [&[Named<'_>]; 6] = [
            &[("weights", "a", Dtype::F32, &[3, 2]), ("weights", "b", Dtype::F32, &[1])],
            &[("weights", "a", Dtype::I32, &[2, 3]), ("weights", "b", Dtype::F32, &[1])],
            &[("weights", "b", Dtype::F32, &[1]), ("weights", "a", Dtype::F32, &[2, 3])],
            &[("weights", "a", Dtype::F32, &[2, 3]), ("master", "b", Dtype::F32, &[1])],
            &[("weights", "a", Dtype::F32, &[2, 3]), ("weights", "c", Dtype::F32, &[1])],
            &[("weights", "a", Dtype::F32, &[2, 3])],
        ];
        for other in others {
            assert_ne!(print(other), print(base), "{other:?}");
        }
    }
}
