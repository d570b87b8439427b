//! Policies as safetensors payloads that stock readers open.
//!
//! Tensors carry the names of their model type; the metadata is `{"format": "pt"}`, which readers of that family ask for. The output
//! matrix is tied to the embedding: it is not written, and ignored where a file has it.

use std::borrow::Cow;
use std::collections::HashMap;

use half::bf16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{ParameterLayout, Policy, PolicyConfig};
use crate::device::Device;
use crate::error::Error;

const TIED: &str = "lm_head.weight";

/// How values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredType {
    /// 32 bits: exact.
    F32,
    /// 16 bits, rounded to the nearest.
    Bf16,
}

impl<D: Device> Policy<D> {
    /// Reads a policy, version 0, from a safetensors payload with values of f32, bf16 or f16.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is not valid, [`Error::Payload`] if the bytes are no safetensors,
    /// [`Error::Tensor`] if a tensor is missing, unknown, or of another shape or type.
    pub fn load(device: &D, config: &PolicyConfig, bytes: &[u8]) -> Result<Self, Error> {
        config.validate()?;
        let layout = ParameterLayout::new(config);
        let expected = layout.tensors().iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice()));
        let tensors = read_tensors(bytes, expected, &[TIED])?;
        Self::from_values(device, config, &tensors.concat(), 0)
    }

    /// A safetensors payload of the weights.
    pub fn save(&self, device: &D, stored: StoredType) -> Vec<u8> {
        let values = self.values(device);
        let tensors = self.shape.layout.tensors().iter().map(|tensor| {
            let part = &values[tensor.offset..tensor.offset + tensor.length()];
            (tensor.name.as_str(), tensor.shape.clone(), part)
        });
        write_tensors(tensors, stored)
    }
}

/// Values as little-endian bytes.
pub(crate) fn f32_bytes(values: &[f32]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        Cow::Borrowed(bytemuck::cast_slice(values))
    } else {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// Reads the expected tensors, in order, as f32; any other tensor than those and the ignored ones is refused.
fn read_tensors<'a>(
    bytes: &[u8],
    expected: impl Iterator<Item = (&'a str, &'a [usize])>,
    ignored: &[&str],
) -> Result<Vec<Vec<f32>>, Error> {
    let payload =
        SafeTensors::deserialize(bytes).map_err(|error| Error::Payload { reason: error.to_string() })?;
    let mut found = ignored.iter().filter(|name| payload.tensor(name).is_ok()).count();
    let mut tensors = Vec::new();
    for (name, shape) in expected {
        let refuse = |reason: String| Error::Tensor { name: name.to_owned(), reason };
        let view = payload.tensor(name).map_err(|_| refuse("missing".into()))?;
        if view.shape() != shape {
            return Err(refuse(format!("shape {:?}, the configuration says {shape:?}", view.shape())));
        }
        tensors.push(values(&view).ok_or_else(|| refuse(format!("stored as {:?}", view.dtype())))?);
        found += 1;
    }
    if found != payload.len() {
        let reason = format!("{} tensors, {found} of them known", payload.len());
        return Err(Error::Payload { reason });
    }
    Ok(tensors)
}

fn values(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let two = |convert: fn([u8; 2]) -> f32| view.data().as_chunks().0.iter().copied().map(convert).collect();
    match view.dtype() {
        Dtype::F32 => Some(view.data().as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()),
        Dtype::BF16 => Some(two(|bytes| bf16::from_le_bytes(bytes).to_f32())),
        Dtype::F16 => Some(two(|bytes| half::f16::from_le_bytes(bytes).to_f32())),
        _ => None,
    }
}

/// A payload of named tensors.
fn write_tensors<'a>(
    tensors: impl Iterator<Item = (&'a str, Vec<usize>, &'a [f32])>,
    stored: StoredType,
) -> Vec<u8> {
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let list: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .map(|(name, shape, values)| match stored {
            StoredType::F32 => (name, shape, f32_bytes(values).into_owned()),
            StoredType::Bf16 => {
                (name, shape, values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect())
            }
        })
        .collect();
    let dtype = match stored {
        StoredType::F32 => Dtype::F32,
        StoredType::Bf16 => Dtype::BF16,
    };
    let views = list.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(dtype, shape.clone(), bytes).expect("bytes were made from the shape");
        (*name, view)
    });
    safetensors::serialize(views, Some(metadata)).expect("names are distinct and shapes fit their bytes")
}
