//! How a layout comes to be: names are checked, and offsets follow from what was named before.

use std::collections::HashMap;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3Default;

use super::{Inner, Layout, PAD_PREFIX, Payload, TENSOR_ALIGN_BYTES, Tensor};
use crate::error::{Cause, Result};
use crate::object::Dtype;
use crate::schema::check_name;

/// The longest name of a tensor.
const NAME_BYTES_MAX: usize = 256;
/// The most tensors of one object: with their names they have to fit a safetensors header of 100 MB.
const TENSORS_MAX: usize = 200_000;
/// The most bytes of a payload: what a file and an address can hold with room to spare.
const PAYLOAD_BYTES_MAX: u64 = 1 << 46;

/// The most memory classes of one object.
const CLASSES_MAX: usize = 256;
/// The most dimensions of a tensor.
const DIMENSIONS_MAX: usize = 64;

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
            if shape.len() > DIMENSIONS_MAX {
                let reason = format!(
                    "tensor {name:?} has {} dimensions; it has {DIMENSIONS_MAX} at most",
                    shape.len()
                );
                return Err(Cause::Argument { what: "layout", reason }.into());
            }
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
        // Of a tensor without elements, too, one row is something that can be.
        let mut row = shape.iter().filter(|dimension| **dimension > 0);
        let row = row.try_fold(dtype.bytes(), |product, &dimension| product.checked_mul(dimension));
        row.filter(|bytes| *bytes <= PAYLOAD_BYTES_MAX).ok_or_else(too_large)?;
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
        if self.payloads.len() >= CLASSES_MAX {
            let reason =
                format!("{class:?} is one more memory class than the {CLASSES_MAX} that an object may have");
            return Err(Cause::Argument { what: "layout", reason }.into());
        }
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
