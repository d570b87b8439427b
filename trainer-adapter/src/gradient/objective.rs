//! What the loss of a token is made of, and its derivative by the token's log-probability.
//!
//! All terms are functions of the token's log-probability `l` under the current weights, of what was recorded for the
//! token (`b` under the policy that sampled it, `f` under the reference policy) and of its row's advantage `A`. So the
//! whole loss reaches the model through one number a token, the derivative by `l` ([`Term::slope`]).

use crate::error::Error;

/// How a token's advantage becomes a loss. With `r = exp(l - b)`, the ratio of the current policy to the sampling one:
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum PolicyTerm {
    /// `-A l`: the score function (Williams 1992), right for rows sampled from the current weights. The default.
    #[default]
    Score,
    /// `-min(r A, clip(r, 1 - low, 1 + high) A)`: PPO's clipped surrogate (Schulman et al., *Proximal policy optimization
    /// algorithms*, 2017, equation 7), with two bounds as in DAPO (Yu et al. 2025, equation 10). Needs
    /// `behaviour_log_probs`.
    Clipped {
        /// How far below 1 the ratio may lie; in (0, 1]. PPO and GRPO: 0.2.
        low: f32,
        /// How far above 1 the ratio may lie; positive. PPO and GRPO: 0.2, DAPO: 0.28.
        high: f32,
    },
    /// `-min(r, cap) A l`, the factor held constant: truncated importance sampling (Espeholt et al., *IMPALA*, 2018,
    /// section 4.1; for rows from an inference engine Yao et al. 2025). Needs `behaviour_log_probs`.
    Truncated {
        /// The greatest weight; positive.
        cap: f32,
    },
    /// Both, where the weights that the update began with (`p`, [`proximal_log_probs`](super::Row::proximal_log_probs)) are neither
    /// those that sampled (`b`) nor, from the second step on, the current ones: `-min(exp(p - b), cap) min(r A, clip(r) A)` with
    /// `r = exp(l - p)` and the first factor constant. The clip bounds what an update changes, the cap what a difference between
    /// the sampling engine and the trainer weighs (Hilton et al., *Batch size-invariance for policy optimization*, 2022, section 3;
    /// Yao et al. 2025). Needs `behaviour_log_probs` and `proximal_log_probs`.
    ClippedTruncated {
        /// As in [`Self::Clipped`].
        low: f32,
        /// As in [`Self::Clipped`].
        high: f32,
        /// The greatest weight; positive.
        cap: f32,
    },
}

impl PolicyTerm {
    /// The bounds of DAPO: 0.2 below, 0.28 above.
    pub const CLIP_HIGHER: Self = Self::Clipped { low: 0.2, high: 0.28 };

    /// Whether the term is linear in the advantage only where the advantage's sign is known.
    pub(crate) fn is_clipped(self) -> bool {
        matches!(self, Self::Clipped { .. } | Self::ClippedTruncated { .. })
    }
}

/// The terms of a token's loss besides its entropy bonus.
///
/// Given to a trainer by [`crate::Trainer::with_objective`]. The default is the score function alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Objective {
    /// How advantages become a loss. Default [`PolicyTerm::Score`].
    pub policy_term: PolicyTerm,
    /// What `exp(f - l) - (f - l) - 1` is multiplied by: the estimate k3 of KL(current, reference) (Schulman, *Approximating
    /// KL divergence*, 2020), as in GRPO (Shao et al., *DeepSeekMath*, 2024, equation 4). Above 0 it needs
    /// `reference_log_probs`. Default 0.
    pub kl_coefficient: f32,
}

/// A loss and its derivative by the token's log-probability.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Term {
    pub(crate) loss: f32,
    pub(crate) slope: f32,
    /// Whether a bound decided.
    pub(crate) bounded: bool,
}

impl Objective {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Config`] names the first field with a value that cannot be trained with.
    pub fn validate(&self) -> Result<(), Error> {
        let positive = |value: f32| value.is_finite() && value > 0.0;
        let (low, high, cap) = match self.policy_term {
            PolicyTerm::Score => (1.0, 1.0, 1.0),
            PolicyTerm::Clipped { low, high } => (low, high, 1.0),
            PolicyTerm::Truncated { cap } => (1.0, 1.0, cap),
            PolicyTerm::ClippedTruncated { low, high, cap } => (low, high, cap),
        };
        let kl = self.kl_coefficient;
        let checks = [
            ("policy_term.low", low, positive(low) && low <= 1.0, "has to be in (0, 1]"),
            ("policy_term.high", high, positive(high), "has to be positive"),
            ("policy_term.cap", cap, positive(cap), "has to be positive"),
            ("kl_coefficient", kl, kl.is_finite() && kl >= 0.0, "has to be 0 or more"),
        ];
        match checks.into_iter().find(|&(.., valid, _)| !valid) {
            Some((field, value, _, reason)) => Err(Error::Config { field, value: value.to_string(), reason }),
            None => Ok(()),
        }
    }

    /// Whether rows have to have [`behaviour_log_probs`](super::Row::behaviour_log_probs).
    pub fn needs_behaviour(&self) -> bool {
        self.policy_term != PolicyTerm::Score
    }

    /// Whether rows have to have [`reference_log_probs`](super::Row::reference_log_probs).
    pub fn needs_reference(&self) -> bool {
        self.kl_coefficient > 0.0
    }

    /// Whether rows have to have [`proximal_log_probs`](super::Row::proximal_log_probs).
    pub fn needs_proximal(&self) -> bool {
        matches!(self.policy_term, PolicyTerm::ClippedTruncated { .. })
    }

    /// What the advantage of a token is multiplied by whatever the current weights are, and whether a bound decided that.
    pub(crate) fn importance(&self, behaviour: f32, proximal: f32) -> (f32, bool) {
        match self.policy_term {
            PolicyTerm::ClippedTruncated { cap, .. } => {
                let weight = (proximal - behaviour).exp();
                (weight.min(cap), weight > cap)
            }
            _ => (1.0, false),
        }
    }

    /// The policy term of a token, its advantage multiplied by its [`importance`](Self::importance). `sampled` is the log-probability
    /// that the current one is compared with.
    pub(crate) fn policy(&self, advantage: f32, log_prob: f32, sampled: f32) -> Term {
        let term = self.policy_of(advantage, log_prob, sampled);
        // Nothing, also where the ratio is infinite and the product no number.
        if advantage == 0.0 { Term { loss: 0.0, slope: 0.0, ..term } } else { term }
    }

    fn policy_of(&self, advantage: f32, log_prob: f32, sampled: f32) -> Term {
        match self.policy_term {
            PolicyTerm::Score => Term { loss: -advantage * log_prob, slope: -advantage, bounded: false },
            PolicyTerm::Clipped { low, high } | PolicyTerm::ClippedTruncated { low, high, .. } => {
                let ratio = (log_prob - sampled).exp();
                let clipped = ratio.clamp(1.0 - low, 1.0 + high);
                let bounded = clipped * advantage < ratio * advantage;
                let slope = if bounded { 0.0 } else { -ratio * advantage };
                Term { loss: -(ratio * advantage).min(clipped * advantage), slope, bounded }
            }
            PolicyTerm::Truncated { cap } => {
                let ratio = (log_prob - sampled).exp();
                let factor = ratio.min(cap) * advantage;
                Term { loss: -factor * log_prob, slope: -factor, bounded: ratio > cap }
            }
        }
    }

    /// The KL term of a token, before its coefficient: `d/dl (exp(f - l) - (f - l) - 1) = 1 - exp(f - l)`.
    pub(crate) fn kl(log_prob: f32, reference: f32) -> Term {
        let difference = reference - log_prob;
        // exp_m1 keeps the digits where the two policies are close.
        let excess = difference.exp_m1();
        Term { loss: excess - difference, slope: -excess, bounded: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FX-30: each slope is the derivative of its loss, by finite differences in 64 bits of the formulas in the docs.
    #[test]
    fn slopes_are_derivatives_of_the_written_formulas() {
        let (b, f, h) = (-1.3_f64, -0.9_f64, 1e-6);
        for l in [-2.5_f64, -1.4, -1.3, -1.15, -0.4] {
            for a in [-1.7_f64, 0.8] {
                let clipped = |l: f64| -((l - b).exp() * a).min((l - b).exp().clamp(0.8, 1.28) * a);
                let held = (l - b).exp().min(2.0);
                let truncated = |l: f64| -held * a * l;
                let kl = |l: f64| (f - l).exp() - (f - l) - 1.0;
                let objective = |policy_term| Objective { policy_term, ..Objective::default() };
                let cap = PolicyTerm::Truncated { cap: 2.0 };
                let cases: [(Term, &dyn Fn(f64) -> f64); 4] = [
                    (objective(PolicyTerm::Score).policy(a as f32, l as f32, b as f32), &|l| -a * l),
                    (objective(PolicyTerm::CLIP_HIGHER).policy(a as f32, l as f32, b as f32), &clipped),
                    (objective(cap).policy(a as f32, l as f32, b as f32), &truncated),
                    (Objective::kl(l as f32, f as f32), &kl),
                ];
                for (index, (term, loss)) in cases.into_iter().enumerate() {
                    let slope = (loss(l + h) - loss(l - h)) / (2.0 * h);
                    assert!((f64::from(term.loss) - loss(l)).abs() < 1e-6, "case {index}, l {l}, a {a}");
                    assert!(
                        (f64::from(term.slope) - slope).abs() < 2e-6,
                        "case {index}, l {l}, a {a}: {slope}"
                    );
                }
            }
        }
    }

    /// SP-B10: bounds of 0.2 and 0.28. A good token above its bound and a bad one below its bound teach nothing more; the
    /// other two go on.
    #[test]
    fn the_clip_stops_only_what_has_gone_far_enough() {
        let objective = Objective { policy_term: PolicyTerm::CLIP_HIGHER, ..Objective::default() };
        let slope = |advantage: f32, ratio: f32| objective.policy(advantage, ratio.ln(), 0.0);
        let cases = [
            (1.0, 1.27, false),
            (1.0, 1.29, true),
            (1.0, 0.5, false),
            (-1.0, 0.81, false),
            (-1.0, 0.79, true),
            (-1.0, 1.5, false),
            (0.0, 1.5, false),
        ];
        for (advantage, ratio, stopped) in cases {
            let term = slope(advantage, ratio);
            assert_eq!(term.bounded, stopped, "advantage {advantage}, ratio {ratio}");
            let expected = if stopped { 0.0 } else { -ratio * advantage };
            assert!((term.slope - expected).abs() < 1e-6);
        }
    }
}
