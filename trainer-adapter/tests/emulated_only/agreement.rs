//! The kernels against the processor's arithmetic.

use forebay_trainer_adapter::device::cuda::ProductType;
use forebay_trainer_adapter::{CpuDevice, Device, ModelType, Policy, PolicyConfig, Trainer, Unit};

use crate::emulation::emulated;
use crate::operations;
use crate::suite::common::{Row, gradient_options, ragged_configs, random_groups, recorded, sequences};

/// The largest difference, relative to the largest expected value.
fn apart(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(0.0, |scale: f32, value| scale.max(value.abs()));
    let largest = found.iter().zip(expected).map(|(a, b)| {
        assert!(a.is_finite() && b.is_finite(), "{a} against {b}");
        (a - b).abs()
    });
    f64::from(largest.fold(0.0, f32::max)) / f64::from(scale)
}

/// Every operation on random data, to 1e-4 of the largest value; products with bfloat16 factors to 2e-2.
#[test]
fn every_operation_agrees_with_the_processor() {
    for (products, tolerance) in [(ProductType::Float32, 1e-4), (ProductType::Bfloat16, 2e-2)] {
        let (cpu, cuda) = (CpuDevice::inline(), emulated(products));
        for ((name, on_cpu), (_, on_cuda)) in operations::all().into_iter().zip(operations::all()) {
            for seed in [1, 100] {
                let error = apart(&on_cuda(&cuda, seed), &on_cpu(&cpu, seed));
                let rounds = matches!(name, "products" | "linear");
                let limit = if rounds { tolerance } else { 1e-4 };
                assert!(error <= limit, "{name}, {products:?}, seed {seed}: {error:.1e}");
                // Rounded factors show: otherwise nothing was rounded.
                assert!(products == ProductType::Float32 || !rounds || error > 1e-4, "{name}: {error:.1e}");
            }
        }
    }
}

/// The gradient of a step over ragged groups, on a device.
fn gradient<D: Device>(device: &D, config: &PolicyConfig, groups: &[Vec<Row>]) -> Vec<f32> {
    let policy = Policy::initialise(device, config, 3).unwrap();
    let mut trainer = Trainer::new(device, policy, gradient_options(Default::default(), 0.01)).unwrap();
    for (position, rows) in groups.iter().enumerate() {
        let rows = sequences(rows);
        trainer.accumulate(&Unit { position, policy: "policy", version: 0, rows: &rows }).unwrap();
    }
    trainer.apply().unwrap();
    let state = trainer.state();
    let payload = safetensors::SafeTensors::deserialize(&state).unwrap();
    let moments = payload.tensor("first_moments").unwrap();
    moments.data().as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

/// Whole gradients, to 1e-4: of a shape whose weights are large, so that every error grows.
#[test]
fn gradients_agree_with_those_of_the_processor() {
    let mut groups = random_groups(23, 2, 3, 37);
    recorded(&mut groups, 5);
    for config in ragged_configs() {
        let expected = gradient(&CpuDevice::inline(), &config, &groups);
        let error = apart(&gradient(&emulated(ProductType::Float32), &config, &groups), &expected);
        assert!(error <= 1e-4, "{:?}: {error:.1e}", config.model_type);
    }
}

/// With factors rounded to bfloat16, to 2e-2: of weights as they are initialised. Where weights are as large as in the test
/// above, rounding alone is worth 5e-2.
#[test]
fn gradients_of_rounded_factors_agree_with_those_of_the_processor() {
    let mut groups = random_groups(23, 2, 3, 37);
    recorded(&mut groups, 5);
    for model_type in [ModelType::Qwen2, ModelType::Qwen3] {
        let config = PolicyConfig { model_type, ..PolicyConfig::small(37) };
        let expected = gradient(&CpuDevice::inline(), &config, &groups);
        let error = apart(&gradient(&emulated(ProductType::Bfloat16), &config, &groups), &expected);
        assert!((1e-5..=2e-2).contains(&error), "{model_type:?}: {error:.1e}");
    }
}
