//! Membership is planned: which inputs and how many trajectories make a step is decided before its rollouts start,
//! never by who arrives first.
//!
//! A plan is a pure function of the seed, the step and the number of inputs. So a run that was cut off makes the same
//! plan again, and finds the rows of the first try in their places.

use forebay_store::SampleId;

use crate::error::{Cause, Result};

/// Plans the steps of a run over a fixed list of inputs: every input once, in an order drawn from the seed, then all of
/// them again in another.
#[derive(Clone, Debug)]
pub struct Planner {
    seed: u64,
    inputs: Vec<String>,
    groups: usize,
    group_size: u32,
}

impl Planner {
    /// Steps of `groups` inputs with `group_size` trajectories each.
    ///
    /// # Errors
    /// `input` when there are no inputs, fewer than a step needs, or a group or a step would be empty.
    pub fn new(seed: u64, inputs: Vec<String>, groups: usize, group_size: u32) -> Result<Self> {
        let refuse = |what, reason: String| Err(Cause::Argument { what, reason }.into());
        if groups == 0 || group_size == 0 {
            return refuse("batch", format!("{groups} groups of {group_size} trajectories train on nothing"));
        }
        if inputs.len() < groups {
            let reason = format!("{} inputs are too few for a step of {groups} groups", inputs.len());
            return refuse("inputs", reason);
        }
        Ok(Planner { seed, inputs, groups, group_size })
    }

    /// The membership of a step, counted from 1.
    pub fn step(&self, step: u64) -> Membership {
        let first = step.saturating_sub(1) * self.groups as u64;
        let positions = first..first + self.groups as u64;
        let length = self.inputs.len() as u64;
        let input = |position: u64| self.pick(position / length, (position % length) as usize);
        let mut inputs: Vec<usize> = Vec::with_capacity(self.groups);
        for position in positions {
            // At the seam of two passes an input could stand twice in one step; the next one of the pass takes its place.
            let mut offset = 0;
            let mut index = input(position);
            while inputs.contains(&index) {
                offset += 1;
                index = input(position + offset);
            }
            inputs.push(index);
        }
        let inputs = inputs.into_iter().map(|index| self.inputs[index].clone()).collect();
        Membership { step, inputs, group_size: self.group_size }
    }

    /// The input at a place of a pass: a seeded permutation, computed place by place (a Feistel network over the least
    /// power of four that is large enough, walked until it lands inside; Black and Rogaway, "Ciphers with arbitrary
    /// finite domains", 2002).
    fn pick(&self, pass: u64, place: usize) -> usize {
        let length = self.inputs.len();
        let half_bits = (usize::BITS - (length - 1).leading_zeros()).div_ceil(2).max(1);
        let mut place = place as u64;
        loop {
            place = self.permute(pass, place, half_bits);
            if (place as usize) < length {
                return place as usize;
            }
        }
    }

    fn permute(&self, pass: u64, place: u64, half_bits: u32) -> u64 {
        let mask = (1 << half_bits) - 1;
        let (mut left, mut right) = (place >> half_bits, place & mask);
        for round in 0..4 {
            let mixed = mix(self.seed ^ mix(pass.wrapping_mul(4).wrapping_add(round)) ^ right);
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << half_bits | right
    }
}

/// The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// What belongs to one step: its inputs, in their planned order, and the number of trajectories of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    step: u64,
    inputs: Vec<String>,
    group_size: u32,
}

impl Membership {
    /// The step, counted from 1.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The inputs, each once, in their planned order.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Trajectories of each input.
    pub fn group_size(&self) -> u32 {
        self.group_size
    }

    /// Rows of one agent in the step.
    pub fn rows(&self) -> usize {
        self.inputs.len() * self.group_size as usize
    }

    /// The sample ids of one input's group at a turn.
    ///
    /// # Errors
    /// `state` when the input is not planned.
    pub fn samples(&self, input: &str, turn: u32) -> Result<Vec<SampleId>> {
        (0..self.group_size).map(|trajectory| self.admit(SampleId::new(input, turn, trajectory)?)).collect()
    }

    /// The place of an input's group in the step's order, from 0.
    pub fn position(&self, input: &str) -> Option<usize> {
        self.inputs.iter().position(|planned| planned == input)
    }

    /// Lets a sample into the step, or says why not.
    ///
    /// # Errors
    /// `state` when no group of the step has the sample's input, or the group has fewer trajectories.
    pub fn admit(&self, sample: SampleId) -> Result<SampleId> {
        if self.position(sample.input()).is_some() && sample.trajectory() < self.group_size {
            return Ok(sample);
        }
        Err(Cause::NotPlanned { sample_id: sample.to_string(), step: self.step }.into())
    }
}

/// Refuses samples that answer another input than their group's.
///
/// # Errors
/// `input`, with the sample that does not belong.
pub fn check_same_input<'a>(samples: impl IntoIterator<Item = &'a SampleId>) -> Result<()> {
    let mut samples = samples.into_iter();
    let Some(first) = samples.next() else { return Ok(()) };
    match samples.find(|sample| sample.input() != first.input()) {
        None => Ok(()),
        Some(other) => {
            let (sample_id, found) = (other.to_string(), other.input().to_owned());
            Err(Cause::OtherInput { sample_id, found, expected: first.input().to_owned() }.into())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn planner(seed: u64, inputs: usize, groups: usize) -> Planner {
        Planner::new(seed, (0..inputs).map(|i| format!("q{i}")).collect(), groups, 8).unwrap()
    }

    #[test]
    fn a_pass_takes_every_input_once_and_the_next_in_another_order() {
        for (inputs, groups) in [(64, 8), (1_000, 8), (6_400, 64), (8, 8)] {
            let planner = planner(7, inputs, groups);
            let steps = inputs / groups;
            let pass = |from: usize| -> Vec<String> {
                (from..from + steps).flat_map(|step| planner.step(step as u64 + 1).inputs).collect()
            };
            let (first, second) = (pass(0), pass(steps));
            assert_eq!(first.iter().collect::<HashSet<_>>().len(), inputs);
            assert_eq!(second.iter().collect::<HashSet<_>>().len(), inputs);
            assert!(inputs == 8 || first != second);
        }
    }

    #[test]
    fn a_plan_depends_on_seed_and_step_alone_and_names_no_input_twice() {
        for step in 1..200 {
            let membership = planner(3, 10, 8).step(step);
            assert_eq!(membership, planner(3, 10, 8).step(step));
            assert_eq!(membership.inputs().iter().collect::<HashSet<_>>().len(), 8, "step {step}");
        }
        assert_ne!(planner(3, 1_000, 8).step(1), planner(4, 1_000, 8).step(1));
    }

    // AW-12
    #[test]
    fn a_sample_of_another_task_is_not_let_in() {
        let membership = planner(7, 100, 2).step(1);
        let own = membership.samples(&membership.inputs()[0], 0).unwrap();
        assert_eq!(own.len(), 8);
        let stranger: SampleId = "elsewhere_0_0".parse().unwrap();
        assert!(membership.admit(stranger.clone()).unwrap_err().to_string().contains("no group of step 1"));
        let ninth = SampleId::new(&membership.inputs()[0], 0, 8).unwrap();
        assert!(membership.admit(ninth).is_err());
        let error = check_same_input([&own[0], &own[1], &stranger]).unwrap_err().to_string();
        assert!(error.contains("elsewhere"), "{error}");
        assert!(check_same_input(&own).is_ok());
    }

    #[test]
    fn plans_that_cannot_be_kept_are_refused() {
        let inputs = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        for (n, groups, size) in [(0, 8, 8), (7, 8, 8), (8, 0, 8), (8, 8, 0)] {
            assert!(Planner::new(1, inputs(n), groups, size).is_err());
        }
    }
}
