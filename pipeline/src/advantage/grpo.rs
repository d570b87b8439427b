//! Group-relative advantages (GRPO).

use crate::error::{Cause, Result};

/// What centred rewards are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The group's standard deviation with this many degrees of freedom taken off (0 population, 1 sample), plus
    /// epsilon.
    StandardDeviation {
        /// 0 or 1.
        ddof: u32,
    },
    /// Nothing: centred rewards as they are (Dr. GRPO, Liu et al., 2025).
    None,
}

/// `advantage = (reward - mean) / (std + epsilon)` over the members of one group (Shao et al., "DeepSeekMath", 2024).
///
/// A group whose rewards are all equal has no spread and all its advantages are exactly 0, whatever epsilon is, so that
/// it teaches nothing. A single member has no group to be compared with and gets 0 too.
///
/// ```
/// use forebay_pipeline::advantage::Grpo;
/// let advantages = Grpo::default().advantages(&[1.0, 0.0, 0.0, 1.0])?;
/// assert!((advantages[0] - 1.0).abs() < 1e-5 && (advantages[1] + 1.0).abs() < 1e-5);
/// assert_eq!(Grpo::default().advantages(&[0.1, 0.1])?, [0.0, 0.0]);
/// # Ok::<(), forebay_pipeline::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grpo {
    /// Default: population standard deviation.
    pub scale: Scale,
    /// Keeps a small spread from blowing up. Default: 1e-6.
    pub epsilon: f64,
}

impl Default for Grpo {
    fn default() -> Self {
        Grpo { scale: Scale::StandardDeviation { ddof: 0 }, epsilon: 1e-6 }
    }
}

impl Grpo {
    /// The advantages of a group, in the order of its rewards. Sums run in that order, in f64, so equal rewards in equal
    /// order give equal bits.
    ///
    /// # Errors
    /// `input` when a reward is not finite: a reward function that failed must not look like a reward of 0.
    pub fn advantages(&self, rewards: &[f64]) -> Result<Vec<f64>> {
        if let Some(found) = rewards.iter().find(|reward| !reward.is_finite()) {
            let reason =
                format!("{found} is not a finite number; exclude the sample with its reason instead");
            return Err(Cause::Argument { what: "reward", reason }.into());
        }
        // Exact comparison: rounding in the mean would give equal rewards a tiny spread.
        if rewards.iter().all(|reward| Some(reward) == rewards.first()) {
            return Ok(vec![0.0; rewards.len()]);
        }
        let count = rewards.len() as f64;
        let mean = rewards.iter().sum::<f64>() / count;
        let scale = match self.scale {
            Scale::None => 1.0,
            Scale::StandardDeviation { ddof } => {
                let squares: f64 = rewards.iter().map(|reward| (reward - mean) * (reward - mean)).sum();
                (squares / (count - f64::from(ddof))).sqrt() + self.epsilon
            }
        };
        Ok(rewards.iter().map(|reward| (reward - mean) / scale).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn golden_numbers_of_each_convention() {
        let population = Grpo::default();
        let sample = Grpo { scale: Scale::StandardDeviation { ddof: 1 }, ..population };
        let centred = Grpo { scale: Scale::None, ..population };
        let rewards = [1.0, 0.0, 0.5, 0.0];
        // numpy: (r - r.mean()) / (r.std(ddof=d) + 1e-6)
        let cases = [
            (population, [1.507_553_086_5, -0.904_531_851_9, 0.301_510_617_3, -0.904_531_851_9]),
            (sample, [1.305_579_692_4, -0.783_347_815_4, 0.261_115_938_5, -0.783_347_815_4]),
            (centred, [0.625, -0.375, 0.125, -0.375]),
        ];
        for (estimator, golden) in cases {
            for (found, expected) in estimator.advantages(&rewards).unwrap().iter().zip(golden) {
                assert!((found - expected).abs() < 1e-8, "{estimator:?}: {found} {expected}");
            }
        }
    }

    // AW-13
    #[test]
    fn a_group_without_spread_teaches_nothing_and_is_never_nan() {
        for rewards in [vec![], vec![1.0], vec![0.1; 7], vec![0.0; 8], vec![-3.5; 2]] {
            for epsilon in [1e-6, 0.0] {
                let grpo = Grpo { epsilon, ..Grpo::default() };
                assert_eq!(grpo.advantages(&rewards).unwrap(), vec![0.0; rewards.len()]);
            }
        }
    }

    // FX-97: a reward function that failed is no reward at all
    #[test]
    fn a_reward_that_is_not_a_number_is_refused() {
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(Grpo::default().advantages(&[0.0, bad]).is_err());
        }
    }

    // AW-12, FX-37: the mean of half a group is another mean
    #[test]
    fn half_a_group_has_other_advantages() {
        let whole = Grpo::default().advantages(&[1.0, 1.0, 0.0, 0.0]).unwrap();
        let half = Grpo::default().advantages(&[1.0, 1.0]).unwrap();
        assert_ne!(whole[..2], half[..]);
    }
}
