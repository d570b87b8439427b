//! What becomes of groups that are expected, closed, or lose a member.

use super::*;

#[test]
fn a_group_has_exactly_the_members_that_are_expected() {
    check(vec![
        Case {
            what: "a surplus row is left out with its reason",
            consumer: trainer(2),
            act: |_, table, _| (0..4).for_each(|t| _ = finished(table, 0, &format!("q_0_{t}"))),
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("surplus", 2)],
        },
        Case {
            what: "a group that is expected to be larger waits",
            consumer: trainer(2),
            act: |_, table, train| {
                train.expect_group(table, 0, "q", 3).unwrap();
                (0..2).for_each(|t| _ = finished(table, 0, &format!("q_0_{t}")));
            },
            handed_out: &[],
            complete: false,
            reasons: &[],
        },
        Case {
            what: "a group that is expected to be smaller does not",
            consumer: trainer(8),
            act: |_, table, train| {
                finished(table, 0, "q_0_0");
                finished(table, 0, "q_0_5");
                train.expect_group(table, 0, "q", 2).unwrap();
            },
            handed_out: &["q_0_0", "q_0_5"],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "a closed group goes on with who is ready",
            consumer: trainer(8),
            act: |_, table, train| {
                finished(table, 0, "q_0_0");
                table.insert(0, "q_0_1", []).unwrap();
                train.close_group(table, 0, "q").unwrap();
                train.close_group(table, 0, "q").unwrap();
                finished(table, 0, "q_0_2");
            },
            handed_out: &["q_0_0"],
            complete: true,
            reasons: &[("late", 2)],
        },
        Case {
            what: "a group to which nobody came is over when it is closed",
            consumer: trainer(8),
            act: |_, table, train| train.close_group(table, 0, "q").unwrap(),
            handed_out: &[],
            complete: true,
            reasons: &[],
        },
        Case {
            what: "the next attempt of a member has its place",
            consumer: trainer(2),
            act: |_, table, _| {
                (0..2).for_each(|t| _ = finished(table, 0, &format!("q_0_{t}")));
                let again = NewRow::new(0, "q_0_1").unwrap().next_attempt();
                table.insert_row(again, [("reward", 1.0.into())]).unwrap();
            },
            handed_out: &["q_0_0", "q_0_1"],
            complete: true,
            reasons: &[("superseded", 1)],
        },
    ]);
}

#[test]
fn the_rule_says_what_a_failed_member_means() {
    let rule = |rule| trainer(3).when_a_member_fails(rule);
    let one_fails: Act = |_, table, _| {
        finished(table, 0, "q_0_0");
        out(table, "q_0_1", "crashed");
        finished(table, 0, "q_0_2");
    };
    let two_fail: Act = |_, table, _| {
        out(table, "q_0_0", "crashed");
        finished(table, 0, "q_0_1");
        out(table, "q_0_2", "too long");
    };
    let late: Act = |_, table, train| {
        finished(table, 0, "q_0_0");
        finished(table, 0, "q_0_1");
        train.close_group(table, 0, "q").unwrap();
        finished(table, 0, "q_0_2");
    };
    let both = &["q_0_0", "q_0_2"][..];
    let cases = [
        ("shrinks", GroupRule::Shrink { least: 2 }, one_fails, both, true, &[("crashed", 1)][..]),
        ("too few", GroupRule::Shrink { least: 2 }, two_fail, &[], true, &[("crashed", 1), ("too long", 2)]),
        ("excludes", GroupRule::Exclude, one_fails, &[], true, &[("crashed", 3)]),
        ("waits", GroupRule::NextAttempt, one_fails, &[], false, &[("crashed", 1)]),
        ("late, shrinks", GroupRule::Shrink { least: 2 }, late, &["q_0_0", "q_0_1"], true, &[("late", 1)]),
        ("late, too few", GroupRule::Shrink { least: 3 }, late, &[], true, &[("late", 3)]),
        ("late, excludes", GroupRule::Exclude, late, &[], true, &[("late", 3)]),
        ("late, closed", GroupRule::NextAttempt, late, &["q_0_0", "q_0_1"], true, &[("late", 1)]),
    ];
    let case = |(what, of, act, handed_out, complete, reasons)| Case {
        what,
        consumer: rule(of),
        act,
        handed_out,
        complete,
        reasons,
    };
    check(cases.into_iter().map(case).collect());
}

#[test]
fn a_next_attempt_makes_a_group_whole_that_waits_for_it() {
    let (_, store, table, train) = trained(trainer(2).when_a_member_fails(GroupRule::NextAttempt));
    finished(&table, 0, "q_0_0");
    out(&table, "q_0_1", "crashed");
    assert_eq!(handed_out(&store, &train), (vec![], false));
    let again = NewRow::new(0, "q_0_1").unwrap().next_attempt();
    table.insert_row(again, [("reward", 1.0.into())]).unwrap();
    assert_eq!(handed_out(&store, &train).0, ["q_0_0", "q_0_1"]);
}
