//! What the ledger of a group calls a gradient.

use std::fmt;
use std::hash::Hasher;

use forebay_trainer_adapter::process_group::{BatchRow, BatchUnit, ClaimId, Ledger};
use forebay_trainer_adapter::{Row, Unit};

/// The gradient of one group of rows, or of one member of it where members are trained as they come: the same whatever claim brings the
/// rows, in every life of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GradientName {
    /// The step, as planned.
    pub(super) step: u64,
    /// The group's place in it.
    position: usize,
    /// Which member of the group it is of, if not of the whole group.
    member: Option<usize>,
    /// Of tokens, and of advantages or the member's reward: rows that were sampled anew and came out otherwise have another gradient.
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
        let digest = digest(&owned.rows, None);
        (GradientName { step, position: owned.position, member: None, digest }, owned)
    }

    /// The name of the gradient of one member of a group, which is trained before its advantage is known.
    pub(super) fn of_member(
        step: u64,
        position: usize,
        member: usize,
        reward: f64,
        rows: &[BatchRow],
    ) -> Self {
        GradientName { step, position, member: Some(member), digest: digest(rows, Some(reward)) }
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

    /// The place in its step of the group of a gradient that a ledger names; nothing where it was named by somebody else.
    pub(super) fn position_of(claim: &ClaimId) -> Option<usize> {
        let place = claim.0.split('.').nth(1)?;
        place.split('-').next()?.parse().ok()
    }

    /// Whether a ledger has a gradient at this place of a step: of these rows, or of rows that came out otherwise.
    pub(super) fn has_place(ledger: &Ledger, step: u64, position: usize) -> bool {
        let place = format!("{step}.{position}");
        // What may follow the place, a member or a digest, stands before every digit.
        let first = ledger.accumulated.range(ClaimId(place.clone())..).next();
        let rest = first.and_then(|claim| claim.0.strip_prefix(&place));
        rest.is_some_and(|rest| rest.starts_with(['-', '.']))
    }

    /// Whether the update of this step is in the weights of a state: a step has one update.
    pub(super) fn is_applied(ledger: &Ledger, step: u64) -> bool {
        ledger.applied.iter().any(|claim| Self::step_of(claim) == Some(step))
    }
}

impl fmt::Display for GradientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.step, self.position)?;
        if let Some(member) = self.member {
            write!(f, "-{member}")?;
        }
        write!(f, ".{:016x}", self.digest)
    }
}

fn digest(rows: &[BatchRow], reward: Option<f64>) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for row in rows {
        for tokens in [&row.prompt, &row.response] {
            hasher.write_u64(tokens.len() as u64);
            tokens.iter().for_each(|&token| hasher.write_u32(token));
        }
        hasher.write_u32(row.advantage.to_bits());
    }
    reward.into_iter().for_each(|reward| hasher.write_u64(reward.to_bits()));
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

    fn names(names: &[&str]) -> std::collections::BTreeSet<ClaimId> {
        names.iter().map(|name| ClaimId((*name).into())).collect()
    }

    #[test]
    fn a_members_name_is_of_its_place_and_reward_too() {
        let rows = [BatchRow::from(Row::new(&[1, 2], &[7, 8]))];
        let of = |member, reward| GradientName::of_member(5, 3, member, reward, &rows).claim();
        assert_eq!(of(1, 0.5), of(1, 0.5));
        for other in [of(2, 0.5), of(1, 0.0), name(5, 3, &[7, 8], 1.0).claim()] {
            assert_ne!(of(1, 0.5), other);
        }
        assert_eq!(GradientName::step_of(&of(1, 0.5)), Some(5));
        assert_eq!(GradientName::position_of(&of(1, 0.5)), Some(3));
        let ledger = Ledger { accumulated: [of(1, 0.5)].into(), ..Ledger::default() };
        assert!(!GradientName::has_place(&ledger, 5, 1) && !GradientName::has_place(&ledger, 4, 3));
        let ledger = Ledger { accumulated: names(&["5.30.a", "5.4-0.a", "5.7.a", "55.8.a"]), ..ledger };
        let there: Vec<usize> = (0..60).filter(|&at| GradientName::has_place(&ledger, 5, at)).collect();
        assert_eq!(there, [4, 7, 30]);
    }

    #[test]
    fn claims_that_others_have_named_have_no_step() {
        for text in ["", "5", "5.3", "x.3.0", "5.3.0.1", "3-17"] {
            assert_eq!(GradientName::step_of(&ClaimId(text.into())), None, "{text:?}");
        }
    }
}
