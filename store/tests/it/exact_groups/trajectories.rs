//! Groups of trajectories of one or many rows.

use super::*;

// PL-B17, PL-04: a skipped turn leaves no gap
#[test]
fn trajectories_are_one_or_many_rows() {
    check(vec![
        Case {
            what: "a trajectory is waited for until it is closed",
            consumer: by_trajectory(2, TrajectoryEnd::Closed),
            act: |_, table, train| {
                ["q_0_0", "q_1_0", "q_0_1"].iter().for_each(|id| _ = finished(table, 0, id));
                train.close_trajectory(table, 0, "q", 0).unwrap();
            },
            handed_out: &[],
            complete: false,
            reasons: &[],
        },
        Case {
            what: "turns may be skipped, and an agent may take none",
            consumer: by_trajectory(3, TrajectoryEnd::Closed),
            act: |_, table, train| {
                ["q_0_0", "q_3_0", "q_1_1"].iter().for_each(|id| _ = finished(table, 0, id));
                (0..3).for_each(|t| train.close_trajectory(table, 0, "q", t).unwrap());
                (0..3).for_each(|t| train.close_trajectory(table, 0, "q", t).unwrap());
            },
            handed_out: &["q_0_0", "q_1_1", "q_3_0"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "what comes after the end, or in one trajectory too many, is surplus",
            consumer: by_trajectory(1, TrajectoryEnd::Closed),
            act: |_, table, train| {
                finished(table, 0, "q_0_0");
                finished(table, 0, "q_0_1");
                train.close_trajectory(table, 0, "q", 0).unwrap();
                finished(table, 0, "q_1_0");
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("surplus", 2)],
        },
        Case {
            what: "a declared number of rows is an end",
            consumer: by_trajectory(2, TrajectoryEnd::Rows(2)),
            act: |_, table, train| {
                ["q_0_0", "q_1_0", "q_0_1"].iter().for_each(|id| _ = finished(table, 0, id));
                train.close_trajectory(table, 0, "q", 1).unwrap();
            },
            handed_out: &["q_0_0", "q_0_1", "q_1_0"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "a row that is left out is not the trajectory",
            consumer: by_trajectory(1, TrajectoryEnd::Rows(2)).when_a_member_fails(GroupRule::Exclude),
            act: |_, table, _| {
                finished(table, 0, "q_0_0");
                out(table, "q_1_0", "cut");
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("cut", 1)],
        },
        Case {
            what: "a trajectory of which nothing is left has failed",
            consumer: by_trajectory(2, TrajectoryEnd::Rows(1)).when_a_member_fails(GroupRule::Exclude),
            act: |_, table, _| {
                finished(table, 0, "q_0_0");
                out(table, "q_0_1", "cut");
            },
            handed_out: &[],
            complete: true,
            reasons: &[("cut", 2)],
        },
        Case {
            what: "an open trajectory is late when its group is closed",
            consumer: by_trajectory(3, TrajectoryEnd::Closed),
            act: |_, table, train| {
                ["q_0_0", "q_0_1"].iter().for_each(|id| _ = finished(table, 0, id));
                table.insert(0, "q_1_1", []).unwrap();
                train.close_group(table, 0, "q").unwrap();
            },
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("late", 1)],
        },
    ]);
}

#[test]
fn the_last_cell_of_a_trajectory_closes_it_in_the_same_record() {
    let (_, store, table, train) = trained(by_trajectory(1, TrajectoryEnd::Closed));
    let row = table.insert(0, "q_0_0", []).unwrap();
    let mut batch = store.batch();
    batch.write(&table, row, [("reward", 1.0.into())]).unwrap();
    batch.close_trajectory(&train, &table, 0, "q", 0).unwrap();
    batch.commit().unwrap();
    assert_eq!(handed_out(&store, &train), (vec!["q_0_0".to_owned()], true));
}
