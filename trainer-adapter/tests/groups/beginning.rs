//! States that were made elsewhere, the schedule of the learning rate, and what is counted.

use forebay_trainer_adapter::process_group::{GroupError, Life, MicroBatch};
use forebay_trainer_adapter::{CpuDevice, Trainer, TrainerOptions};

use crate::common::ragged_config;
use crate::program::{batches, expected_sha256, group, kept_sha256, new_trainer, placement};

const RATES: [f64; 2] = [2e-3, 5e-4];

/// A step in this process, at this learning rate.
fn step_here(trainer: &mut Trainer<CpuDevice>, step: u64, learning_rate: f64) {
    for unit in batches("solver", step).iter().flat_map(|batch| &batch.units) {
        let rows: Vec<_> = unit.rows.iter().map(|row| row.row()).collect();
        let (position, policy) = (unit.position, unit.policy.as_str());
        let unit = forebay_trainer_adapter::Unit { position, policy, version: step, rows: &rows };
        trainer.accumulate(&unit).unwrap();
    }
    trainer.set_learning_rate(learning_rate).unwrap();
    trainer.apply().unwrap();
}

#[test]
fn a_group_begins_from_a_trainer_that_was_made_elsewhere_and_follows_its_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let mut elsewhere = new_trainer();
    step_here(&mut elsewhere, 0, RATES[0]);
    let mut group = group(folder.path(), "solver", 2);
    assert_eq!(group.trainer_state().unwrap(), None);
    assert_eq!((group.begin_from(&elsewhere.state()).unwrap(), group.life()), (1, Life::Suspended));
    assert_eq!(group.trainer_state().unwrap(), Some(elsewhere.state()));
    let started = group.resume(&placement("a", 2)).unwrap();
    assert_eq!((started.version, started.policy_version), (1, 1));
    let refused = group.begin_from(&elsewhere.state()).unwrap_err();
    assert!(matches!(refused, GroupError::Life { call: "begin_from", .. }), "{refused}");
    for rate in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = group.set_learning_rate(rate).unwrap_err();
        assert!(matches!(refused, GroupError::Config { field: "learning_rate", .. }), "{refused}");
    }
    group.set_learning_rate(RATES[1]).unwrap();
    group.accumulate(&batches("solver", 1)).unwrap();
    let update = group.apply().unwrap();
    step_here(&mut elsewhere, 1, RATES[1]);
    assert_eq!(update.weights_sha256, elsewhere.weights_sha256());
    group.suspend().unwrap();
    let state = group.trainer_state().unwrap().unwrap();
    let device = CpuDevice::inline();
    let kept = Trainer::restore(&device, &ragged_config(), TrainerOptions::default(), &state).unwrap();
    assert_eq!((kept.version(), kept.weights_sha256()), (2, elsewhere.weights_sha256()));
}

/// What the state had is left behind: cached gradients and claims are no part of the new beginning.
#[test]
fn a_new_beginning_has_nothing_of_the_state_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = group(folder.path(), "solver", 1);
    group.activate(&placement("a", 1)).unwrap();
    let first: Vec<MicroBatch> = batches("solver", 0);
    group.accumulate(&first[..2]).unwrap();
    group.suspend().unwrap();
    assert_eq!((group.version(), group.ledger().accumulated.len()), (2, 2));
    assert_eq!(group.begin_from(&new_trainer().state()).unwrap(), 3);
    assert!(group.ledger().accumulated.is_empty());
    for step in 0..2 {
        group.resume(&placement("b", 1)).unwrap();
        group.accumulate(&batches("solver", step)).unwrap();
        group.apply().unwrap();
        group.suspend().unwrap();
    }
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected_sha256("solver")));
    let counts = group.counts();
    assert_eq!((counts.starts.times, counts.suspends.times), (3, 3));
    assert!(counts.starts.longest >= counts.starts.mean() && !counts.suspends.mean().is_zero());
    assert_eq!((counts.lost_ranks, counts.failed_starts), (0, 0));
}
