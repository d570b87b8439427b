//! The optimiser's numbers.

use crate::device::AdamWStep;

/// AdamW (Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019), as PyTorch computes it.
///
/// `m = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g^2`, then
/// `w = w (1 - learning_rate weight_decay) - learning_rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)`.
/// The decay works on every parameter alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Step length. Default 3e-4.
    pub learning_rate: f64,
    /// Decay of the first moment, in [0, 1). Default 0.9.
    pub beta1: f64,
    /// Decay of the second moment, in [0, 1). Default 0.99.
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-8.
    pub epsilon: f64,
    /// Share of a parameter, times the step length, that each update takes away. Default 0.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { learning_rate: 3e-4, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamW {
    /// The factors of update `t` (from 1) of gradients that are scaled by `gradient_scale`, worked out in 64 bits.
    pub fn step(&self, t: u64, gradient_scale: f64) -> AdamWStep {
        let Self { learning_rate, beta1, beta2, epsilon, weight_decay } = *self;
        let t = t as f64;
        AdamWStep {
            gradient_scale: gradient_scale as f32,
            rate: (learning_rate / (1.0 - beta1.powf(t))) as f32,
            keep: (1.0 - learning_rate * weight_decay) as f32,
            beta1: beta1 as f32,
            one_minus_beta1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            one_minus_beta2: (1.0 - beta2) as f32,
            second_scale: (1.0 / (1.0 - beta2.powf(t)).sqrt()) as f32,
            epsilon: epsilon as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{CpuDevice, Device};

    /// Five updates of three parameters, by a Python script in 64 bits that follows the formulas of the paper.
    #[test]
    fn updates_are_those_of_a_64_bit_script() {
        let gradients =
            [[0.1, -0.2, 0.0], [0.3, 0.1, 1e-4], [-0.2, 0.05, -1e-4], [0.0, 0.0, 0.0], [1.0, -1.0, 0.5]];
        let expected = [
            [0.989_000_001, -1.988_000_001, 0.499_500_000],
            [0.978_849_750, -1.983_345_006, 0.491_576_949],
            [0.975_294_339, -1.980_745_780, 0.491_536_123],
            [0.972_203_671, -1.978_259_391, 0.491_414_650],
            [0.965_539_333, -1.970_912_858, 0.485_517_303],
        ];
        let options = AdamW { learning_rate: 0.01, weight_decay: 0.1, ..AdamW::default() };
        let device = CpuDevice::inline();
        let [mut parameters, mut first, mut second, mut gradient] = [(); 4].map(|()| device.allocate(3));
        device.upload(&[1.0, -2.0, 0.5], &mut parameters, 0);
        for (t, (values, expected)) in (1..).zip(gradients.iter().zip(expected)) {
            device.upload(&values.map(|value: f32| value * 4.0), &mut gradient, 0);
            device.adamw(&options.step(t, 0.25), &gradient, &mut parameters, &mut first, &mut second);
            let mut found = [0.0; 3];
            device.download(&parameters, 0, &mut found);
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (f64::from(*found) - expected).abs() < 5e-7,
                    "update {t}: {found} against {expected}"
                );
            }
        }
    }
}
