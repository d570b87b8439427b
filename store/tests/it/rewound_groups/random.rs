//! Random calls about groups, and rewinds between them: no group grows, and every way to a state leads to the same.

use std::collections::BTreeSet;

use forebay_store::*;
use proptest::prelude::*;

use super::{next_process, of_rows, of_trajectories, open};
use crate::support::*;

/// What is done to groups of two versions, of which a rewind brings the first back again and again.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A row comes, late where its version is over.
    Insert {
        group: u32,
        trajectory: u32,
        turn: u32,
        ready: bool,
    },
    Again {
        row: usize,
    },
    Finish {
        row: usize,
    },
    Exclude {
        row: usize,
    },
    Delete {
        row: usize,
    },
    Expect {
        group: u32,
        members: u32,
    },
    Close {
        group: u32,
    },
    CloseTrajectory {
        group: u32,
        trajectory: u32,
    },
    Train,
    Rewind,
    Restart {
        checkpoint: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (group, row) = (0..3_u32, 0..32_usize);
    prop_oneof![
        9 => (group.clone(), 0..4_u32, 0..2_u32, prop::bool::weighted(0.8))
            .prop_map(|(group, trajectory, turn, ready)| Op::Insert { group, trajectory, turn, ready }),
        1 => row.clone().prop_map(|row| Op::Again { row }),
        2 => row.clone().prop_map(|row| Op::Finish { row }),
        1 => row.clone().prop_map(|row| Op::Exclude { row }),
        2 => row.prop_map(|row| Op::Delete { row }),
        1 => (group.clone(), 1..4_u32).prop_map(|(group, members)| Op::Expect { group, members }),
        1 => group.clone().prop_map(|group| Op::Close { group }),
        1 => (group, 0..4_u32).prop_map(|(group, trajectory)| Op::CloseTrajectory { group, trajectory }),
        3 => Just(Op::Train),
        3 => Just(Op::Rewind),
        1 => any::<bool>().prop_map(|checkpoint| Op::Restart { checkpoint }),
    ]
}

/// A trainer of groups, and how many rows a member has at most.
fn grouped() -> impl Strategy<Value = (Consumer, usize)> {
    let rules = [GroupRule::NextAttempt, GroupRule::Shrink { least: 2 }, GroupRule::Exclude];
    let rule = (0..rules.len()).prop_map(move |at| rules[at]);
    let declared = prop_oneof![
        Just((of_rows(2), 1)),
        Just((of_trajectories(2, TrajectoryEnd::Rows(2)), 2)),
        Just((of_trajectories(2, TrajectoryEnd::Closed), 2)),
    ];
    (declared, rule).prop_map(|((declared, rows), rule)| (declared.when_a_member_fails(rule), rows))
}

/// All that a store tells of its rows and groups, and what a step over all groups would be handed.
fn told(store: &Store) -> String {
    let train = store.consumer("train").unwrap();
    let groups = train.open_groups();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1", "q2"])).unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap() {
        claims.push(claim);
    }
    let handed_out: Vec<_> = claims.iter().map(ids).collect();
    let complete = step.is_complete(&train);
    drop((step, claims));
    let consumers: Vec<_> = store.consumers().iter().map(|info| info.ready_rows).collect();
    format!("{:?} {groups:?} {handed_out:?} {complete} {consumers:?}", scan_content(store))
}

/// Nothing that is handed out together is larger than what was expected, whatever came, went and was undone, and every way
/// to the state leads to the same.
fn follow((consumer, member_rows): &(Consumer, usize), ops: &[Op]) {
    let world = World::new();
    let mut store = open(&world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    store.create_consumer("train", consumer.clone()).unwrap();
    drop(table);
    let mut rows: Vec<(Row, SampleId)> = Vec::new();
    for op in ops {
        let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
        let row = |at: usize| rows.get(at).map(|(row, _)| *row);
        // What cannot be done now is refused, which changes nothing.
        match *op {
            Op::Insert { group, trajectory, turn, ready } => {
                let id = SampleId::new(&format!("q{group}"), turn, trajectory).unwrap();
                let new = NewRow::of(0, id.clone()).late();
                let inserted = table.insert_row(new, ready.then(|| ("reward", Value::from(1.0))));
                rows.extend(inserted.map(|row| (row, id)));
            }
            Op::Again { row: at } => {
                let Some((_, id)) = rows.get(at).cloned() else { continue };
                let new = NewRow::of(0, id.clone()).late().next_attempt();
                rows.extend(table.insert_row(new, [("reward", 1.0.into())]).map(|row| (row, id)));
            }
            Op::Finish { row: at } => _ = row(at).map(|row| table.write(row, [("reward", 1.0.into())])),
            Op::Exclude { row: at } => _ = row(at).map(|row| table.exclude(row, "lost")),
            Op::Delete { row: at } => _ = row(at).map(|row| table.delete(&Delete::rows([row]).force())),
            Op::Expect { group, members } => {
                _ = train.expect_group(&table, 0, &format!("q{group}"), members);
            }
            Op::Close { group } => _ = train.close_group(&table, 0, &format!("q{group}")),
            Op::CloseTrajectory { group, trajectory } => {
                _ = train.close_trajectory(&table, 0, &format!("q{group}"), trajectory);
            }
            Op::Train => {
                let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1", "q2"])).unwrap();
                let next = || step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap();
                let mut any = false;
                while let Some(claim) = next() {
                    claim.accumulated().unwrap();
                    any = true;
                }
                if any {
                    step.commit([("solver", vec![])]).unwrap();
                }
            }
            Op::Rewind => _ = store.rewind(0, Rewind::TrainAgain),
            Op::Restart { checkpoint } => {
                if checkpoint {
                    store.checkpoint().unwrap();
                }
                drop((table, train));
                store = next_process(&world, store);
            }
        }
        check_sizes(&store, ops, *member_rows);
    }
    let live = told(&store);
    store = next_process(&world, store);
    assert_eq!(told(&store), live, "from the log");
    store.checkpoint().unwrap();
    assert_eq!(told(&next_process(&world, store)), live, "from a checkpoint");
}

/// No group hands out more members than the most that were ever expected of one.
fn check_sizes(store: &Store, ops: &[Op], member_rows: usize) {
    let said =
        ops.iter().filter_map(|op| if let Op::Expect { members, .. } = op { Some(*members) } else { None });
    let most = said.max().unwrap_or(0).max(2) as usize;
    let train = store.consumer("train").unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q0", "q1", "q2"])).unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap() {
        let samples = claim.sample_ids();
        let trajectories: BTreeSet<u32> = samples.iter().map(SampleId::trajectory).collect();
        assert!(trajectories.len() <= most && samples.len() <= member_rows * most, "{:?}", ids(&claim));
        claims.push(claim);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn groups_keep_their_size_through_rewinds_and_are_the_same_from_the_log_and_from_a_checkpoint(
        consumer in grouped(),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        follow(&consumer, &ops);
    }
}
