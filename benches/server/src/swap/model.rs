//! What is swapped: the reference policy in two sizes, and micro-batches for it.

use std::io::Read;

use forebay::trainer::process_group::{
    BatchRow, BatchUnit, ClaimId, MicroBatch, RankPlace, Recipe, RecipeError,
};
use forebay::trainer::{CpuDevice, Policy, PolicyConfig, Trainer, TrainerOptions};

/// What a layer of the large model has, about.
pub(super) const LAYER_PARAMETERS: u64 = 3_146_000;

/// The name of the large model with so many layers.
pub(super) fn layers(count: u64) -> String {
    format!("layers:{count}")
}

pub(super) fn config(size: &str) -> PolicyConfig {
    let small = PolicyConfig::small(300);
    let large = |num_hidden_layers| PolicyConfig {
        hidden_size: 512,
        intermediate_size: 1_536,
        num_hidden_layers,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 64,
        vocab_size: 4_096,
        ..PolicyConfig::small(300)
    };
    if let Some(count) = size.strip_prefix("layers:").and_then(|count| count.parse().ok()) {
        return large(count);
    }
    match size {
        "large" => large(6),
        "tiny" => PolicyConfig { num_hidden_layers: 1, ..small },
        _ => small,
    }
}

pub(super) struct BenchRecipe(pub(super) PolicyConfig);

impl Recipe for BenchRecipe {
    type Device = CpuDevice;

    fn open_device(&mut self, _place: &RankPlace) -> Result<CpuDevice, RecipeError> {
        Ok(CpuDevice::inline())
    }

    fn create(&mut self, device: &CpuDevice) -> Result<Trainer<CpuDevice>, RecipeError> {
        let policy = Policy::initialise(device, &self.0, 7)?;
        Ok(Trainer::new(device, policy, TrainerOptions::default())?)
    }

    fn restore(
        &mut self,
        device: &CpuDevice,
        state: &mut dyn Read,
    ) -> Result<Trainer<CpuDevice>, RecipeError> {
        Ok(Trainer::restore_from(device, &self.0, TrainerOptions::default(), state)?)
    }
}

/// A group of four rows at a place, for a version of the policy.
pub(super) fn batch(position: usize, version: u64) -> MicroBatch {
    let row = |member: u32| {
        let response: Vec<u32> = (0..16).map(|at| (at * 7 + member * 3 + position as u32) % 290).collect();
        let advantage = f32::from(member as u16) - 1.5;
        BatchRow { prompt: (10..42).collect(), response, advantage, weight: 1.0, ..BatchRow::default() }
    };
    let unit = BatchUnit { position, policy: "policy".into(), version, rows: (0..4).map(row).collect() };
    MicroBatch { claim: ClaimId(format!("claim-{version}-{position}")), units: vec![unit] }
}
