//! Groups whose members are trained as they finish, in ranks: whatever comes when, wherever it goes on, the bits of one process.

use std::collections::{BTreeMap, BTreeSet};

use forebay_trainer_adapter::process_group::{
    BatchOutcome, BatchRow, BatchTrajectory, BatchUnit, Boundary, ClaimId, GroupError, GroupPlan, Life,
    MicroBatch, ProcessGroup,
};
use forebay_trainer_adapter::{CpuDevice, ErrorKind, OpenGroup, RewardValues, Row, Trainer, Trajectory};

use crate::common::{full_rows, random_groups};
use crate::program::{batches, expected_sha256, group, kept_sha256, order_kill, placement};
use crate::training::Training;

/// The agent whose steps have open groups beside whole ones.
pub(crate) const EARLY: &str = "early";

/// Members that come, of the open groups of a step.
pub(crate) const MEMBERS: usize = 8;

/// Planned of each group; of the last one a member never comes.
const PLANNED: usize = 3;
const GROUPS: usize = 3;
/// Places of the open groups, behind those of the micro-batches.
const FIRST: usize = 20;

fn reward(member: usize) -> f64 {
    [1.0, 0.25, -0.5][member]
}

/// Rewards of members, in their order.
pub(crate) fn rewards<'a>(members: impl IntoIterator<Item = &'a usize>) -> Vec<f64> {
    members.into_iter().map(|&member| reward(member)).collect()
}

/// Less their mean.
pub(crate) fn advantages(rewards: &[f64]) -> Vec<f64> {
    let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
    rewards.iter().map(|reward| reward - mean).collect()
}

/// The members of a step's open groups, in the order in which they come; none of an agent that trains whole groups.
pub(crate) fn members(agent: &str, step: u64) -> Vec<BatchTrajectory> {
    let order = [(0, 1), (1, 2), (0, 0), (2, 0), (1, 0), (2, 2), (1, 1), (0, 2)];
    let order = if agent == EARLY { &order[..] } else { &[] };
    order.iter().map(|&(group, member)| member_of(agent, step, group, member)).collect()
}

fn member_of(agent: &str, step: u64, group: usize, member: usize) -> BatchTrajectory {
    let rows = &random_groups(900 + step, GROUPS, PLANNED, 37)[group];
    let row = Row { advantage: 1.0, ..full_rows(rows)[member % rows.len()] };
    let rewards = RewardValues::Any { reference: 0.5 };
    let (position, policy) = (FIRST + group, "policy".to_owned());
    BatchTrajectory {
        claim: ClaimId(format!("{agent}-{step}-open{group}-{member}")),
        group: GroupPlan { position, policy, version: step, members: PLANNED, rewards },
        member,
        reward: reward(member),
        rows: vec![BatchRow::from(row)],
    }
}

/// The same groups in one process.
pub(crate) fn add_in_process(trainer: &mut Trainer<CpuDevice>, agent: &str, step: u64) {
    let mut come: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for BatchTrajectory { group, member, reward, rows, .. } in members(agent, step) {
        let GroupPlan { position, ref policy, version, members, rewards } = group;
        let arrived = come.entry(position).or_insert_with(|| {
            trainer.begin_group(&OpenGroup { position, policy, version, members, rewards }).unwrap();
            BTreeSet::new()
        });
        arrived.insert(member);
        let rows: Vec<Row<'_>> = rows.iter().map(BatchRow::row).collect();
        trainer.add_trajectory(&Trajectory { group: position, member, reward, rows: &rows }).unwrap();
    }
    for (position, arrived) in come {
        for absent in (0..PLANNED).filter(|member| !arrived.contains(member)) {
            trainer.exclude_member(position, absent).unwrap();
        }
        trainer.close_group(position, &advantages(&rewards(&arrived))).unwrap();
    }
}

fn started(folder: &std::path::Path, world: usize) -> ProcessGroup {
    let mut group = group(folder, EARLY, world);
    group.activate(&placement("a", world)).unwrap();
    group.accumulate(&batches(EARLY, 0)).unwrap();
    group
}

fn close_all(group: &mut ProcessGroup) {
    while let Some((&position, open)) = group.ledger().open.first_key_value() {
        let rewards = rewards(open.arrived.keys());
        group.close_group(position, &advantages(&rewards)).unwrap();
    }
}

fn claims(members: &[BatchTrajectory]) -> BTreeSet<ClaimId> {
    members.iter().map(|member| member.claim.clone()).collect()
}

/// Trains what is left, and compares.
fn finish(mut group: ProcessGroup, folder: &std::path::Path, name: &str) {
    close_all(&mut group);
    group.apply().unwrap();
    group.save().unwrap();
    Training::new(group, folder, EARLY).run_step(1);
    assert_eq!(kept_sha256(folder, EARLY), Some(expected_sha256(EARLY)), "{name}");
}

// FX-37, FX-57, FX-58: with ranks, in any order, suspended after each member and resumed with another number of ranks
#[test]
fn members_in_any_order_on_any_number_of_ranks_that_change_give_the_bits_of_one_process() {
    for (world, order) in [(1, 1), (2, 3), (3, 5), (3, 7)] {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{world} ranks, order {order}");
        let mut group = started(folder.path(), world);
        let all = members(EARLY, 0);
        for (turn, at) in (0..MEMBERS).map(|at| (at, at * order % MEMBERS)) {
            group.add_trajectories(&all[at..=at]).unwrap();
            let before = group.ledger().clone();
            group.suspend().unwrap();
            assert_eq!(*group.ledger(), before, "{name}");
            let world = 1 + (world + turn) % 3;
            group = crate::program::group(folder.path(), EARLY, world);
            assert_eq!(*group.ledger(), before, "{name}: another coordinator reads the same");
            group.resume(&placement("b", world)).unwrap();
        }
        assert_eq!(group.ledger().open.len(), GROUPS, "{name}");
        finish(group, folder.path(), &name);
    }
}

#[test]
fn members_of_one_call_are_shared_out_and_a_group_stays_with_its_rank() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = started(folder.path(), 2);
    let all = members(EARLY, 0);
    let mut ranks = BTreeSet::new();
    for outcome in group.add_trajectories(&all[..3]).unwrap() {
        let BatchOutcome::Accumulated { rank, rows, tokens, .. } = outcome else { panic!("{outcome:?}") };
        assert!(rows > 0 && tokens >= rows);
        ranks.insert((rank, rows));
    }
    assert_eq!(ranks, [(0, 2), (1, 1)].into(), "two members of a group at rank 0, one of another at rank 1");
    let outcomes = group.add_trajectories(&all[6..7]).unwrap();
    assert!(matches!(outcomes[..], [BatchOutcome::Accumulated { rank: 1, rows: 1, .. }]), "{outcomes:?}");
    group.add_trajectories(&[&all[3..6], &all[7..]].concat()).unwrap();
    finish(group, folder.path(), "shared out");
}

// FX-61: what is in the state is kept, what came since is named, whichever rank dies wherever
#[test]
fn of_a_lost_rank_the_members_since_the_newest_state_are_lost_and_no_others() {
    let all = members(EARLY, 0);
    let boundaries =
        [Boundary::BatchReceived, Boundary::BatchAccumulated, Boundary::CloseReceived, Boundary::GroupClosed];
    for (dead, boundary) in [0, 1].into_iter().flat_map(|dead| boundaries.map(|boundary| (dead, boundary))) {
        let name = format!("rank {dead} at {boundary:?}");
        let folder = tempfile::tempdir().unwrap();
        let mut group = started(folder.path(), 2);
        group.add_trajectories(&all[..4]).unwrap();
        group.save().unwrap();
        order_kill(folder.path(), &format!("rank{dead}"), boundary, 0);
        let failed = group.add_trajectories(&all[4..]).and_then(|_| {
            let open: Vec<usize> = group.ledger().open.keys().copied().collect();
            open.into_iter().try_for_each(|position| {
                let rewards = rewards(group.ledger().open[&position].arrived.keys());
                group.close_group(position, &advantages(&rewards))
            })
        });
        let GroupError::RankLost { rank, lost, .. } = failed.unwrap_err() else { panic!("{name}") };
        assert_eq!((rank, group.life()), (dead, Life::Suspended), "{name}");
        let lost: BTreeSet<ClaimId> = lost.into_iter().collect();
        assert!(!lost.is_empty() && lost.is_subset(&claims(&all[4..])), "{name}: {lost:?}");
        let kept = &group.ledger().accumulated;
        assert!(kept.is_superset(&claims(&all[..4])) && kept.is_disjoint(&lost), "{name}");
        group.resume(&placement("b", 2)).unwrap();
        let again: Vec<_> = all.iter().filter(|member| lost.contains(&member.claim)).cloned().collect();
        group.add_trajectories(&again).unwrap();
        finish(group, folder.path(), &name);
    }
}

#[test]
fn a_group_that_is_forgotten_leaves_no_trace_and_may_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = started(folder.path(), 2);
    let all = members(EARLY, 0);
    group.add_trajectories(&all).unwrap();
    group.save().unwrap();
    group.forget_group(FIRST).unwrap();
    let (of_first, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|member| member.group.position == FIRST);
    let has = |group: &ProcessGroup, members: &[BatchTrajectory]| {
        members.iter().filter(|member| group.ledger().has(&member.claim)).count()
    };
    assert_eq!((has(&group, &of_first), has(&group, &others)), (0, others.len()));
    assert!(matches!(group.close_group(FIRST, &[0.0]), Err(GroupError::NoGroup { position: FIRST, .. })));
    assert!(matches!(group.forget_group(FIRST), Err(GroupError::NoGroup { .. })));
    group.suspend().unwrap();
    group.resume(&placement("b", 2)).unwrap();
    group.add_trajectories(&of_first).unwrap();
    // Everything, whole groups too: as if the step had just begun.
    group.forget_accumulated().unwrap();
    assert!(group.ledger().accumulated.is_empty() && group.ledger().open.is_empty());
    group.suspend().unwrap();
    group.resume(&placement("a", 2)).unwrap();
    group.accumulate(&batches(EARLY, 0)).unwrap();
    group.add_trajectories(&[of_first, others].concat()).unwrap();
    finish(group, folder.path(), "forgotten");
}

/// Who has not come is excluded when the group is closed, not when it is not.
#[test]
fn a_group_that_could_not_be_closed_still_waits_for_its_members() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = started(folder.path(), 1);
    let of_first = |member: usize| {
        members(EARLY, 0).into_iter().find(|m| m.group.position == FIRST && m.member == member).unwrap()
    };
    group.add_trajectories(&[of_first(1), of_first(0)]).unwrap();
    let refused = group.close_group(FIRST, &[1.0]).unwrap_err();
    assert!(matches!(refused, GroupError::Refused { .. }), "{refused}");
    let outcomes = group.add_trajectories(&[of_first(2)]).unwrap();
    assert!(matches!(outcomes[..], [BatchOutcome::Accumulated { .. }]), "{outcomes:?}");
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut group = started(folder.path(), 2);
    let all = members(EARLY, 0);
    group.add_trajectories(&all[..5]).unwrap();
    let before = group.ledger().clone();
    let taken = group.add_trajectories(&all[..1]).unwrap_err();
    assert!(matches!(taken, GroupError::ClaimTaken { .. }), "{taken}");
    let with = |change: &dyn Fn(&mut BatchTrajectory)| {
        let mut changed = all[5].clone();
        change(&mut changed);
        changed
    };
    let cases = [
        ("was planned otherwise", with(&|member| member.group.members = 4)),
        ("member that has come", with(&|member| member.member = 0)),
        ("member that is not planned", with(&|member| member.member = 9)),
        ("reward", with(&|member| member.reward = f64::NAN)),
        ("another version", with(&|member| (member.group.position, member.group.version) = (40, 7))),
        ("another policy", with(&|member| (member.group.position, member.group.policy) = (40, "x".into()))),
        ("an advantage of its own", with(&|member| member.rows[0].advantage = 0.5)),
        ("token", with(&|member| member.rows[0].response = vec![999])),
    ];
    for (name, member) in cases {
        // A good one of the same group is refused along: a share is added whole or not at all.
        let begun = with(&|good| (good.member, good.claim) = (1, ClaimId("good".into())));
        let outcomes = group.add_trajectories(&[begun, member.clone()]).unwrap();
        let of_member = outcomes.iter().find(|outcome| matches!(outcome, BatchOutcome::Refused { .. }));
        assert!(of_member.is_some(), "{name}: {outcomes:?}");
        if group.ledger().has(&ClaimId("good".into())) {
            assert_eq!(member.group.position, 40, "{name}: another rank's share was good");
            group.forget_group(all[5].group.position).unwrap();
            group.add_trajectories(&all[3..4]).unwrap();
        }
        assert_eq!(*group.ledger(), before, "{name}");
    }
    let open = group.apply().unwrap_err();
    assert!(matches!(&open, GroupError::OpenGroups { positions, .. } if positions.len() == 3), "{open}");
    assert_eq!(open.kind(), ErrorKind::State);
    let refused = group.close_group(FIRST, &[0.5]).unwrap_err();
    assert!(matches!(refused, GroupError::Refused { .. }), "{refused}");
    let none = group.forget_group(77).unwrap_err();
    assert!(none.to_string().contains("position 77"), "{none}");
    // A whole group in the place of an open one is found when the update is made, at the latest.
    let rows = vec![all[0].rows[0].clone()];
    let unit = BatchUnit { position: FIRST, policy: "policy".into(), version: 0, rows };
    let whole = MicroBatch { claim: ClaimId("whole".into()), units: vec![unit] };
    let outcome = group.accumulate(&[whole]).unwrap().remove(0);
    assert!(matches!(outcome, BatchOutcome::Refused { rank: 0, .. }), "{outcome:?}");
    group.forget_group(FIRST).unwrap();
    let again: Vec<_> = all.iter().filter(|member| !group.ledger().has(&member.claim)).cloned().collect();
    group.add_trajectories(&again).unwrap();
    finish(group, folder.path(), "refusals");
}
