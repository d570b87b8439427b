//! Whether the state that an earlier life of the run has left goes with what the store says.

use anyhow::Result;
use forebay_trainer_adapter::process_group::{Ledger, ProcessGroup};
use forebay_trainer_adapter::{CpuDevice, Trainer};

use super::gradient_name::GradientName;
use crate::run::report::Found;

/// Makes the group's state one that the next step can begin with: the one that is there if it goes on from the committed `trainer`, else
/// a new one with that and nothing in the cache. Gives what was found.
///
/// # Errors
/// When the states cannot be read or set.
pub(super) fn open_state(
    group: &mut ProcessGroup,
    trainer: &Trainer<CpuDevice>,
    next_step: u64,
) -> Result<Found> {
    let agent = group.agent().to_owned();
    if let Some(state) = group.trainer_state()? {
        let restored = Trainer::restore(
            &CpuDevice::inline(),
            trainer.policy().config(),
            trainer.options().clone(),
            &state,
        );
        let version = restored.as_ref().ok().map(Trainer::version);
        // What rollouts sample from is what the store has: a state of the same version has to be the same.
        let version = version.filter(|version| *version != trainer.version() || state == trainer.state());
        let found =
            version.and_then(|version| goes_on(group.ledger(), version, trainer.version(), next_step));
        if let Some(found) = found {
            let Found { accumulated, applied } = found;
            tracing::info!(
                agent,
                next_step,
                accumulated,
                applied,
                "the state of an earlier life is gone on with"
            );
            return Ok(found);
        }
        tracing::info!(
            agent,
            next_step,
            ?version,
            "the state of an earlier life is of another past, and is replaced"
        );
    }
    group.begin_from(&trainer.state())?;
    Ok(Found::default())
}

/// What of the next step a state has, if it is one of the committed version of the policy or of the next step's update. A state of the
/// same version may still name gradients of steps that are committed: nobody said so before.
fn goes_on(ledger: &Ledger, version: u64, committed: u64, next_step: u64) -> Option<Found> {
    let of_next = |claim: &&_| GradientName::step_of(claim) == Some(next_step);
    let applied = ledger.applied.iter().filter(of_next).count() as u64;
    let accumulated = ledger.accumulated.iter().filter(of_next).count() as u64;
    let others = ledger.accumulated.len() as u64 - accumulated;
    let is_open = version == committed && applied == 0 && others == 0;
    let is_updated = version == committed + 1 && applied > 0 && ledger.accumulated.is_empty();
    (is_open || is_updated).then_some(Found { accumulated, applied })
}

#[cfg(test)]
mod tests {
    use forebay_trainer_adapter::process_group::ClaimId;

    use super::*;

    fn claims(names: &[&str]) -> std::collections::BTreeSet<ClaimId> {
        names.iter().map(|name| ClaimId((*name).into())).collect()
    }

    /// What it is, the policy's version in the state, gradients in its cache, gradients in its weights.
    type Case<'a> = (&'a str, u64, &'a [&'a str], &'a [&'a str], Option<Found>);

    // The policy stands at version 4, and step 5 is to begin.
    #[test]
    fn a_state_is_gone_on_with_only_if_it_follows_on_what_the_store_says() {
        let open = |accumulated| Some(Found { accumulated, applied: 0 });
        let updated = Some(Found { accumulated: 0, applied: 2 });
        let cases: [Case<'_>; 10] = [
            ("nothing of the step", 4, &[], &[], open(0)),
            ("half of the step", 4, &["5.0.aa", "5.2.bb"], &[], open(2)),
            ("half of the step, the step before not settled", 4, &["5.0.aa"], &["4.0.cc"], open(1)),
            ("the step's update", 5, &[], &["5.0.aa", "5.1.bb"], updated),
            (
                "the step's update, the step before not settled",
                5,
                &[],
                &["4.0.cc", "5.0.aa", "5.1.bb"],
                updated,
            ),
            ("gradients of a step that others have made", 4, &["4.0.aa"], &[], None),
            ("gradients that others have named", 4, &["0-17"], &[], None),
            ("an older version", 3, &[], &["3.0.aa"], None),
            ("an update of another step", 5, &[], &["4.0.aa"], None),
            ("a version that the store has gone back from", 6, &["7.0.aa"], &["6.0.aa"], None),
        ];
        for (what, version, accumulated, applied, expected) in cases {
            let (accumulated, applied) = (claims(accumulated), claims(applied));
            let ledger = Ledger { accumulated, applied, ..Ledger::default() };
            assert_eq!(goes_on(&ledger, version, 4, 5), expected, "{what}");
        }
    }
}
