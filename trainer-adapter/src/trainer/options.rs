//! How a policy is trained: plain data.

use super::adamw::AdamW;
use super::passes::Passes;
use crate::error::Error;
use crate::gradient::LossForm;

/// How a policy is trained.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainerOptions {
    /// Name of the policy: units of any other are refused. Default `policy`.
    pub policy: String,
    /// The optimiser.
    pub adamw: AdamW,
    /// Greatest norm of the step's gradient, over all parameters; a longer one is scaled down to it. Infinity turns
    /// clipping off. Default 1.
    pub clip_norm: f64,
    /// What the loss is divided by. Default [`LossForm::TokenMean`].
    pub loss_form: LossForm,
    /// What the entropy at each token is rewarded with. Default 0.
    pub entropy_coefficient: f32,
    /// How often an update goes over its rows, and in how many steps. Default: once, in one step.
    pub passes: Passes,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            policy: "policy".into(),
            adamw: AdamW::default(),
            clip_norm: 1.0,
            loss_form: LossForm::default(),
            entropy_coefficient: 0.0,
            passes: Passes::default(),
        }
    }
}

impl TrainerOptions {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] names the first field with a value that cannot be trained with.
    pub fn validate(&self) -> Result<(), Error> {
        let AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } = self.adamw;
        let at_least_zero = |value: f64| value.is_finite() && value >= 0.0;
        let in_32_bits = |value: f64| (value as f32).is_finite();
        let decays = at_least_zero(weight_decay) && in_32_bits(learning_rate * weight_decay);
        let entropy = f64::from(self.entropy_coefficient);
        let length =
            if let LossForm::ConstantLength(length) = self.loss_form { f64::from(length) } else { 1.0 };
        let Passes { epochs, mini_batch_units } = self.passes;
        let at_least_one = "has to be at least 1";
        let checks = [
            (
                "learning_rate",
                learning_rate,
                at_least_zero(learning_rate) && in_32_bits(learning_rate),
                "has to be 0 or more, and finite in 32 bits",
            ),
            ("beta1", beta1, (0.0..1.0).contains(&beta1), "has to be in [0, 1)"),
            ("beta2", beta2, (0.0..1.0).contains(&beta2), "has to be in [0, 1)"),
            (
                "epsilon",
                epsilon,
                in_32_bits(epsilon) && epsilon as f32 > 0.0,
                "has to be positive, in 32 bits too",
            ),
            (
                "weight_decay",
                weight_decay,
                decays,
                "has to be 0 or more, and finite in 32 bits times the learning rate",
            ),
            ("clip_norm", self.clip_norm, self.clip_norm > 0.0, "has to be positive"),
            ("entropy_coefficient", entropy, entropy.is_finite(), "has to be finite"),
            ("loss_form.constant_length", length, length > 0.0, "has to be positive"),
            ("passes.epochs", f64::from(epochs), epochs > 0, at_least_one),
            ("passes.mini_batch_units", mini_batch_units as f64, mini_batch_units > 0, at_least_one),
        ];
        match checks.into_iter().find(|&(.., valid, _)| !valid) {
            Some((field, value, _, reason)) => Err(Error::Config { field, value: value.to_string(), reason }),
            None => Ok(()),
        }
    }
}
