//! A group whose episodes left several samples each, compared episode by episode.

use super::grpo::Grpo;
use crate::error::{Cause, Result};

/// The samples of one group, cut into the episodes that they came from (AgentJet's episode scope).
///
/// An episode with many samples would pull the mean of the samples towards its reward. With this baseline each episode counts
/// once: rewards are averaged in each episode first, and mean and deviation are those of the averages. If all averages are
/// equal, by exact comparison, there is nothing to compare and all advantages are 0.
///
/// ```
/// use forebay_pipeline::advantage::{Episodes, Grpo, Scale};
/// let episodes = Episodes::new(&["a", "a", "b"])?;
/// let centred = Grpo { scale: Scale::None, ..Grpo::default() };
/// assert_eq!(episodes.advantages(&centred, &[1.0, 1.0, 0.0])?, [0.5, 0.5, -0.5]);
/// assert_eq!(episodes.weights(), [0.5, 0.5, 1.0]);
/// # Ok::<(), forebay_pipeline::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episodes {
    /// The episode of each sample, numbered in the order in which they first appear.
    of_sample: Vec<usize>,
    /// How many samples each episode has.
    samples: Vec<usize>,
}

impl Episodes {
    /// The episode ids of a group's samples, in their order.
    ///
    /// # Errors
    /// `input` when an id is empty: a sample without an episode cannot be compared by episodes.
    pub fn new(ids: &[&str]) -> Result<Self> {
        if let Some(index) = ids.iter().position(|id| id.is_empty()) {
            let reason =
                format!("sample {index} has none; compare by samples, or give every sample its episode");
            return Err(Cause::Argument { what: "episode id", reason }.into());
        }
        let mut seen: Vec<&str> = Vec::new();
        let mut episodes = Episodes { of_sample: Vec::new(), samples: Vec::new() };
        for id in ids {
            let episode = seen.iter().position(|earlier| earlier == id).unwrap_or(seen.len());
            if episode == seen.len() {
                seen.push(id);
                episodes.samples.push(0);
            }
            episodes.of_sample.push(episode);
            episodes.samples[episode] += 1;
        }
        Ok(episodes)
    }

    /// The advantages of the samples beside the averages of the episodes. Sums run in the order of the samples, in f64.
    ///
    /// # Errors
    /// `input` when there are not as many rewards as ids, and as [`Grpo::advantages`].
    pub fn advantages(&self, estimator: &Grpo, rewards: &[f64]) -> Result<Vec<f64>> {
        if rewards.len() != self.of_sample.len() {
            let reason = format!("{} for {} samples", rewards.len(), self.of_sample.len());
            return Err(Cause::Argument { what: "rewards", reason }.into());
        }
        estimator.against(rewards, &self.averages(rewards))
    }

    fn averages(&self, rewards: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.samples.len()];
        for (reward, &episode) in rewards.iter().zip(&self.of_sample) {
            sums[episode] += reward;
        }
        sums.iter().zip(&self.samples).map(|(sum, &samples)| sum / samples as f64).collect()
    }

    /// One over the samples of its episode, for each sample: a weight under which every episode counts the same in the loss.
    pub fn weights(&self) -> Vec<f32> {
        self.of_sample.iter().map(|&episode| 1.0 / self.samples[episode] as f32).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::Scale;
    use super::*;

    // AJ-B28: episode 1 with two samples of reward 1, episode 2 with one of reward 0
    #[test]
    fn an_episode_counts_once_whatever_it_left() {
        let centred = Grpo { scale: Scale::None, ..Grpo::default() };
        let rewards = [1.0, 1.0, 0.0];
        let baseline = |advantages: Vec<f64>| rewards[0] - advantages[0];
        let by_sample = baseline(centred.advantages(&rewards).unwrap());
        let episodes = Episodes::new(&["ep1", "ep1", "ep2"]).unwrap();
        let by_episode = baseline(episodes.advantages(&centred, &rewards).unwrap());
        assert!((by_sample - 2.0 / 3.0).abs() < 1e-12 && by_episode == 0.5);
        assert_eq!(episodes.weights(), [0.5, 0.5, 1.0]);
        // numpy: a = array([1, 0]); (r - a.mean()) / (a.std(ddof=1) + 1e-6)
        let sample = Grpo { scale: Scale::StandardDeviation { ddof: 1 }, ..Grpo::default() };
        for (found, expected) in episodes.advantages(&sample, &rewards).unwrap().iter().zip([1.0, 1.0, -1.0])
        {
            assert!((found - expected * 0.707_105_781_2).abs() < 1e-9, "{found}");
        }
    }

    // AJ-B28: missing ids are an error; AW-13: averages without spread are no ground for an advantage
    #[test]
    fn what_cannot_be_compared_by_episode_is_refused_or_teaches_nothing() {
        assert!(Episodes::new(&["a", ""]).unwrap_err().to_string().contains("sample 1"));
        let episodes = Episodes::new(&["a", "a", "b"]).unwrap();
        assert!(episodes.advantages(&Grpo::default(), &[1.0]).is_err());
        assert!(episodes.advantages(&Grpo::default(), &[1.0, f64::NAN, 0.0]).is_err());
        let flat = Grpo { epsilon: 0.0, ..Grpo::default() };
        assert_eq!(episodes.advantages(&flat, &[1.0, 0.0, 0.5]).unwrap(), [0.0; 3]);
        let alone = Episodes::new(&["a", "a"]).unwrap();
        assert_eq!(alone.advantages(&flat, &[1.0, 0.0]).unwrap(), [0.0; 2]);
    }
}
