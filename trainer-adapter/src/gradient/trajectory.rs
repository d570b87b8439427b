//! What early training is given: open groups, and their trajectories one by one.

use super::row::Row;
use super::unit::Sequence;

/// Which rewards the members of an open group may have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RewardValues {
    /// Any finite number. Loss terms that are linear in the advantage only: a clipped loss is refused.
    Any {
        /// A number near the rewards, the same whatever arrives first. Differences from it are what is summed, so it
        /// decides how large rewards may be, not what the gradient is.
        reference: f64,
    },
    /// One of two values: the sign of a member's advantage is known when it arrives, so a clipped loss is exact too.
    Two {
        /// The lower value: advantages of 0 or less.
        low: f64,
        /// The higher value: advantages of 0 or more.
        high: f64,
    },
}

/// A group whose trajectories are trained as they finish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenGroup<'a> {
    /// The group's planned place in the step, as that of a [`crate::Unit`].
    pub position: usize,
    /// Name of the policy that the trajectories are sampled from.
    pub policy: &'a str,
    /// Version of the policy that they are sampled from.
    pub version: u64,
    /// How many trajectories are planned.
    pub members: usize,
    /// Which rewards they may have.
    pub rewards: RewardValues,
}

/// One finished member of an open group. It may hold several rows; reward and advantage are those of all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trajectory<'a, R = Sequence<'a>> {
    /// Position of its group.
    pub group: usize,
    /// Which member it is, from 0.
    pub member: usize,
    /// Its reward.
    pub reward: f64,
    /// Its rows, each of advantage 1: the group's advantages are known when it closes.
    pub rows: &'a [R],
}

impl<'a, R: Copy + Into<Row<'a>>> Trajectory<'a, R> {
    /// The rows with everything that a loss may ask for.
    pub(crate) fn full_rows(&self) -> Vec<Row<'a>> {
        self.rows.iter().map(|&row| row.into()).collect()
    }
}

/// Whether a group may be trained early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is open: add its trajectories as they finish.
    Open {
        /// Memory of its sums, in bytes.
        bytes: u64,
    },
    /// Its sums would not fit: train the group whole when it is complete, or begin it again when others have closed.
    WholeGroups {
        /// Memory of all open groups if this one were among them, in bytes.
        bytes: u64,
        /// What they may take.
        budget_bytes: u64,
    },
}

/// What early training may use: plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyOptions {
    /// Memory of the sums of all open groups together, in bytes. A group takes 16 bytes a parameter, 24 with a KL term or
    /// an entropy bonus. Default: 1 GiB.
    pub budget_bytes: u64,
    /// Bits behind the point of the sums, 16 to 56. A sum of n members holds values up to `2^(62 - bits) / n` in steps of
    /// `2^-bits`. Default: 40 (steps of 9e-13; up to half a million for eight members).
    pub fraction_bits: u32,
}

impl Default for EarlyOptions {
    fn default() -> Self {
        Self { budget_bytes: 1 << 30, fraction_bits: 40 }
    }
}
