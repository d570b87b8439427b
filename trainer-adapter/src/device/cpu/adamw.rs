//! One AdamW update over flat buffers.

use super::simd::vectorised;
use crate::device::AdamWStep;

vectorised! {
    // Loshchilov and Hutter 2019, algorithm 2, with the decay scaled by the learning rate as PyTorch does.
    pub(super) fn update<'a>(
        step: &'a AdamWStep,
        gradient: &'a [f32],
        parameters: &'a mut [f32],
        first_moments: &'a mut [f32],
        second_moments: &'a mut [f32],
    ) {
        let moments = first_moments.iter_mut().zip(second_moments.iter_mut());
        for ((&g, parameter), (m, v)) in gradient.iter().zip(parameters.iter_mut()).zip(moments) {
            let g = g * step.gradient_scale;
            *m = step.beta1 * *m + step.one_minus_beta1 * g;
            *v = step.beta2 * *v + step.one_minus_beta2 * (g * g);
            let root = v.sqrt() * step.second_scale + step.epsilon;
            *parameter = *parameter * step.keep - step.rate * *m / root;
        }
    }
}
