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

/// What the one member of a group of one gets: there is nothing that it could be compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Single {
    /// 0: it teaches nothing. The default.
    #[default]
    Zero,
    /// Its reward, as if the mean were 0 and the deviation 1 (AgentJet).
    Reward,
    /// An error: groups of one are not meant (SAPO).
    Refuse,
}

/// `advantage = (reward - mean) / (std + epsilon)` over the members of one group (Shao et al., "DeepSeekMath", 2024).
///
/// A group whose rewards are all equal has no spread and all its advantages are exactly 0, whatever epsilon is, so that
/// it teaches nothing. What a single member gets is [`Grpo::single`].
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
    /// What a group of one gets. Default: 0.
    pub single: Single,
}

impl Default for Grpo {
    fn default() -> Self {
        Grpo { scale: Scale::StandardDeviation { ddof: 0 }, epsilon: 1e-6, single: Single::Zero }
    }
}

impl Grpo {
    /// The advantages of a group, in the order of its rewards. Sums run in that order, in f64, so equal rewards in equal
    /// order give equal bits.
    ///
    /// # Errors
    /// `input` when a reward is not finite: a reward function that failed must not look like a reward of 0; or when the group
    /// has one member and [`Single::Refuse`] is chosen.
    pub fn advantages(&self, rewards: &[f64]) -> Result<Vec<f64>> {
        self.against(rewards, rewards)
    }

    /// The advantages of `rewards` beside the mean and the deviation of `compared`.
    pub(super) fn against(&self, rewards: &[f64], compared: &[f64]) -> Result<Vec<f64>> {
        if let Some(found) = rewards.iter().find(|reward| !reward.is_finite()) {
            let reason =
                format!("{found} is not a finite number; exclude the sample with its reason instead");
            return Err(Cause::Argument { what: "reward", reason }.into());
        }
        if compared.len() == 1 {
            return self.alone(rewards);
        }
        // Exact comparison: rounding in the mean would give equal rewards a tiny spread.
        if compared.iter().all(|reward| Some(reward) == compared.first()) {
            return Ok(vec![0.0; rewards.len()]);
        }
        let count = compared.len() as f64;
        let mean = compared.iter().sum::<f64>() / count;
        let scale = match self.scale {
            Scale::None => 1.0,
            Scale::StandardDeviation { ddof } => {
                let squares: f64 = compared.iter().map(|reward| (reward - mean) * (reward - mean)).sum();
                (squares / (count - f64::from(ddof))).sqrt() + self.epsilon
            }
        };
        Ok(rewards.iter().map(|reward| (reward - mean) / scale).collect())
    }

    fn alone(&self, rewards: &[f64]) -> Result<Vec<f64>> {
        match self.single {
            Single::Zero => Ok(vec![0.0; rewards.len()]),
            Single::Reward => Ok(rewards.to_vec()),
            Single::Refuse => {
                let reason = "it has one member and nothing to be compared with; sample at least 2".into();
                Err(Cause::Argument { what: "group", reason }.into())
            }
        }
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

    // AJ-B27: ddof 1, epsilon 1e-6, and a group of one keeps its reward
    #[test]
    fn a_group_of_one_keeps_its_reward_where_agentjet_says_so() {
        let agentjet =
            Grpo { scale: Scale::StandardDeviation { ddof: 1 }, single: Single::Reward, ..Grpo::default() };
        assert_eq!(agentjet.advantages(&[0.7]).unwrap(), [0.7]);
        assert_eq!(Grpo::default().advantages(&[0.7]).unwrap(), [0.0]);
        // numpy: r = array([1, 0, 0, 1, 1]); (r - r.mean()) / (r.std(ddof=1) + 1e-6)
        let golden = [0.730_295_410_0, -1.095_443_115_1, -1.095_443_115_1, 0.730_295_410_0, 0.730_295_410_0];
        for (found, expected) in agentjet.advantages(&[1.0, 0.0, 0.0, 1.0, 1.0]).unwrap().iter().zip(golden) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }

    // SP-B10: epsilon 1e-8, and a group of one is an error
    #[test]
    fn a_group_of_one_is_refused_where_sapo_says_so() {
        let sapo =
            Grpo { scale: Scale::StandardDeviation { ddof: 1 }, epsilon: 1e-8, single: Single::Refuse };
        let refused = sapo.advantages(&[1.0]).unwrap_err();
        assert!(refused.to_string().contains("one member"), "{refused}");
        // numpy: r = array([1, 0]); (r - r.mean()) / (r.std(ddof=1) + 1e-8)
        for (found, expected) in
            sapo.advantages(&[1.0, 0.0]).unwrap().iter().zip([0.707_106_771_2, -0.707_106_771_2])
        {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
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
