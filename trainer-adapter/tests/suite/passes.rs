//! Epochs over mini-batches: how many optimiser steps an update makes, what they compute, and that it is made whole or not at all.

use super::common::{Row, full_rows, ragged_config, random_groups, recorded, shaken_policy};
use crate::{TestDevice, device};
use forebay_trainer_adapter::{
    Error, Objective, Passes, PolicyTerm, Row as FullRow, StepReport, Trainer, TrainerOptions, Unit,
};

const GROUPS: usize = 8;

fn options(passes: Passes) -> TrainerOptions {
    TrainerOptions { passes, entropy_coefficient: 0.01, ..TrainerOptions::default() }
}

fn trainer(options: TrainerOptions) -> Trainer<TestDevice> {
    let clipped = Objective { policy_term: PolicyTerm::CLIP_HIGHER, kl_coefficient: 0.04 };
    let trainer = Trainer::new(&device(1), shaken_policy(&ragged_config(), 3), options).unwrap();
    trainer.with_objective(clipped).unwrap()
}

fn groups() -> Vec<Vec<Row>> {
    let mut groups = random_groups(11, GROUPS, 4, 37);
    recorded(&mut groups, 5);
    groups
}

/// Units at the places of these groups, all of one version.
fn units<'a>(rows: &'a [Vec<FullRow<'a>>], version: u64) -> Vec<Unit<'a, FullRow<'a>>> {
    let unit =
        |(position, rows): (usize, &'a Vec<FullRow<'a>>)| Unit { position, policy: "policy", version, rows };
    rows.iter().enumerate().map(unit).collect()
}

/// Optimiser steps that the moments have seen, as the state counts them.
fn optimiser_steps(trainer: &Trainer<TestDevice>) -> u64 {
    let state = trainer.state();
    let payload = safetensors::SafeTensors::deserialize(&state).unwrap();
    let counters = payload.tensor("counters").unwrap();
    u64::from_le_bytes(counters.data()[8..16].try_into().unwrap())
}

/// PL-07: as many optimiser steps as epochs times mini-batches; PL-08: and one version.
#[test]
fn an_update_makes_as_many_steps_as_epochs_times_mini_batches_and_one_version() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    for epochs in 1..=3 {
        for (mini_batch_units, mini_batches) in [(1, 8), (2, 4), (3, 3), (8, 1), (usize::MAX, 1)] {
            let mut trainer = trainer(options(Passes { epochs, mini_batch_units }));
            let reports = trainer.update(&units(&rows, 0)).unwrap();
            let steps = u64::from(epochs) * mini_batches;
            assert_eq!((reports.len() as u64, optimiser_steps(&trainer)), (steps, steps));
            assert_eq!(reports.iter().map(|step| step.rows).sum::<u64>(), 32 * u64::from(epochs));
            assert_eq!((trainer.version(), reports.last().unwrap().version), (1, 1));
            assert!(trainer.cache().positions.is_empty(), "no gradient is left");
            assert!(trainer.update(&units(&rows, 1)).is_ok(), "the next update goes on from there");
        }
    }
}

/// The same steps one by one: each mini-batch an update of its own.
fn one_by_one(rows: &[Vec<FullRow<'_>>], passes: Passes) -> (Trainer<TestDevice>, Vec<StepReport>) {
    let mut trainer = trainer(options(Passes::default()));
    let mut reports = Vec::new();
    for _ in 0..passes.epochs {
        for first in (0..rows.len()).step_by(passes.mini_batch_units) {
            let version = trainer.version();
            let last = (first + passes.mini_batch_units).min(rows.len());
            trainer.accumulate_many(&units(rows, version)[first..last]).unwrap();
            reports.push(trainer.apply().unwrap());
        }
    }
    (trainer, reports)
}

/// PL-07: each step is that of its mini-batch alone, with its own denominator and on the weights of the step before; nothing of an
/// earlier gradient is in it.
#[test]
fn the_numbers_of_an_update_are_those_of_its_steps_made_one_by_one() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    for passes in [Passes { epochs: 2, mini_batch_units: 3 }, Passes { epochs: 3, mini_batch_units: 8 }] {
        let (alone, expected) = one_by_one(&rows, passes);
        let mut trainer = trainer(options(passes));
        let mut shuffled = units(&rows, 0);
        shuffled.reverse(); // what order they come in changes nothing
        let reports = trainer.update(&shuffled).unwrap();
        assert_eq!(trainer.weights_sha256(), alone.weights_sha256(), "{passes:?}");
        for (found, expected) in reports.iter().zip(&expected) {
            let numbers =
                |step: &StepReport| (step.gradient_norm, step.denominator, step.tokens, step.clipped);
            assert_eq!(numbers(found), numbers(expected), "{passes:?}");
        }
        let norms: Vec<f64> = reports.iter().map(|step| step.gradient_norm).collect();
        assert_ne!(norms[..norms.len() / 2], norms[norms.len() / 2..], "a later epoch sees other weights");
    }
}

/// PL-06: one stale input, and the whole update is refused.
#[test]
fn one_stale_unit_refuses_the_whole_update() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    let mut trainer = trainer(options(Passes { epochs: 2, mini_batch_units: 2 }));
    trainer.update(&units(&rows, 0)).unwrap();
    let before = trainer.state();
    for stale in 0..GROUPS {
        let mut all = units(&rows, 1);
        all[stale].version = 0;
        let refused = Error::OtherVersion { position: stale, current: 1, found: 0 };
        assert_eq!(trainer.update(&all), Err(refused));
        assert!(trainer.state() == before && trainer.cache().positions.is_empty(), "unit {stale}");
    }
    assert!(trainer.update(&units(&rows, 1)).is_ok());
}

#[test]
fn an_update_that_fails_in_its_middle_leaves_everything_as_it_was() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    let mut options = options(Passes { epochs: 2, mini_batch_units: 2 });
    options.adamw.learning_rate = 1e38; // the first step throws the weights out of all range
    let mut trainer = trainer(options);
    let before = trainer.state();
    assert!(matches!(trainer.update(&units(&rows, 0)), Err(Error::NotFinite { .. })));
    assert!(trainer.state() == before && trainer.version() == 0);
    trainer.set_learning_rate(1e-3).unwrap();
    assert_eq!(trainer.update(&units(&rows, 0)).unwrap().len(), 8);
}

#[test]
fn however_many_epochs_are_asked_for_memory_is_for_those_that_are_made() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    let mut options = options(Passes { epochs: u32::MAX, mini_batch_units: 1 });
    options.adamw.learning_rate = 1e38; // ends it in its beginning
    assert!(matches!(trainer(options).update(&units(&rows, 0)), Err(Error::NotFinite { .. })));
}

#[test]
fn a_cache_and_several_passes_do_not_go_together() {
    let groups = groups();
    let rows: Vec<Vec<FullRow<'_>>> = groups.iter().map(|group| full_rows(group)).collect();
    let mut trainer = trainer(options(Passes { epochs: 2, ..Passes::default() }));
    assert_eq!(trainer.update(&units(&rows, 0)[..0]), Err(Error::EmptyCache));
    trainer.accumulate(&units(&rows, 0)[0]).unwrap();
    assert_eq!(trainer.update(&units(&rows, 0)), Err(Error::CacheNotEmpty { units: 1 }));
    let refused = trainer.apply().unwrap_err();
    assert!(refused.to_string().contains("`update`"), "{refused}");
    for passes in [Passes { epochs: 0, ..Passes::default() }, Passes { epochs: 1, mini_batch_units: 0 }] {
        assert!(options(passes).validate().is_err(), "{passes:?}");
    }
}
