//! What may be declared and said of groups: keys, conditions, budgets.

use super::*;

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
fn inputs_and_parents_that_look_alike_have_keys_of_their_own() {
    let (_, store, table, train) = trained(Consumer::trainer(["solver"]).group(GroupBy::Parent, 2));
    let cases = [
        ("/planner/p_0_0", "", ["planner/p_0_0_0_0", "planner/p_0_0_0_1"]),
        ("?/p_0_0", "p_0_0", ["q_0_0", "q_0_1"]),
        ("p_0_0", "", ["p_0_0_0_0", "p_0_0_0_1"]),
        ("planner/p_0_0", "planner/p_0_0", ["r_0_0", "r_0_1"]),
    ];
    for (_, parent, members) in cases {
        for id in members {
            let row = NewRow::new(0, id).unwrap().parent(parent);
            table.insert_row(row, [("reward", 1.0.into())]).unwrap();
        }
    }
    assert_eq!(train.open_groups(), cases.map(|(key, ..)| key));
    for (key, parent, members) in cases {
        let step = store.begin_step(StepPlan::new().groups(&train, [key])).unwrap();
        let claim = step.next(&train, MicroBatch::up_to(9), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), members, "{key}");
        let shown = claim.columns(["group_key"]).unwrap();
        assert_eq!(show_batch(&shown), vec![format!("group_key={key}"); 2]);
        let sample = &claim.sample_ids()[0];
        assert_eq!(GroupBy::Parent.key_of(sample, "solver", parent), key);
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
