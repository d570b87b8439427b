//! Groups: by key, whole, and exactly once, whatever happens to their members.

use forebay_store::*;

use crate::support::*;

fn task(group: u32) -> (Store, Table, ConsumerHandle) {
    let (store, table) = solver(&World::new());
    let declared = Consumer::task(["solver"]).ready(["reward"]).group(GroupBy::Input, group);
    let consumer = store.create_consumer("task", declared).unwrap();
    (store, table, consumer)
}

fn take(consumer: &ConsumerHandle) -> Option<Claim> {
    consumer.claim(MicroBatch::up_to(1), "me", Wait::No).unwrap()
}

fn take_ids(consumer: &ConsumerHandle) -> Vec<String> {
    take(consumer).map_or(Vec::new(), |claim| {
        let found = ids(&claim);
        claim.finish(|_| Ok(())).unwrap();
        found
    })
}

fn again(table: &Table, id: &str) -> Row {
    table.insert_row(NewRow::new(0, id).unwrap().next_attempt(), []).unwrap()
}

fn reward(table: &Table, row: Row) {
    table.write(row, [("reward", 1.0.into())]).unwrap();
}

// FX-B15: n = 4, ready {1, 2, 3, 4} of two prompts is no group
#[test]
fn four_ready_rows_in_a_row_of_two_inputs_are_no_group() {
    let (_, table, consumer) = task(4);
    let members: Vec<String> =
        ["a", "b"].iter().flat_map(|input| (0..4).map(move |t| format!("{input}_0_{t}"))).collect();
    let rows: Vec<Row> = members.iter().map(|id| table.insert(0, id, []).unwrap()).collect();
    (1..=4).for_each(|index| reward(&table, rows[index]));
    assert!(take(&consumer).is_none());
    reward(&table, rows[0]);
    assert_eq!(take_ids(&consumer), ["a_0_0", "a_0_1", "a_0_2", "a_0_3"]);
    assert!(take(&consumer).is_none());
}

#[test]
fn versions_turns_and_tables_do_not_mix_in_a_group() {
    let store = World::new().open();
    let (a, b) = (
        store.create_table("a", solver_schema()).unwrap(),
        store.create_table("b", solver_schema()).unwrap(),
    );
    let declared = Consumer::task(["a", "b"]).ready(["reward"]).group(GroupBy::InputAndTurn, 2);
    let consumer = store.create_consumer("task", declared).unwrap();
    finished(&a, 0, "q_0_0");
    finished(&b, 0, "q_0_1");
    finished(&a, 1, "q_0_1");
    finished(&a, 0, "q_1_1");
    assert!(take(&consumer).is_none());
    finished(&b, 0, "q_0_0");
    let claim = take(&consumer).unwrap();
    assert_eq!((claim.table(), ids(&claim)), ("b", vec!["q_0_0".to_owned(), "q_0_1".to_owned()]));
}

/// What happens to the member `q_0_1` of a group of two whose `q_0_0` is ready, and what is then handed out.
#[test]
fn a_group_goes_on_without_the_member_that_left_or_with_its_next_attempt() {
    type Act = fn(&Store, &Table);
    let both: &[&str] = &["q_0_0", "q_0_1"];
    let cases: [(&str, Act, &[&str]); 11] = [
        (
            "it is excluded while it waits",
            |_, t| t.exclude(t.insert(0, "q_0_1", []).unwrap(), "lost").unwrap(),
            &["q_0_0"],
        ),
        ("it is excluded when ready", |_, t| t.exclude(finished(t, 0, "q_0_1"), "lost").unwrap(), &["q_0_0"]),
        (
            "it is left out from the start",
            |_, t| _ = t.insert_row(NewRow::new(0, "q_0_1").unwrap().excluded("x"), []).unwrap(),
            &["q_0_0"],
        ),
        (
            "it is left out from the start although it has every cell",
            |_, t| {
                let row = NewRow::new(0, "q_0_1").unwrap().excluded("x");
                t.insert_row(row, [("reward", 1.0.into())]).unwrap();
            },
            &["q_0_0"],
        ),
        (
            "the reason is a word of the engine",
            |_, t| t.exclude(finished(t, 0, "q_0_1"), "superseded").unwrap(),
            &["q_0_0"],
        ),
        (
            "it is superseded by one that waits",
            |_, t| {
                finished(t, 0, "q_0_1");
                again(t, "q_0_1");
            },
            &[],
        ),
        (
            "it is superseded by one that gets ready",
            |_, t| {
                finished(t, 0, "q_0_1");
                reward(t, again(t, "q_0_1"));
            },
            both,
        ),
        (
            "it is excluded, and a next attempt waits",
            |_, t| {
                t.exclude(finished(t, 0, "q_0_1"), "lost").unwrap();
                again(t, "q_0_1");
            },
            &[],
        ),
        (
            "it is excluded, and a next attempt gets ready",
            |_, t| {
                t.exclude(finished(t, 0, "q_0_1"), "lost").unwrap();
                reward(t, again(t, "q_0_1"));
            },
            both,
        ),
        (
            "it is excluded, and so is its next attempt",
            |_, t| {
                t.exclude(finished(t, 0, "q_0_1"), "lost").unwrap();
                t.exclude(again(t, "q_0_1"), "lost").unwrap();
            },
            &["q_0_0"],
        ),
        (
            "its next attempt is left out from the start",
            |_, t| {
                finished(t, 0, "q_0_1");
                t.insert_row(NewRow::new(0, "q_0_1").unwrap().next_attempt().excluded("x"), []).unwrap();
            },
            &["q_0_0"],
        ),
    ];
    for (what, act, expected) in cases {
        for first in [true, false] {
            let (store, table, consumer) = task(2);
            let ready = |t: &Table| _ = finished(t, 0, "q_0_0");
            if first {
                ready(&table);
            }
            act(&store, &table);
            if !first {
                ready(&table);
            }
            assert_eq!(take_ids(&consumer), expected, "{what}, the other came first: {first}");
            assert!(take(&consumer).is_none(), "{what}");
            check_counts(&store);
        }
        // A consumer that is declared afterwards sees the same.
        let (store, table) = solver(&World::new());
        finished(&table, 0, "q_0_0");
        act(&store, &table);
        let declared = Consumer::task(["solver"]).ready(["reward"]).group(GroupBy::Input, 2);
        let late = store.create_consumer("late", declared).unwrap();
        assert_eq!(take_ids(&late), expected, "{what}, declared late");
    }
}

#[test]
fn an_eval_row_takes_no_place_in_a_trainers_group() {
    let (store, table, train) = trained(&World::new(), Some(2));
    let eval = || NewRow::new(0, "q_0_7").unwrap().purpose(Purpose::Eval);
    let row = table.insert_row(eval(), [("reward", 1.0.into())]).unwrap();
    finished(&table, 0, "q_0_0");
    table.exclude(row, "x").unwrap();
    table.insert_row(eval().next_attempt(), []).unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q"])).unwrap();
    assert!(step.next(&train, MicroBatch::up_to(9), Wait::No).unwrap().is_none());
    finished(&table, 0, "q_0_1");
    assert_eq!(step.next(&train, MicroBatch::up_to(9), Wait::No).unwrap().unwrap().len(), 2);
}

#[test]
fn a_member_excluded_while_a_task_holds_it_leaves_the_group_only() {
    for finish in [true, false] {
        let (store, table, consumer) = task(2);
        let (kept, lost) = (finished(&table, 0, "q_0_0"), finished(&table, 0, "q_0_1"));
        let claim = take(&consumer).unwrap();
        table.exclude(lost, "judged broken").unwrap();
        if finish {
            claim.finish(|batch| batch.write(&table, kept, [("logprobs", Value::Null)])).unwrap();
            assert!(take(&consumer).is_none());
        } else {
            drop(claim);
            assert_eq!(take_ids(&consumer), ["q_0_0"], "the other is handed out alone");
        }
        assert!(take(&consumer).is_none());
        check_counts(&store);
    }
}

#[test]
fn a_write_to_a_superseded_member_fails_the_finish_and_the_rest_comes_back() {
    let (_, table, consumer) = task(2);
    let rows = [finished(&table, 0, "q_0_0"), finished(&table, 0, "q_0_1")];
    let claim = take(&consumer).unwrap();
    let new = again(&table, "q_0_1");
    let write = |batch: &mut WriteBatch<'_>| {
        rows.iter().try_for_each(|&row| batch.write(&table, row, [("logprobs", Value::Null)]))
    };
    assert!(matches!(claim.finish(write).unwrap_err().cause(), Cause::RowExcluded { .. }));
    assert!(matches!(table.cell(rows[0], "logprobs").unwrap(), Cell::Empty), "all or none");
    assert!(take(&consumer).is_none());
    reward(&table, new);
    assert_eq!(take_ids(&consumer), ["q_0_0", "q_0_1"]);
}

#[test]
fn re_attempts_of_a_group_that_went_by_are_handed_out_together_and_once() {
    let (store, table, consumer) = task(3);
    (0..3).for_each(|t| _ = finished(&table, 0, &format!("q_0_{t}")));
    assert_eq!(take_ids(&consumer).len(), 3);
    reward(&table, again(&table, "q_0_1"));
    assert_eq!(take_ids(&consumer), ["q_0_1"]);
    let rows = [again(&table, "q_0_0"), again(&table, "q_0_2")];
    reward(&table, rows[0]);
    assert!(take(&consumer).is_none(), "two are on their way");
    table.exclude(rows[1], "lost").unwrap();
    assert_eq!(take_ids(&consumer), ["q_0_0"]);
    reward(&table, again(&table, "q_0_2"));
    assert_eq!(take_ids(&consumer), ["q_0_2"]);
    // Once more: what went by in parts is still one group.
    let rows = [again(&table, "q_0_0"), again(&table, "q_0_1")];
    rows.iter().for_each(|&row| reward(&table, row));
    assert_eq!(take_ids(&consumer), ["q_0_0", "q_0_1"]);
    assert!(take(&consumer).is_none());
    check_counts(&store);
}

#[test]
fn a_group_whose_members_all_left_is_nothing_to_wait_for() {
    let (store, table, train) = trained(&World::new(), Some(2));
    for t in 0..2 {
        table.insert_row(NewRow::new(0, &format!("gone_0_{t}")).unwrap().excluded("x"), []).unwrap();
        finished(&table, 0, &format!("here_0_{t}"));
    }
    let step = store.begin_step(StepPlan::new().groups(&train, ["gone", "here"])).unwrap();
    step.next(&train, MicroBatch::of(64), Wait::Forever).unwrap().unwrap().accumulated().unwrap();
    assert!(step.is_complete(&train));
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 2);
    check_counts(&store);
}

#[test]
fn a_trainers_group_over_two_tables_lies_in_the_one_that_knows_it() {
    let store = World::new().open();
    let tables = ["a", "b"].map(|name| store.create_table(name, solver_schema().policy("p")).unwrap());
    let declared = Consumer::trainer(["a", "b"]).ready(["reward"]).group(GroupBy::InputAndTurn, 2);
    let train = store.create_consumer("train", declared).unwrap();
    let step = store.begin_step(StepPlan::new().groups(&train, ["q_0", "q_1"])).unwrap();
    let next = || step.next(&train, MicroBatch::of(4), Wait::No).unwrap();
    (0..2).for_each(|t| _ = finished(&tables[0], 0, &format!("q_0_{t}")));
    assert!(next().is_none(), "four rows are planned, two are there");
    (0..2).for_each(|t| _ = finished(&tables[1], 0, &format!("q_1_{t}")));
    let (first, second) = (next().unwrap(), next().unwrap());
    assert_eq!((first.table(), first.len(), second.table(), second.len()), ("a", 2, "b", 2));
    assert!(step.is_complete(&train));
    [first, second].into_iter().for_each(|claim| claim.accumulated().unwrap());
    assert_eq!(step.commit([("p", vec![])]).unwrap().rows, 4);
}

#[test]
fn groups_that_are_not_planned_are_left_for_a_step_that_plans_them() {
    let (store, table, train) = trained(&World::new(), Some(2));
    for input in ["a", "b", "c"] {
        (0..2).for_each(|t| _ = finished(&table, 0, &format!("{input}_0_{t}")));
    }
    let step = store.begin_step(StepPlan::new().groups(&train, ["b"])).unwrap();
    let claim = step.next(&train, MicroBatch::up_to(64), Wait::No).unwrap().unwrap();
    assert_eq!(ids(&claim), ["b_0_0", "b_0_1"]);
    drop((claim, step));
    let step = store.begin_step(StepPlan::new().groups(&train, ["a", "c"])).unwrap();
    assert_eq!(step.next(&train, MicroBatch::of(4), Wait::No).unwrap().unwrap().len(), 4);
}

#[test]
fn open_groups_are_those_that_were_begun_and_not_handed_out() {
    let (store, table, train) = trained(&World::new(), Some(2));
    let open = || train.open_groups();
    assert!(open().is_empty());
    finished(&table, 0, "q2_0_0");
    finished(&table, 0, "q1_0_0");
    finished(&table, 1, "q9_0_0"); // of a version to come
    table.insert(0, "q1_0_1", []).unwrap();
    assert_eq!(open(), ["q1", "q2"], "begun, complete or not");
    finished(&table, 0, "q2_0_1");
    let step = store.begin_step(StepPlan::new().groups(&train, open())).unwrap();
    let claim = step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap();
    assert_eq!(open(), ["q1"], "q2 is handed out");
    drop(claim);
    assert_eq!(open(), ["q1", "q2"], "and comes back");
    drop(step);
    let row = table.find(0, &"q1_0_0".parse().unwrap()).unwrap();
    table.exclude(row, "bad").unwrap();
    let rest = table.find(0, &"q1_0_1".parse().unwrap()).unwrap();
    table.exclude(rest, "bad").unwrap();
    assert_eq!(open(), ["q2"], "nobody is left of q1");
    assert_eq!(train_once(&store, &train, StepPlan::new().groups(&train, open()), "solver"), 2);
    assert_eq!(open(), ["q9"], "the version has come");
    let rows = store.create_consumer("rows", Consumer::task(["solver"])).unwrap();
    assert!(rows.open_groups().is_empty(), "it takes single rows");
}
