#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::ErrorKind;

use super::super::batch::{BatchRow, BatchUnit, ClaimId};
use super::super::cached::OpenMembers;
use super::super::trajectory::GroupPlan;
use super::*;
use crate::gradient::RewardValues;

fn batch() -> MicroBatch {
    let row = BatchRow {
        prompt: vec![1, 2],
        response: vec![3, 4],
        advantage: -0.5,
        loss_mask: Some(vec![true, false]),
        behaviour_log_probs: Some(vec![-1.0, -2.5]),
        reference_log_probs: None,
        weight: 2.0,
    };
    let unit = BatchUnit { position: 3, policy: "solver".into(), version: 9, rows: vec![row.clone(), row] };
    MicroBatch { claim: ClaimId("claim-7".into()), units: vec![unit] }
}

fn trajectory(rewards: RewardValues) -> BatchTrajectory {
    let group = GroupPlan { position: 5, policy: "solver".into(), version: 9, members: 4, rewards };
    let rows = batch().units.swap_remove(0).rows;
    BatchTrajectory { claim: ClaimId("claim-8".into()), group, member: 2, reward: 0.25, rows }
}

fn commands() -> Vec<Command> {
    let load = |version| Command::Load { key: "solver".into(), version, caches: vec!["cache.1.0".into()] };
    vec![
        load(0),
        load(3),
        Command::Accumulate(batch()),
        Command::Apply { learning_rate: None },
        Command::Apply { learning_rate: Some(3e-4) },
        Command::Stage { trainer: true, cache: "cache.2.0".into() },
        Command::End,
        Command::Add(vec![
            trajectory(RewardValues::Any { reference: 0.5 }),
            trajectory(RewardValues::Two { low: -1.0, high: 2.0 }),
        ]),
        Command::Close { position: 5, advantages: vec![0.5, -0.5] },
        Command::Forget { position: Some(5) },
        Command::Forget { position: None },
    ]
}

fn answers() -> Vec<Answer> {
    let claims = vec![ClaimId("a".into()), ClaimId("b".into())];
    let open = OpenMembers { planned: 3, arrived: [(1, claims[1].clone())].into() };
    let (policy_version, cached) = (4, Cached { claims, open: [(7, open)].into() });
    let report = StepReport {
        gradient_norm: 0.5,
        clipped: true,
        units: 1,
        rows: 2,
        tokens: 3,
        denominator: 3.0,
        version: 4,
    };
    let times = LoadTimes { context_us: 1, get_us: 2, copy_us: 3 };
    vec![
        Answer::Hello { protocol: 1, rank: 2, pid: 77 },
        Answer::Loaded { policy_version, cached: cached.clone(), times },
        Answer::Accumulated { rows: 1, tokens: 2, compute_us: 3 },
        Answer::Applied { policy_version, weights_sha256: "ab".into(), report },
        Answer::Staged { policy_version, cached, trainer: Some(Staged("x 1".into())), cache: None },
        Answer::Added { rows: 1, tokens: 2, compute_us: 3 },
        Answer::Closed,
        Answer::Forgotten,
        Answer::Refused { reason: "no".into(), is_cache_lost: true },
    ]
}

#[test]
fn messages_come_back_as_they_were() {
    for command in commands() {
        let mut bytes = Vec::new();
        command.write(&mut bytes).unwrap();
        assert_eq!(Command::read(&mut bytes.as_slice()).unwrap(), command);
    }
    for answer in answers() {
        let mut bytes = Vec::new();
        answer.write(&mut bytes).unwrap();
        assert_eq!(Answer::read(&mut bytes.as_slice()).unwrap(), answer);
    }
}

/// Every cut, every byte set to every extreme, and random bytes behind a true head: an error or a message, never a panic, and no
/// memory for lengths that are not there.
#[test]
fn hostile_bytes_are_errors() {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    commands().iter().for_each(|command| {
        frames.push(Vec::new());
        command.write(frames.last_mut().unwrap()).unwrap();
    });
    answers().iter().for_each(|answer| {
        frames.push(Vec::new());
        answer.write(frames.last_mut().unwrap()).unwrap();
    });
    for frame in &frames {
        for length in 0..frame.len() {
            assert!(Command::read(&mut &frame[..length]).is_err());
            assert!(Answer::read(&mut &frame[..length]).is_err());
        }
        for at in 0..frame.len() {
            for value in [0, 1, 0x7F, 0xFF] {
                let mut changed = frame.clone();
                changed[at] = value;
                let _ = Command::read(&mut changed.as_slice());
                let _ = Answer::read(&mut changed.as_slice());
            }
        }
    }
    let mut long = frames[2].clone();
    long.push(0);
    let body = (long.len() - 13) as u64;
    long[5..13].copy_from_slice(&body.to_le_bytes());
    assert_eq!(Command::read(&mut long.as_slice()).unwrap_err().kind(), ErrorKind::InvalidData);
}
