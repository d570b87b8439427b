//! One group of a task under random calls, beside its model.

use proptest::prelude::*;

use super::model::{Declared, Model, ModelRow, Stands};
use super::*;

const SIZE: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    Insert { trajectory: u32, turn: u32, ready: bool, excluded: bool },
    Again { row: usize, ready: bool },
    Write { row: usize },
    Exclude { row: usize },
    Expect { members: u32 },
    Close,
    CloseTrajectory { trajectory: u32 },
    Claim,
    End { finish: bool },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..4_u32, 0..2_u32, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(trajectory, turn, ready, excluded)| Op::Insert { trajectory, turn, ready, excluded }),
        2 => (0..16_usize, any::<bool>()).prop_map(|(row, ready)| Op::Again { row, ready }),
        5 => (0..16_usize).prop_map(|row| Op::Write { row }),
        2 => (0..16_usize).prop_map(|row| Op::Exclude { row }),
        1 => (1..5_u32).prop_map(|members| Op::Expect { members }),
        1 => Just(Op::Close),
        3 => (0..4_u32).prop_map(|trajectory| Op::CloseTrajectory { trajectory }),
        4 => Just(Op::Claim),
        3 => any::<bool>().prop_map(|finish| Op::End { finish }),
        1 => Just(Op::Reopen),
    ]
}

fn declared() -> impl Strategy<Value = Declared> {
    let rule = prop_oneof![
        Just(GroupRule::NextAttempt),
        (1..4_u32).prop_map(|least| GroupRule::Shrink { least }),
        Just(GroupRule::Exclude),
    ];
    let end = prop_oneof![
        2 => Just(None),
        2 => Just(Some(TrajectoryEnd::Closed)),
        1 => Just(Some(TrajectoryEnd::Rows(2))),
    ];
    (rule, end).prop_map(|(rule, end)| Declared { rule, end })
}

fn follow(of: Declared, ops: &[Op]) {
    let world = World::new();
    let (mut store, mut table) = solver(&world);
    let consumer = Consumer::task(["solver"]).ready(["reward"]);
    let consumer = match of.end {
        None => consumer.group(GroupBy::Input, SIZE),
        Some(end) => consumer.trajectories(GroupBy::Input, SIZE, end),
    };
    store.create_consumer("task", consumer.when_a_member_fails(of.rule)).unwrap();
    let mut model = Model { size: SIZE, ..Model::default() };
    let mut claim: Option<(Claim, Vec<usize>)> = None;
    for op in ops {
        let task = store.consumer("task").unwrap();
        match *op {
            Op::Insert { trajectory, turn, ready, excluded } => {
                if model.rows.iter().any(|row| (row.trajectory, row.turn) == (trajectory, turn)) {
                    continue;
                }
                let new = NewRow::new(0, &format!("q_{turn}_{trajectory}")).unwrap();
                let new = if excluded { new.excluded("lost") } else { new };
                let cells = ready.then(|| ("reward", Value::from(1.0)));
                let row = table.insert_row(new, cells).unwrap();
                let (stands, written) = (Stands::Waiting, ready);
                let new = ModelRow { row, trajectory, turn, stands, excluded: false, latest: true, written };
                model.insert(of, new, None);
                if excluded {
                    let last = model.rows.len() - 1;
                    model.exclude(last, of);
                }
            }
            Op::Again { row, ready } => {
                let Some(at) = row.checked_rem(model.rows.len()).filter(|&at| model.rows[at].latest) else {
                    continue;
                };
                let old = model.rows[at].clone();
                let id = format!("q_{}_{}", old.turn, old.trajectory);
                let cells = ready.then(|| ("reward", Value::from(1.0)));
                let row = table.insert_row(NewRow::new(0, &id).unwrap().next_attempt(), cells).unwrap();
                let stands = Stands::Waiting;
                model.rows[at].excluded = true;
                let new = ModelRow { row, stands, excluded: false, latest: true, written: ready, ..old };
                model.insert(of, new, Some(at));
                model.settle(of);
            }
            Op::Write { row } => {
                let Some(at) = row.checked_rem(model.rows.len()) else { continue };
                let written = table.write(model.rows[at].row, [("reward", 1.0.into())]);
                assert_eq!(written.is_ok(), model.rows[at].written || !model.rows[at].excluded);
                if written.is_ok() {
                    model.rows[at].written = true;
                    model.turn_ready(at, of);
                }
            }
            Op::Exclude { row } => {
                let Some(at) = row.checked_rem(model.rows.len()) else { continue };
                table.exclude(model.rows[at].row, "lost").unwrap();
                model.exclude(at, of);
            }
            Op::Expect { members } => {
                let (there, ..) = model.counts(of);
                let taken = model.rows.iter().any(|row| matches!(row.stands, Stands::Taken | Stands::Done));
                let fits = !model.closed && (members == model.size || !taken && members >= there);
                let said = task.expect_group(&table, 0, "q", members);
                if model.failed {
                    continue; // whatever was said, it is left out
                }
                assert_eq!(said.is_ok(), fits, "{said:?}");
                if fits && members != model.size {
                    model.size = members;
                    model.settle(of);
                }
            }
            Op::Close => {
                task.close_group(&table, 0, "q").unwrap();
                if !model.failed {
                    model.close(of);
                }
            }
            Op::CloseTrajectory { trajectory } => {
                let said = task.close_trajectory(&table, 0, "q", trajectory);
                if model.failed || of.end.is_none() {
                    continue;
                }
                let known = model.started.contains(&trajectory);
                assert_eq!(said.is_ok(), known || model.counts(of).0 < model.size, "{said:?}");
                if said.is_ok() {
                    if !known {
                        model.started.push(trajectory);
                    }
                    if !model.ended.contains(&trajectory) {
                        model.ended.push(trajectory);
                    }
                    model.settle(of);
                }
            }
            Op::Claim if claim.is_none() => {
                let taken = task.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap();
                let expected = model.ready(of);
                assert_eq!(taken.as_ref().map_or(0, Claim::len), expected.len());
                if let Some(taken) = taken {
                    expected.iter().for_each(|&at| model.rows[at].stands = Stands::Taken);
                    claim = Some((taken, expected));
                }
            }
            Op::Claim => {}
            Op::End { finish } => {
                let Some((taken, rows)) = claim.take() else { continue };
                if finish {
                    taken.finish(|_| Ok(())).unwrap();
                } else {
                    drop(taken);
                }
                model.end(rows, finish, of);
            }
            Op::Reopen => {
                drop(task);
                if let Some((taken, rows)) = claim.take() {
                    std::mem::forget(taken);
                    model.end(rows, false, of);
                }
                store = world.reopen(store);
                table = store.table("solver").unwrap();
            }
        }
        let shown = store.consumers().iter().map(|info| info.ready_rows).sum::<u64>();
        assert_eq!(shown, model.ready(of).len() as u64, "after {op:?}: {model:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn one_group_follows_its_model(of in declared(), ops in prop::collection::vec(op(), 1..60)) {
        follow(of, &ops);
    }
}
