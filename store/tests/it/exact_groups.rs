//! Groups that vary: expected, closed, counted by trajectory, with a rule for members that fail.

use std::collections::BTreeMap;

use forebay_store::*;
use proptest::prelude::*;

use crate::support::*;

fn trained(consumer: Consumer) -> (World, Store, Table, ConsumerHandle) {
    let world = World::new();
    let (store, table) = solver(&world);
    let train = store.create_consumer("train", consumer.ready(["reward"])).unwrap();
    (world, store, table, train)
}

fn trainer(size: u32) -> Consumer {
    Consumer::trainer(["solver"]).group(GroupBy::Input, size)
}

fn by_trajectory(size: u32, end: TrajectoryEnd) -> Consumer {
    Consumer::trainer(["solver"]).trajectories(GroupBy::Input, size, end)
}

/// What a step over group `q` hands out now, and whether that is all.
fn handed_out(store: &Store, train: &ConsumerHandle) -> (Vec<String>, bool) {
    let step = store.begin_step(StepPlan::new().groups(train, ["q"])).unwrap();
    let claim = step.next(train, MicroBatch::up_to(64), Wait::No).unwrap();
    let found = claim.as_ref().map_or(Vec::new(), ids);
    (found, step.is_complete(train))
}

fn reasons(store: &Store) -> BTreeMap<String, u64> {
    store.table("solver").unwrap().counts().excluded
}

fn out(table: &Table, id: &str, reason: &str) {
    table.insert_row(NewRow::new(0, id).unwrap().excluded(reason), []).unwrap();
}

type Act = fn(&Store, &Table, &ConsumerHandle);

struct Case {
    what: &'static str,
    consumer: Consumer,
    act: Act,
    handed_out: &'static [&'static str],
    complete: bool,
    reasons: &'static [(&'static str, u64)],
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let (world, store, table, train) = trained(case.consumer);
        (case.act)(&store, &table, &train);
        let expected: Vec<String> = case.handed_out.iter().map(|id| (*id).to_owned()).collect();
        let reasons_expected: BTreeMap<String, u64> =
            case.reasons.iter().map(|(reason, rows)| ((*reason).to_owned(), *rows)).collect();
        assert_eq!(handed_out(&store, &train), (expected.clone(), case.complete), "{}", case.what);
        assert_eq!(reasons(&store), reasons_expected, "{}", case.what);
        check_counts(&store);
        drop((table, train));
        let store = world.reopen(store);
        let train = store.consumer("train").unwrap();
        assert_eq!(handed_out(&store, &train), (expected, case.complete), "{}, reopened", case.what);
        assert_eq!(reasons(&store), reasons_expected, "{}, reopened", case.what);
    }
}

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

#[test]
fn what_cannot_be_said_of_a_group_is_refused() {
    let (_, store, table, train) = trained(trainer(2));
    let single = store.create_consumer("single", Consumer::task(["solver"])).unwrap();
    let turns = Consumer::task(["solver"]).group(GroupBy::InputAndTurn, 2);
    let turns = store.create_consumer("turns", turns).unwrap();
    (0..2).for_each(|t| _ = finished(&table, 0, &format!("q_0_{t}")));
    train.close_group(&table, 0, "closed").unwrap();
    let cases = [
        (single.expect_group(&table, 0, "q", 2), Kind::State, "consumer of single rows"),
        (train.expect_group(&table, 0, "q", 1), Kind::State, "has 2 members already"),
        (train.expect_group(&table, 0, "closed", 3), Kind::State, "is closed"),
        (train.expect_group(&table, 0, "new", 0), Kind::Input, "1 to 65535"),
        (train.close_trajectory(&table, 0, "q", 0), Kind::State, "counter of rows"),
        (turns.expect_group(&table, 0, "q", 2), Kind::Input, "INPUT_TURN"),
    ];
    for (result, kind, says) in cases {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(says), "{error}");
    }
    assert_eq!(train_once(&store, &train, StepPlan::new().groups(&train, ["q"]), "solver"), 2);
    let stale = train.expect_group(&table, 0, "later", 2).unwrap_err();
    assert!(matches!(stale.cause(), Cause::Stale { version: 0, current: 1, .. }), "{stale}");
}

#[test]
fn keys_may_name_agents_and_parents() {
    let cases = [
        (GroupBy::InputTurnAgent, "solver", "", "q_0/solver"),
        (GroupBy::Parent, "solver", "planner/p_0_0", "planner/p_0_0"),
        (GroupBy::Parent, "solver", "", "q"),
    ];
    for (by, agent, parent, key) in cases {
        let (_, store, table, train) = trained(Consumer::trainer(["solver"]).group(by, 2));
        let insert = |id: &str, agent: &str, parent: &str| {
            let row = NewRow::new(0, id).unwrap().agent(agent).parent(parent);
            table.insert_row(row, [("reward", 1.0.into())]).unwrap()
        };
        insert("q_0_0", agent, parent);
        insert("q_0_1", "other", "planner/p_0_7");
        let step = || store.begin_step(StepPlan::new().groups(&train, [key])).unwrap();
        assert!(step().next(&train, MicroBatch::up_to(9), Wait::No).unwrap().is_none(), "{by:?}");
        insert("q_0_2", agent, parent);
        let claim = step().next(&train, MicroBatch::up_to(9), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), ["q_0_0", "q_0_2"], "{by:?}");
        let shown = claim.columns(["group_key"]).unwrap();
        assert_eq!(show_batch(&shown), vec![format!("group_key={key}"); 2]);
    }
}

#[test]
fn conditions_and_purposes_choose_rows() {
    let world = World::new();
    let (store, table) = solver(&world);
    let eval = Consumer::task(["solver"]).purposes([Purpose::Eval]);
    let eval = store.create_consumer("eval", eval).unwrap();
    let good = Consumer::task(["solver"]).only("reward", Comparison::AtLeast, 0.5).group(GroupBy::Input, 2);
    let good = store.create_consumer("good", good).unwrap();
    let best = store.create_consumer("best", Consumer::task(["solver"]).priority("reward")).unwrap();
    for (t, reward) in [0.25, 0.5, 1.0, f64::NAN].into_iter().enumerate() {
        let row = NewRow::new(0, &format!("q_0_{t}")).unwrap();
        let row = if t == 2 { row.purpose(Purpose::Eval) } else { row };
        table.insert_row(row, [("reward", reward.into())]).unwrap();
    }
    let take = |consumer: &ConsumerHandle, rows| {
        let claim = consumer.claim(MicroBatch::up_to(rows), "me", Wait::No).unwrap();
        claim.map_or(Vec::new(), |claim| {
            let found = ids(&claim);
            claim.finish(|_| Ok(())).unwrap();
            found
        })
    };
    assert_eq!(take(&eval, 9), ["q_0_2"]);
    assert_eq!(take(&good, 9), ["q_0_1"], "the other member did not pass");
    let order: Vec<_> = (0..4).flat_map(|_| take(&best, 1)).collect();
    assert_eq!(order, ["q_0_2", "q_0_1", "q_0_0", "q_0_3"]);
    let text = Consumer::task(["solver"]).only("prompt", Comparison::Equal, 1.0);
    let refused = store.create_consumer("text", text).unwrap_err();
    assert!(matches!(refused.cause(), Cause::TypeMismatch { .. }), "{refused}");
}

#[test]
fn a_token_budget_counts_the_lists_of_a_column() {
    let world = World::new();
    let (store, table) = solver(&world);
    let task = store.create_consumer("task", Consumer::task(["solver"]).ready(["response"])).unwrap();
    let write = |t: usize, tokens: usize| {
        table.insert(0, &format!("q_0_{t}"), [("response", vec![1_i32; tokens].into())]).unwrap();
    };
    let rule = MicroBatch::tokens("response", 100);
    let take = |rule| {
        let claim = task.claim(rule, "me", Wait::No).unwrap();
        claim.map(|claim| {
            let found = ids(&claim);
            claim.finish(|_| Ok(())).unwrap();
            found
        })
    };
    write(0, 60);
    write(1, 30);
    assert_eq!(take(rule), None, "the next one may still fit");
    write(2, 50);
    assert_eq!(take(rule).unwrap(), ["q_0_0", "q_0_1"]);
    write(3, 500);
    assert_eq!(take(rule).unwrap(), ["q_0_2"]);
    assert_eq!(take(rule).unwrap(), ["q_0_3"], "at least one, however large");
    (4..8).for_each(|t| write(t, 10));
    assert_eq!(take(MicroBatch::of(3).tokens_at_most("response", 100)).unwrap().len(), 3);
    for column in
        ["reward", "nothing", "a name that is longer than sixty-four characters, which no column has"]
    {
        let refused = task.claim(MicroBatch::tokens(column, 1), "me", Wait::No).unwrap_err();
        assert_eq!(refused.kind(), Kind::Input, "{refused}");
    }
}

// What follows: one group of a task under random calls, beside a model that keeps plain rows and counts them each time.

const SIZE: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Waiting,
    Ready,
    Taken,
    Done,
    /// Left out, as a member of the group.
    Out,
    /// Never a member, or its next attempt has its place.
    Aside,
}

#[derive(Clone, Debug)]
struct ModelRow {
    row: Row,
    trajectory: u32,
    turn: u32,
    stands: Stands,
    excluded: bool,
    latest: bool,
    written: bool,
}

#[derive(Clone, Debug, Default)]
struct Model {
    rows: Vec<ModelRow>,
    size: u32,
    closed: bool,
    short: bool,
    failed: bool,
    ended: Vec<u32>,
    started: Vec<u32>,
}

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

#[derive(Clone, Copy, Debug)]
struct Declared {
    rule: GroupRule,
    end: Option<TrajectoryEnd>,
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

impl Model {
    fn of_trajectory(&self, number: u32) -> impl Iterator<Item = &ModelRow> {
        self.rows.iter().filter(move |row| row.trajectory == number && row.stands != Stands::Aside)
    }

    /// Members, how many of them are waited for, and how many are out.
    fn counts(&self, of: Declared) -> (u32, u32, u32) {
        let count = |stands| self.rows.iter().filter(|row| row.stands == stands).count() as u32;
        if of.end.is_none() {
            let members = self.rows.iter().filter(|row| row.stands != Stands::Aside).count() as u32;
            return (members, count(Stands::Waiting), count(Stands::Out));
        }
        let waits = |number: &&u32| {
            !self.ended.contains(number)
                || self.of_trajectory(**number).any(|row| row.stands == Stands::Waiting)
        };
        let is_out = |number: &&u32| {
            !waits(number)
                && self.of_trajectory(**number).count() > 0
                && self.of_trajectory(**number).all(|row| row.stands == Stands::Out)
        };
        let waiting = self.started.iter().filter(waits).count();
        (self.started.len() as u32, waiting as u32, self.started.iter().filter(is_out).count() as u32)
    }

    fn fails(&self, of: Declared) -> bool {
        let (.., out) = self.counts(of);
        self.short
            || match of.rule {
                GroupRule::NextAttempt => false,
                GroupRule::Exclude => out > 0,
                GroupRule::Shrink { least } => out > 0 && self.size - out < least.min(self.size),
            }
    }

    /// Lets the rule act: rows that nobody holds go when the group fails.
    fn settle(&mut self, of: Declared) {
        let open = |row: &ModelRow| matches!(row.stands, Stands::Waiting | Stands::Ready);
        let waits = of.end.is_some() && self.counts(of).1 > 0;
        if !self.failed && self.fails(of) && (waits || self.rows.iter().any(open)) {
            self.failed = true;
        }
        if self.failed {
            self.rows.iter_mut().filter(|row| open(row)).for_each(|row| row.stands = Stands::Out);
        }
    }

    fn ready(&self, of: Declared) -> Vec<usize> {
        let (members, waiting, out) = self.counts(of);
        let waits = of.rule == GroupRule::NextAttempt && out > 0 && !self.closed;
        if self.failed || members < self.size || waiting > 0 || waits {
            return Vec::new();
        }
        (0..self.rows.len()).filter(|&at| self.rows[at].stands == Stands::Ready).collect()
    }

    fn has_place(&self, of: Declared, trajectory: u32) -> bool {
        let (members, ..) = self.counts(of);
        match of.end {
            _ if self.failed => false,
            Some(_) if self.started.contains(&trajectory) => !self.ended.contains(&trajectory),
            _ => members < self.size,
        }
    }

    fn enter(&mut self, of: Declared, new: ModelRow) {
        let number = new.trajectory;
        self.rows.push(new);
        if of.end.is_some() && !self.started.contains(&number) {
            self.started.push(number);
        }
        if let Some(TrajectoryEnd::Rows(rows)) = of.end
            && self.of_trajectory(number).count() as u32 >= rows
            && !self.ended.contains(&number)
        {
            self.ended.push(number);
        }
    }

    fn insert(&mut self, of: Declared, new: ModelRow, replaces: Option<usize>) {
        let was_member = replaces.is_some_and(|old| self.rows[old].stands != Stands::Aside && !self.failed);
        if let Some(old) = replaces {
            (self.rows[old].stands, self.rows[old].latest) = (Stands::Aside, false);
        }
        if was_member || self.has_place(of, new.trajectory) {
            self.enter(of, new);
            self.settle(of);
            let last = self.rows.len() - 1;
            self.turn_ready(last, of);
        } else {
            self.rows.push(ModelRow { stands: Stands::Aside, ..new });
        }
    }

    fn turn_ready(&mut self, at: usize, of: Declared) {
        let row = &mut self.rows[at];
        if row.written && row.stands == Stands::Waiting {
            row.stands = Stands::Ready;
            self.settle(of);
        }
    }

    fn exclude(&mut self, at: usize, of: Declared) {
        let row = &mut self.rows[at];
        if !row.excluded {
            row.excluded = true;
            if row.stands != Stands::Aside {
                row.stands = Stands::Out;
            }
            self.settle(of);
        }
    }

    fn close(&mut self, of: Declared) {
        if self.closed {
            return;
        }
        let late = self.rows.iter_mut().filter(|row| row.stands == Stands::Waiting);
        late.for_each(|row| row.stands = Stands::Out);
        self.ended.clone_from(&self.started);
        let (members, _, out) = self.counts(of);
        self.short = match of.rule {
            GroupRule::NextAttempt => false,
            GroupRule::Exclude => out > 0 || members < self.size,
            GroupRule::Shrink { least } => members - out < least.min(self.size),
        };
        (self.closed, self.size) = (true, members);
        self.settle(of);
    }
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

impl Model {
    /// A claim of these rows has ended.
    fn end(&mut self, rows: Vec<usize>, finish: bool, of: Declared) {
        for at in rows.into_iter().filter(|&at| self.rows[at].stands == Stands::Taken).collect::<Vec<_>>() {
            self.rows[at].stands = match (finish, self.failed) {
                (true, _) => Stands::Done,
                (false, true) => Stands::Out,
                (false, false) => Stands::Ready,
            };
            self.settle(of);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn one_group_follows_its_model(of in declared(), ops in prop::collection::vec(op(), 1..60)) {
        follow(of, &ops);
    }
}
