//! What goes first, and how much of it: priorities, token budgets, conditions.

use forebay_client::{Changes, Plan};
use forebay_store::Comparison;

use super::*;

#[test]
fn what_has_the_greatest_number_goes_first_and_the_oldest_of_equals() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let first = Consumer::task(["solver"]).ready(["reward"]).priority("reward");
        let consumer = client.create_consumer("first", first).unwrap();
        let rewards = [0.5, 2.0, f32::NEG_INFINITY, 2.0, 1.0];
        for (at, reward) in rewards.into_iter().enumerate() {
            row(&table, 0, &format!("q{at}_0_0"), Some(reward));
        }
        let unknown = row(&table, 0, "unknown_0_0", None);
        table.write(unknown, [("reward", forebay_store::Value::Null)]).unwrap();
        let mut order = Vec::new();
        while let Some(claim) = consumer.claim(up_to(1), Wait::No).unwrap() {
            order.extend(ids(&claim));
            claim.finish(&Changes::new()).unwrap();
        }
        assert_eq!(order, ["q1_0_0", "q3_0_0", "q4_0_0", "q0_0_0", "q2_0_0", "unknown_0_0"]);
    });
}

#[test]
fn a_micro_batch_holds_no_more_tokens_than_its_budget() {
    on_every_way(|world| {
        let client = world.client();
        let table = solver(&client);
        let train = trainer(&client);
        let lengths = [3, 3, 5, 1, 9]; // the last is longer than the budget, and goes alone
        for (at, length) in lengths.into_iter().enumerate() {
            let cells = [("response", vec![1_i32; length].into()), ("reward", 1.0.into())];
            table.insert(NewRow::new(0, &format!("q{at}_0_0")).unwrap(), cells).unwrap();
        }
        let mut step = client.begin_step(&Plan::new().rows("train", 5)).unwrap();
        let (rule, mut seen) = (MicroBatch::tokens("response", 6), 0);
        while let Some(claim) = step.next(&train, rule, LONG).unwrap() {
            let of = |id: &String| lengths[id[1..2].parse::<usize>().unwrap()];
            let tokens: usize = ids(&claim).iter().map(of).sum();
            assert!(tokens <= 6 || claim.len() == 1, "{:?}", ids(&claim));
            seen += claim.len();
            claim.accumulated().unwrap();
        }
        assert_eq!((seen, step.commit([("solver", vec![])]).unwrap().rows), (5, 5));
    });
}

#[test]
fn a_row_that_does_not_pass_a_condition_is_left_to_others() {
    on_every_way(|world| {
        let client = world.client();
        let (table, judge) = (solver(&client), judge(&client));
        let good = Consumer::task(["solver"]).ready(["response"]).only("reward", Comparison::AtLeast, 1.0);
        let good = client.create_consumer("good", good).unwrap();
        for (id, reward) in [("bad_0_0", 0.5), ("good_0_0", 1.0), ("none_0_0", f32::NAN)] {
            row(&table, 0, id, Some(reward));
        }
        let claim = good.claim(up_to(8), Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), ["good_0_0"]);
        claim.finish(&Changes::new()).unwrap();
        assert!(good.claim(up_to(8), Wait::No).unwrap().is_none());
        assert_eq!(judge.claim(up_to(8), Wait::No).unwrap().unwrap().len(), 3);
        assert!(table.counts().unwrap().excluded.is_empty());
    });
}
