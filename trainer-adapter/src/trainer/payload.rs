//! A gradient cache as flat payloads: named runs of values, with a digest over all of them.
//!
//! | tensor | type | what |
//! | --- | --- | --- |
//! | `policy`, `weights`, `version`, `loss` | u8, u8, u64, u64 | whose cache it is: name, SHA-256 of the weights, version, numbers of the loss |
//! | `units` | u64 `[units, 5]` | position, rows, tokens, bits of the weight of rows and of tokens |
//! | `nodes` | u64 `[nodes, 3]` | level and index in the tree, whether there is a gradient |
//! | `node.LEVEL.INDEX` | f32 `[parameters]` | the sum of the units below a node |
//! | `groups` | u64 `[groups, 6]` | open groups: position, members, kind of rewards and its two numbers, whether there is a `rest` |
//! | `group.POSITION.members` | u64 `[members, 14]` | see `words.rs` |
//! | `group.POSITION.first`, `.second`, `.rest` | i64 `[parameters]` | sums in units of `2^-fraction_bits` |
//! | `digest` | u8 `[32]` | SHA-256 over names, types, lengths and bytes of all the others, in the order of their names |

use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};

use super::stream::Run;
use crate::device::Device;
use crate::error::Error;

const DIGEST: &str = "digest";

/// Type of the values of a flat payload, all little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlatType {
    /// Bytes.
    U8,
    /// 32-bit floats.
    F32,
    /// 64-bit integers with a sign.
    I64,
    /// 64-bit integers without one.
    U64,
}

impl FlatType {
    fn dtype(self) -> Dtype {
        match self {
            Self::U8 => Dtype::U8,
            Self::F32 => Dtype::F32,
            Self::I64 => Dtype::I64,
            Self::U64 => Dtype::U64,
        }
    }

    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        [Self::U8, Self::F32, Self::I64, Self::U64].into_iter().find(|flat| flat.dtype() == dtype)
    }

    fn width(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }
}

/// One run of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatTensor {
    /// Its type.
    pub flat_type: FlatType,
    /// Its values, little-endian, without gaps.
    pub bytes: Vec<u8>,
}

/// What [`crate::Trainer::export_cache`] takes out: runs of bytes by name.
///
/// To keep them as one file, or to send them, [`Self::to_bytes`]; an object store may keep each on its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachePayload {
    tensors: BTreeMap<String, FlatTensor>,
}

impl CachePayload {
    /// A payload of runs that were kept one by one.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the digest is missing or another than that of the other runs.
    pub fn from_tensors(tensors: impl IntoIterator<Item = (String, FlatTensor)>) -> Result<Self, Error> {
        let payload = Self { tensors: tensors.into_iter().collect() };
        if payload.bytes(DIGEST, FlatType::U8)? != payload.digest() {
            let reason = "does not fit the other tensors: bytes were changed or lost".into();
            return Err(Error::Tensor { name: DIGEST.into(), reason });
        }
        Ok(payload)
    }

    /// The runs by name.
    pub fn tensors(&self) -> &BTreeMap<String, FlatTensor> {
        &self.tensors
    }

    /// The same as one safetensors payload: the same cache gives the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, tensor)| {
            let shape = vec![tensor.bytes.len() / tensor.flat_type.width()];
            let view = TensorView::new(tensor.flat_type.dtype(), shape, &tensor.bytes);
            (name, view.expect("the shape was made from the bytes"))
        });
        safetensors::serialize(views, None).expect("names are distinct and shapes fit their bytes")
    }

    /// What [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Payload`] if the bytes are no safetensors, [`Error::Tensor`] if they are not what was written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let file =
            SafeTensors::deserialize(bytes).map_err(|error| Error::Payload { reason: error.to_string() })?;
        let mut tensors = Vec::new();
        for (name, view) in file.iter() {
            let reason = format!("stored as {:?}", view.dtype());
            let flat_type =
                FlatType::of(view.dtype()).ok_or(Error::Tensor { name: name.to_owned(), reason })?;
            tensors.push((name.to_owned(), FlatTensor { flat_type, bytes: view.data().to_vec() }));
        }
        Self::from_tensors(tensors)
    }

    /// The last step of writing one.
    pub(super) fn seal(mut self) -> Self {
        let bytes = self.digest();
        self.put(DIGEST, FlatType::U8, bytes);
        self
    }

    pub(super) fn put(&mut self, name: impl Into<String>, flat_type: FlatType, bytes: Vec<u8>) {
        self.tensors.insert(name.into(), FlatTensor { flat_type, bytes });
    }

    /// A run as a trainer has it.
    pub(super) fn put_run<D: Device>(&mut self, device: &D, run: &Run<'_, D>) {
        let flat_type = FlatType::of(run.dtype).expect("a trainer's runs are of these types");
        let mut bytes = Vec::new();
        run.write(device, &mut bytes).expect("a vector takes everything");
        self.put(run.name.clone(), flat_type, bytes);
    }

    pub(super) fn bytes(&self, name: &str, flat_type: FlatType) -> Result<&[u8], Error> {
        let refuse = |reason: String| Error::Tensor { name: name.to_owned(), reason };
        let tensor = self.tensors.get(name).ok_or_else(|| refuse("missing".into()))?;
        if tensor.flat_type != flat_type {
            return Err(refuse(format!("stored as {:?}", tensor.flat_type)));
        }
        Ok(&tensor.bytes)
    }

    /// Words in rows of `width`.
    pub(super) fn words(&self, name: &str, width: usize) -> Result<Vec<u64>, Error> {
        let bytes = self.bytes(name, FlatType::U64)?;
        if !bytes.len().is_multiple_of(width * size_of::<u64>()) {
            let reason = format!("{} bytes are no rows of {width} words", bytes.len());
            return Err(Error::Tensor { name: name.to_owned(), reason });
        }
        Ok(bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect())
    }

    fn digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        for (name, tensor) in self.tensors.iter().filter(|(name, _)| *name != DIGEST) {
            for part in [name.as_bytes(), &[tensor.flat_type as u8], &tensor.bytes] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        hash.finalize().to_vec()
    }
}
