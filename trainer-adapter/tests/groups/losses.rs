//! Ranks that share out a step, one of them lost.

use std::collections::BTreeSet;

use forebay_trainer_adapter::process_group::{BatchOutcome, Boundary, ClaimId, GroupError, Life, MicroBatch};

use crate::program::{batches, expected_sha256, group, kept_sha256, order_kill, placement};
use crate::training::Training;

/// Any number of ranks makes the update that one makes: five micro-batches on one to three ranks (ragged), and on six, of which one
/// has no rows.
#[test]
fn any_number_of_ranks_makes_the_same_update() {
    let expected = expected_sha256("solver");
    for world in [1, 2, 3, 6] {
        let folder = tempfile::tempdir().unwrap();
        let mut group = group(folder.path(), "solver", world);
        group.activate(&placement("a", world)).unwrap();
        for step in 0..2 {
            let outcomes = group.accumulate(&batches("solver", step)).unwrap();
            let ranks: BTreeSet<usize> = outcomes
                .iter()
                .map(|outcome| match outcome {
                    BatchOutcome::Accumulated { rank, .. } => *rank,
                    BatchOutcome::Refused { reason, .. } => panic!("{reason}"),
                })
                .collect();
            assert_eq!(ranks.len(), world.min(5), "{world} ranks");
            let update = group.apply().unwrap();
            assert_eq!(update.step.version, step + 1);
            if step == 1 {
                assert_eq!(update.weights_sha256, expected, "{world} ranks");
            }
        }
        group.suspend().unwrap();
        assert_eq!(kept_sha256(folder.path(), "solver").as_ref(), Some(&expected), "{world} ranks");
    }
}

/// Whichever rank dies wherever: lost is what that rank had accumulated since it was started, and nothing of the others. The rest of the
/// step is then made by the group as it is resumed, and the bits are the same.
#[test]
fn of_a_lost_rank_only_its_own_work_is_lost() {
    let expected = expected_sha256("solver");
    let all = batches("solver", 0);
    let claims =
        |batches: &[MicroBatch]| batches.iter().map(|batch| batch.claim.clone()).collect::<BTreeSet<_>>();
    for dead in 0..3 {
        for boundary in [Boundary::BatchReceived, Boundary::BatchAccumulated] {
            let name = format!("rank {dead} at {boundary:?}");
            let folder = tempfile::tempdir().unwrap();
            let mut group = group(folder.path(), "solver", 3);
            group.activate(&placement("a", 3)).unwrap();
            group.accumulate(&all[..2]).unwrap();
            group.save().unwrap();
            let who = format!("rank{dead}");
            order_kill(folder.path(), &who, boundary, 0);
            let error = group.accumulate(&all[2..]).unwrap_err();
            let GroupError::RankLost { rank, exit, lost, .. } = &error else { panic!("{name}: {error}") };
            assert_eq!((*rank, exit.unwrap().signal), (dead, Some(9)), "{name}");
            assert_eq!(group.counts().lost_ranks, 1, "{name}");
            assert_eq!((group.life(), group.pids().len()), (Life::Suspended, 0), "{name}");
            // One micro-batch a rank: what was saved is kept, also that of the dead one.
            let lost: BTreeSet<ClaimId> = lost.iter().cloned().collect();
            assert_eq!(lost.len(), 1, "{name}: {lost:?}");
            assert!(lost.is_subset(&claims(&all[2..])), "{name}: {lost:?}");
            let kept: BTreeSet<ClaimId> = claims(&all).difference(&lost).cloned().collect();
            assert_eq!(group.ledger().accumulated, kept, "{name}");
            // The caller returns them, claims them anew, and goes on.
            group.resume(&placement("b", 3)).unwrap();
            let again: Vec<MicroBatch> =
                all.iter().filter(|batch| lost.contains(&batch.claim)).cloned().collect();
            group.accumulate(&again).unwrap();
            group.apply().unwrap();
            group.save().unwrap();
            Training::new(group, folder.path(), "solver").run_step(1);
            assert_eq!(kept_sha256(folder.path(), "solver").as_ref(), Some(&expected), "{name}");
        }
    }
}

/// A rank that dies in the update: either no rank has made it, and the others' gradients are kept, or those that have made it keep it.
#[test]
fn an_update_in_which_a_rank_dies_stands_or_was_never_made() {
    let expected = expected_sha256("solver");
    let all = batches("solver", 0);
    let cases = [
        (Boundary::ApplyReceived, 0, 0),
        (Boundary::ApplyReceived, 1, 0),
        (Boundary::Exchanged, 1, 1),
        (Boundary::Exchanged, 0, 1),
        (Boundary::UpdateMade, 0, 1),
        (Boundary::UpdateMade, 2, 1),
    ];
    for (boundary, dead, policy_version) in cases {
        let name = format!("rank {dead} at {boundary:?}");
        let folder = tempfile::tempdir().unwrap();
        let mut group = group(folder.path(), "solver", 3);
        group.activate(&placement("a", 3)).unwrap();
        group.accumulate(&all).unwrap();
        order_kill(folder.path(), &format!("rank{dead}"), boundary, 0);
        let error = group.apply().unwrap_err();
        let GroupError::RankLost { rank, lost, .. } = &error else { panic!("{name}: {error}") };
        assert_eq!(*rank, dead, "{name}: {error}");
        let ledger = group.ledger().clone();
        assert_eq!(ledger.applied.len(), if policy_version == 1 { 5 } else { 0 }, "{name}");
        assert_eq!(ledger.accumulated.len() + ledger.applied.len() + lost.len(), 5, "{name}");
        let resumed = group.resume(&placement("b", 3)).unwrap();
        assert_eq!(resumed.policy_version, policy_version, "{name}");
        if policy_version == 0 {
            let again: Vec<MicroBatch> =
                all.iter().filter(|batch| lost.contains(&batch.claim)).cloned().collect();
            group.accumulate(&again).unwrap();
            group.apply().unwrap();
            group.save().unwrap();
        }
        Training::new(group, folder.path(), "solver").run_step(1);
        assert_eq!(kept_sha256(folder.path(), "solver").as_ref(), Some(&expected), "{name}");
    }
}

/// All ranks at once, with the state of an update that was never set: back to the newest version, and every claim since is named.
#[test]
fn if_all_ranks_die_everything_since_the_newest_version_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let all = batches("solver", 0);
    let mut group = group(folder.path(), "solver", 2);
    group.activate(&placement("a", 2)).unwrap();
    group.accumulate(&all[..2]).unwrap();
    group.save().unwrap();
    group.accumulate(&all[2..]).unwrap();
    group.apply().unwrap();
    for rank in 0..2 {
        order_kill(folder.path(), &format!("rank{rank}"), Boundary::Staging, 0);
    }
    let error = group.suspend().unwrap_err();
    assert_eq!(error.lost(), all[2..].iter().map(|batch| batch.claim.clone()).collect::<Vec<_>>(), "{error}");
    assert_eq!(group.resume(&placement("b", 2)).unwrap().policy_version, 0);
    group.accumulate(&all[2..]).unwrap();
    group.apply().unwrap();
    group.save().unwrap();
    Training::new(group, folder.path(), "solver").run_step(1);
    assert_eq!(kept_sha256(folder.path(), "solver"), Some(expected_sha256("solver")));
}
