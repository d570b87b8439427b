//! A trainer's state as one safetensors payload: weights, both moments and the counters, exact to the bit.
//!
//! | tensor | type | what |
//! | --- | --- | --- |
//! | `parameters`, `first_moments`, `second_moments` | f32 `[parameters]` | flat, in the order of the parameter layout |
//! | `counters` | u64 `[2]` | the policy's version; the updates that the moments have seen |
//! | `config` | u64 `[10]` | the sizes of the configuration and the bits of its two numbers |
//!
//! Units in the gradient cache are not in it: [`Trainer::export_cache`] takes those out, or whoever restores a trainer
//! accumulates the open step anew.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::{Trainer, TrainerOptions};
use crate::device::Device;
use crate::error::Error;
use crate::policy::{Policy, PolicyConfig, f32_bytes};

const PARAMETERS: &str = "parameters";
const FIRST_MOMENTS: &str = "first_moments";
const SECOND_MOMENTS: &str = "second_moments";
const COUNTERS: &str = "counters";
const CONFIG: &str = "config";

impl<D: Device> Trainer<D> {
    /// The state after the last update, as bytes: the same state gives the same bytes.
    ///
    /// Of a device that has failed it is worthless: ask [`Device::check`] before it takes the place of an older one.
    pub fn state(&self) -> Vec<u8> {
        let length = self.policy.layout().length();
        let flat = |buffer: &D::Buffer| {
            let mut values = vec![0.0; length];
            self.device.download(buffer, 0, &mut values);
            f32_bytes(&values).into_owned()
        };
        let tensors = [
            (PARAMETERS, Dtype::F32, flat(&self.policy.parameters)),
            (FIRST_MOMENTS, Dtype::F32, flat(&self.first_moments)),
            (SECOND_MOMENTS, Dtype::F32, flat(&self.second_moments)),
            (COUNTERS, Dtype::U64, u64_bytes(&[self.version(), self.updates])),
            (CONFIG, Dtype::U64, u64_bytes(&fingerprint(self.policy.config()))),
        ];
        let views = tensors.iter().map(|(name, dtype, bytes)| {
            let shape = vec![bytes.len() / dtype.bitsize().div_ceil(8)];
            (*name, TensorView::new(*dtype, shape, bytes).expect("the shape was made from the bytes"))
        });
        safetensors::serialize(views, None).expect("names are distinct and shapes fit their bytes")
    }

    /// A trainer as it was when [`Self::state`] was called, with an empty cache.
    ///
    /// # Errors
    /// [`Error::Config`] if configuration or options are not valid, [`Error::Payload`] if the bytes are no safetensors,
    /// [`Error::Tensor`] if a tensor is missing, of another type or length, or of a policy of another configuration.
    pub fn restore(
        device: &D,
        config: &PolicyConfig,
        options: TrainerOptions,
        bytes: &[u8],
    ) -> Result<Self, Error> {
        config.validate()?;
        let payload =
            SafeTensors::deserialize(bytes).map_err(|error| Error::Payload { reason: error.to_string() })?;
        if u64_tensor(&payload, CONFIG)? != fingerprint(config) {
            let reason = "the state is of a policy with another configuration".into();
            return Err(Error::Tensor { name: CONFIG.into(), reason });
        }
        let [version, updates] = u64_tensor(&payload, COUNTERS)?;
        let policy = Policy::from_values(device, config, &f32_tensor(&payload, PARAMETERS)?, version)?;
        let mut trainer = Self::new(device, policy, options)?;
        let length = trainer.policy.layout().length();
        for (name, moments) in
            [(FIRST_MOMENTS, &mut trainer.first_moments), (SECOND_MOMENTS, &mut trainer.second_moments)]
        {
            let values = f32_tensor(&payload, name)?;
            if values.len() != length {
                let reason = format!("{} values, the configuration has {length}", values.len());
                return Err(Error::Tensor { name: name.into(), reason });
            }
            device.upload(&values, moments, 0);
        }
        device.check()?;
        trainer.updates = updates;
        Ok(trainer)
    }
}

/// The model type is not among them: it decides the number of parameters, so a state of the other one is refused by that.
fn fingerprint(config: &PolicyConfig) -> [u64; 10] {
    [
        config.vocab_size as u64,
        config.hidden_size as u64,
        config.intermediate_size as u64,
        config.num_hidden_layers as u64,
        config.num_attention_heads as u64,
        config.num_key_value_heads as u64,
        config.head_dim as u64,
        config.max_position_embeddings as u64,
        config.rope_theta.to_bits(),
        u64::from(config.rms_norm_eps.to_bits()),
    ]
}

fn u64_bytes(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn tensor<'a>(payload: &SafeTensors<'a>, name: &str, dtype: Dtype) -> Result<&'a [u8], Error> {
    let refuse = |reason: String| Error::Tensor { name: name.to_owned(), reason };
    let view = payload.tensor(name).map_err(|_| refuse("missing".into()))?;
    if view.dtype() == dtype { Ok(view.data()) } else { Err(refuse(format!("stored as {:?}", view.dtype()))) }
}

fn u64_tensor<const N: usize>(payload: &SafeTensors<'_>, name: &str) -> Result<[u64; N], Error> {
    let bytes = tensor(payload, name, Dtype::U64)?;
    let values: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
    let reason = format!("{} values instead of {N}", values.len());
    values.try_into().map_err(|_| Error::Tensor { name: name.to_owned(), reason })
}

fn f32_tensor(payload: &SafeTensors<'_>, name: &str) -> Result<Vec<f32>, Error> {
    let bytes = tensor(payload, name, Dtype::F32)?;
    Ok(bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect())
}
