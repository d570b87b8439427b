//! A policy: configuration, flat parameters, and the model that they are the weights of.
//!
//! A [`Policy`] is one version of the weights and never changes; an update makes a new one. Rollout threads hold an
//! `Arc` of the version that they sample from, so publishing is handing over a pointer.

mod activations;
mod backward;
mod config;
mod forward;
mod layout;
mod safetensors;

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

pub(crate) use activations::{Activations, Batch, logit_stride};
pub use config::{ModelType, PolicyConfig};
pub(crate) use forward::TokenStatistics;
pub(crate) use layout::{LinearIndex, Vector};
pub use layout::{ParameterLayout, Tensor};
pub use safetensors::StoredType;
pub(crate) use safetensors::f32_bytes;

use crate::device::cpu::CpuBuffer;
use crate::device::{Device, Matrix};
use crate::error::Error;
use crate::random;

/// What all versions of a policy share.
pub(crate) struct Shape<D: Device> {
    pub(crate) config: PolicyConfig,
    pub(crate) layout: ParameterLayout,
    /// `[positions, head_dim]`: the cosines of a position, then its sines.
    rotary: D::Buffer,
}

/// One version of a policy's weights. Immutable.
pub struct Policy<D: Device> {
    pub(crate) shape: Arc<Shape<D>>,
    pub(crate) parameters: D::Buffer,
    pub(crate) prepared: D::Prepared,
    version: u64,
    fingerprint: OnceLock<u128>,
}

/// Values that are downloaded at a time where not all are wanted at once: 4 MiB.
pub(crate) const PIECE_VALUES: usize = 1 << 20;

/// Hands the first `length` values of a buffer to `take`, in order: where they lie if that is host memory, else in pieces.
pub(crate) fn each_piece<D: Device, E>(
    device: &D,
    buffer: &D::Buffer,
    length: usize,
    mut take: impl FnMut(&[f32]) -> Result<(), E>,
) -> Result<(), E> {
    if let Some(values) = device.in_host_memory(buffer) {
        return take(&values[..length]);
    }
    let mut piece = vec![0.0; PIECE_VALUES.min(length)];
    for first in (0..length).step_by(PIECE_VALUES) {
        let values = &mut piece[..PIECE_VALUES.min(length - first)];
        device.download(buffer, first, values);
        take(values)?;
    }
    Ok(())
}

impl<D: Device> std::fmt::Debug for Policy<D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Policy")
            .field("config", &self.shape.config)
            .field("parameters", &self.shape.layout.length())
            .field("version", &self.version)
            .finish()
    }
}

impl<D: Device> Policy<D> {
    /// Fresh weights, version 0: matrices normal with `initializer_range`, biases 0, norms 1.
    ///
    /// A pure function of configuration and seed.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is not valid; otherwise as [`Self::from_values`].
    pub fn initialise(device: &D, config: &PolicyConfig, seed: u64) -> Result<Self, Error> {
        config.validate()?;
        let layout = ParameterLayout::new(config);
        let mut values = CpuBuffer::try_zeros(layout.length())?;
        for (stream, tensor) in layout.tensors().iter().enumerate() {
            let part = &mut values[tensor.offset..tensor.offset + tensor.length()];
            if tensor.shape.len() == 2 {
                for (index, value) in part.iter_mut().enumerate() {
                    *value = config.initializer_range * random::normal(seed, stream as u32, index as u64);
                }
            } else if tensor.name.ends_with("norm.weight") {
                part.fill(1.0);
            }
        }
        Self::from_values(device, config, &values, 0)
    }

    /// A policy of the given parameters, in the order of [`ParameterLayout`].
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is not valid, [`Error::Tensor`] if there are too few or too many values,
    /// [`Error::HostMemory`] or [`Error::Device`] if there is no memory for them, or the device has failed.
    pub fn from_values(
        device: &D,
        config: &PolicyConfig,
        values: &[f32],
        version: u64,
    ) -> Result<Self, Error> {
        config.validate()?;
        let layout = ParameterLayout::new(config);
        if values.len() != layout.length() {
            let reason = format!("{} values, the configuration has {}", values.len(), layout.length());
            return Err(Error::Tensor { name: "parameters".into(), reason });
        }
        let mut parameters = device.try_allocate(values.len())?;
        device.upload(values, &mut parameters, 0);
        Self::from_buffer(device, config, parameters, version)
    }

    /// The same of parameters that are on the device already, as many as the configuration says.
    pub(crate) fn from_buffer(
        device: &D,
        config: &PolicyConfig,
        parameters: D::Buffer,
        version: u64,
    ) -> Result<Self, Error> {
        config.validate()?;
        let layout = ParameterLayout::new(config);
        let table = rotary_table(config)?;
        let mut rotary = device.try_allocate(table.len())?;
        device.upload(&table, &mut rotary, 0);
        let shape = Arc::new(Shape { config: config.clone(), layout, rotary });
        let prepared = device.try_prepare(&parameters, &shape.layout.linears())?;
        device.check()?;
        Ok(Self { shape, parameters, prepared, version, fingerprint: OnceLock::new() })
    }

    /// The next version of a policy.
    pub(crate) fn from_parameters(
        device: &D,
        shape: Arc<Shape<D>>,
        parameters: D::Buffer,
        version: u64,
    ) -> Self {
        let prepared = device.prepare(&parameters, &shape.layout.linears());
        Self { shape, parameters, prepared, version, fingerprint: OnceLock::new() }
    }

    /// The configuration.
    pub fn config(&self) -> &PolicyConfig {
        &self.shape.config
    }

    /// Where each tensor lies.
    pub fn layout(&self) -> &ParameterLayout {
        &self.shape.layout
    }

    /// How many updates these weights have seen.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The parameters, in the order of [`ParameterLayout`].
    pub fn values(&self, device: &D) -> Vec<f32> {
        let mut values = vec![0.0; self.shape.layout.length()];
        device.download(&self.parameters, 0, &mut values);
        values
    }

    /// SHA-256 of the parameters as little-endian f32 in the order of [`ParameterLayout`], in lower-case hex.
    pub fn sha256(&self, device: &D) -> String {
        let digest = Sha256::digest(f32_bytes(&self.values(device)));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// XXH3 of the same bytes as [`Self::sha256`], worked out once: at the speed of memory, for telling weights apart where nobody
    /// means harm.
    pub(crate) fn fingerprint(&self, device: &D) -> u128 {
        *self.fingerprint.get_or_init(|| {
            let mut hash = Xxh3::new();
            let add = |values: &[f32]| {
                hash.update(&f32_bytes(values));
                Ok::<_, std::convert::Infallible>(())
            };
            let Ok(()) = each_piece(device, &self.parameters, self.shape.layout.length(), add);
            hash.digest128()
        })
    }

    pub(crate) fn vector(&self, vector: Vector) -> Matrix<'_, D::Buffer> {
        Matrix::new(&self.parameters, vector.offset, 1, vector.length)
    }

    /// `[2, head_dim]`: what the heads of queries, and those of keys, are normalised with.
    pub(crate) fn head_norms(&self, norms: Vector) -> Matrix<'_, D::Buffer> {
        Matrix::new(&self.parameters, norms.offset, 2, norms.length / 2)
    }

    pub(crate) fn rotary(&self) -> Matrix<'_, D::Buffer> {
        let config = &self.shape.config;
        Matrix::new(&self.shape.rotary, 0, config.max_position_embeddings, config.head_dim)
    }
}

/// Angles `position . theta^(-2j / D)` (Su et al. 2021), worked out in 64 bits.
fn rotary_table(config: &PolicyConfig) -> Result<Vec<f32>, Error> {
    let half = config.head_dim / 2;
    let values = config.max_position_embeddings.saturating_mul(config.head_dim);
    let mut table = Vec::new();
    let reserved = table.try_reserve_exact(values);
    reserved.map_err(|refused| Error::HostMemory { values, reason: refused.to_string() })?;
    for position in 0..config.max_position_embeddings {
        let angle =
            |j: usize| position as f64 * config.rope_theta.powf(-(2.0 * j as f64) / config.head_dim as f64);
        table.extend((0..half).map(|j| angle(j).cos() as f32));
        table.extend((0..half).map(|j| angle(j).sin() as f32));
    }
    Ok(table)
}
