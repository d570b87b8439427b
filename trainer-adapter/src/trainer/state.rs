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

use std::collections::BTreeMap;
use std::io::Read;

use safetensors::Dtype;

use super::stream::{FlatStream, Incoming, Run};
use super::{Trainer, TrainerOptions};
use crate::device::Device;
use crate::error::Error;
use crate::policy::{ParameterLayout, Policy, PolicyConfig};

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
        self.state_stream().to_vec()
    }

    /// The same bytes, for whoever writes them somewhere straight from where they lie.
    ///
    /// ```
    /// use forebay_trainer_adapter::{CpuDevice, Policy, PolicyConfig, Trainer, TrainerOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (device, config) = (CpuDevice::inline(), PolicyConfig::small(300));
    /// let trainer = Trainer::new(&device, Policy::initialise(&device, &config, 7)?, TrainerOptions::default())?;
    /// let mut file = Vec::new();
    /// trainer.state_stream().write(&mut file)?;
    /// assert_eq!(file, trainer.state());
    /// let again = Trainer::restore_from(&device, &config, TrainerOptions::default(), &mut &file[..])?;
    /// assert_eq!(again.weights_sha256(), trainer.weights_sha256());
    /// # Ok(())
    /// # }
    /// ```
    pub fn state_stream(&self) -> FlatStream<'_, D> {
        let length = self.policy.layout().length();
        let runs = vec![
            Run::buffer(PARAMETERS, &self.policy.parameters, length),
            Run::buffer(FIRST_MOMENTS, &self.first_moments, length),
            Run::buffer(SECOND_MOMENTS, &self.second_moments, length),
            Run::words(COUNTERS, &[self.version(), self.updates]),
            Run::words(CONFIG, &fingerprint(self.policy.config())),
        ];
        FlatStream::new(&self.device, runs)
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
        Self::restore_from(device, config, options, &mut &*bytes)
    }

    /// The same from a stream, which is read to its end: each value goes into the device's memory as it comes.
    ///
    /// # Errors
    /// As [`Self::restore`]; [`Error::Payload`] also if the stream fails or ends early.
    pub fn restore_from(
        device: &D,
        config: &PolicyConfig,
        options: TrainerOptions,
        from: &mut dyn Read,
    ) -> Result<Self, Error> {
        config.validate()?;
        let length = ParameterLayout::new(config).length();
        let mut incoming = Incoming::open(from)?;
        let (mut words, mut buffers) = (BTreeMap::new(), BTreeMap::new());
        while let Some(head) = incoming.next() {
            if [PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS].contains(&head.name.as_str()) {
                let buffer = incoming.buffer(device, &head, length, "configuration")?;
                buffers.insert(head.name, buffer);
                continue;
            }
            let bytes = incoming.bytes(&head)?;
            if head.name == CONFIG {
                check_config(config, head.dtype, &bytes)?;
            }
            words.insert(head.name, (head.dtype, bytes));
        }
        incoming.finish()?;
        if !words.contains_key(CONFIG) {
            return Err(missing(CONFIG));
        }
        let (dtype, bytes) = words.remove(COUNTERS).ok_or_else(|| missing(COUNTERS))?;
        let [version, updates] = u64_words(COUNTERS, dtype, &bytes)?;
        let mut buffer = |name: &str| buffers.remove(name).ok_or_else(|| missing(name));
        let policy = Policy::from_buffer(device, config, buffer(PARAMETERS)?, version)?;
        let moments = (buffer(FIRST_MOMENTS)?, buffer(SECOND_MOMENTS)?);
        let mut trainer = Self::with_moments(device, policy, options, moments)?;
        trainer.updates = updates;
        Ok(trainer)
    }
}

fn missing(name: &str) -> Error {
    Error::Tensor { name: name.to_owned(), reason: "missing".into() }
}

/// A state begins with it, so nothing of another one is read into the device's memory.
fn check_config(config: &PolicyConfig, dtype: Dtype, bytes: &[u8]) -> Result<(), Error> {
    if u64_words(CONFIG, dtype, bytes)? == fingerprint(config) {
        return Ok(());
    }
    let reason = "the state is of a policy with another configuration".into();
    Err(Error::Tensor { name: CONFIG.into(), reason })
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

fn u64_words<const N: usize>(name: &str, dtype: Dtype, bytes: &[u8]) -> Result<[u64; N], Error> {
    let refuse = |reason: String| Error::Tensor { name: name.to_owned(), reason };
    if dtype != Dtype::U64 {
        return Err(refuse(format!("stored as {dtype:?}")));
    }
    let values: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
    let reason = format!("{} values instead of {N}", values.len());
    values.try_into().map_err(|_| refuse(reason))
}
