//! What the ledger of a group calls a gradient.

use std::fmt;
use std::hash::Hasher;

use forebay_trainer_adapter::process_group::{BatchRow, BatchUnit, ClaimId, Ledger};
use forebay_trainer_adapter::{Row, Unit};

/// The gradient of one group of rows: the same whatever claim brings the rows, in every life of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GradientName {
    /// The step, as planned.
    pub(super) step: u64,
    /// The group's place in it.
    position: usize,
    /// Of tokens and advantages: rows that were sampled anew and came out otherwise have another gradient.
    digest: u64,
}

impl GradientName {
    /// The name of a unit's gradient, and the unit as it goes to a rank.
    pub(super) fn of(step: u64, unit: &Unit<'_, Row<'_>>) -> (Self, BatchUnit) {
        let rows = unit.rows.iter().map(|&row| BatchRow::from(row)).collect();
        let owned = BatchUnit {
            position: unit.position,
            policy: unit.policy.to_owned(),
            version: unit.version,
            rows,
        };
        (GradientName { step, position: owned.position, digest: digest(&owned.rows) }, owned)
    }

    pub(super) fn claim(&self) -> ClaimId {
        ClaimId(self.to_string())
    }

    /// The step of a gradient that a ledger names; nothing where it was named by somebody else.
    pub(super) fn step_of(claim: &ClaimId) -> Option<u64> {
        let mut parts = claim.0.split('.');
        let step = parts.next()?.parse().ok()?;
        (parts.count() == 2).then_some(step)
    }

    /// Whether the update of this step is in the weights of a state: a step has one update.
    pub(super) fn is_applied(ledger: &Ledger, step: u64) -> bool {
        ledger.applied.iter().any(|claim| Self::step_of(claim) == Some(step))
    }
}

impl fmt::Display for GradientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.step, self.position, self.digest)
    }
}

fn digest(rows: &[BatchRow]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for row in rows {
        for tokens in [&row.prompt, &row.response] {
            hasher.write_u64(tokens.len() as u64);
            tokens.iter().for_each(|&token| hasher.write_u32(token));
        }
        hasher.write_u32(row.advantage.to_bits());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(step: u64, position: usize, response: &[u32], advantage: f32) -> GradientName {
        let rows = [Row { advantage, ..Row::new(&[1, 2], response) }];
        GradientName::of(step, &Unit { position, policy: "solver", version: 4, rows: &rows }).0
    }

    #[test]
    fn a_name_is_of_the_step_the_place_and_the_rows_and_says_its_step() {
        let reference = name(5, 3, &[7, 8], 0.5);
        assert_eq!(reference, name(5, 3, &[7, 8], 0.5));
        for other in [name(6, 3, &[7, 8], 0.5), name(5, 4, &[7, 8], 0.5), name(5, 3, &[7, 9], 0.5)] {
            assert_ne!(reference.claim(), other.claim());
        }
        assert_ne!(reference.claim(), name(5, 3, &[7, 8], -0.5).claim());
        assert_eq!(GradientName::step_of(&reference.claim()), Some(5));
        let ledger = Ledger { applied: [reference.claim()].into(), ..Ledger::default() };
        assert!(GradientName::is_applied(&ledger, 5) && !GradientName::is_applied(&ledger, 6));
    }

    #[test]
    fn claims_that_others_have_named_have_no_step() {
        for text in ["", "5", "5.3", "x.3.0", "5.3.0.1", "3-17"] {
            assert_eq!(GradientName::step_of(&ClaimId(text.into())), None, "{text:?}");
        }
    }
}
