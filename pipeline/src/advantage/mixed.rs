//! Rewards of the team mixed with those of the agent (AT-GRPO of PettingLLMs).

use super::Grpo;
use crate::error::{Cause, Result};

/// `reward = alpha * global + local`: what the team reached, beside what the agent itself did.
///
/// Both stay in the store as columns of their own and are mixed when they are read: another alpha needs no other rows.
///
/// ```
/// use forebay_pipeline::advantage::{Grpo, Mixed, Scale};
/// let mixed = Mixed { alpha: 0.5 };
/// assert_eq!(mixed.rewards(&[1.0, 0.0], &[0.25, 1.0])?, [0.75, 1.0]);
/// let centred = Grpo { scale: Scale::None, ..Grpo::default() };
/// assert_eq!(mixed.advantages(&centred, &[1.0, 0.0], &[0.25, 1.0])?, [-0.125, 0.125]);
/// # Ok::<(), forebay_pipeline::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixed {
    /// What the team's reward is multiplied by. Default: 1.
    pub alpha: f64,
}

impl Default for Mixed {
    fn default() -> Self {
        Mixed { alpha: 1.0 }
    }
}

impl Mixed {
    /// The mixed rewards of samples, in their order.
    ///
    /// # Errors
    /// `input` when there are not as many of one as of the other, or alpha or a reward is not finite.
    pub fn rewards(&self, global: &[f64], local: &[f64]) -> Result<Vec<f64>> {
        if global.len() != local.len() {
            let reason = format!("{} of the team for {} of the agent", global.len(), local.len());
            return Err(Cause::Argument { what: "rewards", reason }.into());
        }
        for (what, numbers) in
            [("alpha", &[self.alpha][..]), ("global reward", global), ("local reward", local)]
        {
            if let Some(found) = numbers.iter().find(|number| !number.is_finite()) {
                let reason =
                    format!("{found} is not a finite number; exclude the sample with its reason instead");
                return Err(Cause::Argument { what, reason }.into());
            }
        }
        Ok(global.iter().zip(local).map(|(global, local)| self.alpha * global + local).collect())
    }

    /// The advantages of a group by its mixed rewards.
    ///
    /// # Errors
    /// As [`rewards`](Self::rewards) and [`Grpo::advantages`].
    pub fn advantages(&self, estimator: &Grpo, global: &[f64], local: &[f64]) -> Result<Vec<f64>> {
        estimator.advantages(&self.rewards(global, local)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::Scale;
    use super::*;

    // PL-B06: by hand, with alpha 1/2: rewards 1/2, 0, 3/2, 1; mean 3/4; variance 5/16
    #[test]
    fn global_and_local_rewards_are_mixed_as_they_are_read() {
        let (global, local) = ([1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]);
        let half = Mixed { alpha: 0.5 };
        assert_eq!(half.rewards(&global, &local).unwrap(), [0.5, 0.0, 1.5, 1.0]);
        let centred = Grpo { scale: Scale::None, ..Grpo::default() };
        assert_eq!(half.advantages(&centred, &global, &local).unwrap(), [-0.25, -0.75, 0.75, 0.25]);
        let scaled = half.advantages(&Grpo { epsilon: 0.0, ..Grpo::default() }, &global, &local).unwrap();
        for (found, quarters) in scaled.iter().zip([-1.0, -3.0, 3.0, 1.0]) {
            assert!((found - quarters / 5.0_f64.sqrt()).abs() < 1e-12, "{found}"); // a quarter over sqrt(5)/4
        }
        // The same rows under another alpha: the team alone decides the order.
        let team = Mixed { alpha: 4.0 }.advantages(&centred, &global, &local).unwrap();
        assert_eq!(team, [1.5, -2.5, 2.5, -1.5]);
        assert_eq!(Mixed { alpha: 0.0 }.rewards(&global, &local).unwrap(), local);
    }

    // PL-B06, AW-13
    #[test]
    fn what_cannot_be_mixed_is_refused_and_equal_sums_teach_nothing() {
        let mixed = Mixed::default();
        assert!(mixed.rewards(&[1.0], &[1.0, 0.0]).unwrap_err().to_string().contains("1 of the team for 2"));
        assert!(mixed.rewards(&[f64::NAN], &[1.0]).unwrap_err().to_string().contains("global"));
        assert!(mixed.rewards(&[1.0], &[f64::INFINITY]).unwrap_err().to_string().contains("local"));
        assert!(Mixed { alpha: f64::NAN }.rewards(&[], &[]).is_err());
        let even = mixed.advantages(&Grpo::default(), &[1.0, 0.0], &[0.0, 1.0]).unwrap();
        assert_eq!(even, [0.0, 0.0]);
    }
}
