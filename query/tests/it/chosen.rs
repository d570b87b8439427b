//! What is trained on, and what is compared with what, chosen by SQL: every rule is an expression of whoever asks.

use forebay_store::{
    Consumer, DataType, GroupBy, MicroBatch, NewRow, Origin, Origins, Schema, StepPlan, Table, Wait,
};
use serde_json::{Value as Json, json};

use crate::fixture::Run;

/// A table with rewards, and its trainer, whose groups have so many members.
fn table(run: &Run, agent: &str, group: GroupBy, members: u32) -> Table {
    let table = run.store.create_table(agent, Schema::new().data("reward", DataType::Float64)).unwrap();
    let trainer = Consumer::trainer([agent]).ready(["reward"]).group(group, members).origins(Origins::All);
    run.store.create_consumer(&format!("train-{agent}"), trainer).unwrap();
    table
}

fn row(table: &Table, row: NewRow, reward: f64) {
    table.insert_row(row, [("reward", reward.into())]).unwrap();
}

/// A group of an input: one row a reward.
fn group(table: &Table, input: &str, rewards: &[f64]) {
    for (trajectory, reward) in rewards.iter().enumerate() {
        row(table, NewRow::new(0, &format!("{input}_0_{trajectory}")).unwrap(), *reward);
    }
}

fn close(found: &Json, expected: f64, what: &str) {
    let found = found.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() < 1e-9, "{what}: {found} is not {expected}");
}

// PL-B02, PL-B03
#[test]
fn groups_of_problem_turn_and_agent_never_mix() {
    let run = Run::empty();
    for agent in ["designer", "executor"] {
        let table = table(&run, agent, GroupBy::InputAndTurn, 4);
        for (problem, turn, trajectory) in every([2, 2, 4]) {
            // The seventh row of each agent is worth 1, and so on: no two groups have the same rewards.
            let reward = f64::from((problem * 8 + turn * 4 + trajectory * trajectory) % 7) / 7.0;
            let id = format!("p{problem}_{turn}_{trajectory}");
            row(&table, NewRow::new(0, &id).unwrap(), reward);
        }
    }
    let both = "(SELECT * FROM designer UNION ALL SELECT * FROM executor)";
    let groups = run.rows(&format!(
        "SELECT count(*) AS rows, count(DISTINCT input_id) AS problems, count(DISTINCT turn) AS turns \
         FROM {both} GROUP BY agent, group_key"
    ));
    assert_eq!(groups, vec![json!({"rows": 4, "problems": 1, "turns": 1}); 8]);
    let members = "PARTITION BY agent, group_key";
    let rows = run.rows(&format!(
        "SELECT agent, input_id, turn, reward, avg(reward) OVER ({members}) AS mean, \
                (reward - avg(reward) OVER ({members})) / (stddev_pop(reward) OVER ({members}) + 1e-8) AS by_hand, \
                advantage(reward, 'grpo') OVER ({members}) AS advantage FROM {both}"
    ));
    assert_eq!(rows.len(), 32);
    for row in &rows {
        let (own, shown) = (["agent", "input_id", "turn"].map(|column| row[column].clone()), row.to_string());
        let member = |other: &&Json| ["agent", "input_id", "turn"].map(|column| other[column].clone()) == own;
        let rewards: Vec<f64> =
            rows.iter().filter(member).map(|row| row["reward"].as_f64().unwrap()).collect();
        let mean = rewards.iter().sum::<f64>() / 4.0;
        let spread = (rewards.iter().map(|reward| (reward - mean).powi(2)).sum::<f64>() / 4.0).sqrt();
        close(&row["mean"], mean, &shown);
        close(&row["by_hand"], (row["reward"].as_f64().unwrap() - mean) / (spread + 1e-8), &shown);
        // Training keeps a small spread from blowing up by 1e-6.
        close(&row["advantage"], (row["reward"].as_f64().unwrap() - mean) / (spread + 1e-6), &shown);
    }
}

fn every([problems, turns, trajectories]: [u32; 3]) -> impl Iterator<Item = (u32, u32, u32)> {
    (0..problems * turns * trajectories)
        .map(move |n| (n / (turns * trajectories), n / trajectories % turns, n % trajectories))
}

// PL-B07
#[test]
fn without_a_tree_the_group_is_the_input_and_the_last_turns_count() {
    let run = Run::empty();
    let solver = table(&run, "solver", GroupBy::Input, 4);
    // Trajectories of different lengths: only how each of them ended is compared.
    for (trajectory, rewards) in [&[0.9, 0.1][..], &[0.2], &[0.3, 0.5, 0.6], &[0.8, 0.3]].iter().enumerate() {
        for (turn, reward) in rewards.iter().enumerate() {
            row(&solver, NewRow::new(0, &format!("q1_{turn}_{trajectory}")).unwrap(), *reward);
        }
    }
    row(&solver, NewRow::new(0, "q2_0_0").unwrap(), 0.7);
    let rows = run.rows(
        "SELECT sample_id, advantage(reward, 'dr_grpo') OVER (PARTITION BY input_id) AS advantage \
         FROM (SELECT *, max(turn) OVER (PARTITION BY input_id, trajectory_id) AS last FROM solver) \
         WHERE turn = last ORDER BY input_id, trajectory_id",
    );
    let expected = [("q1_1_0", -0.2), ("q1_0_1", -0.1), ("q1_2_2", 0.3), ("q1_1_3", 0.0), ("q2_0_0", 0.0)];
    assert_eq!(rows.len(), expected.len());
    for (row, (sample, advantage)) in rows.iter().zip(expected) {
        assert_eq!(row["sample_id"], sample);
        close(&row["advantage"], advantage, sample);
    }
}

/// Groups with their mean, their standard deviation and their spread. One of a single row spreads by nothing.
const GROUPS: &str = "(SELECT group_key, avg(reward) AS mean, stddev_pop(reward) AS std, \
                       spread(reward) / greatest(max(abs(reward)), 1e-8) AS ranged, count(*) AS rows \
                       FROM solver GROUP BY group_key)";

/// Drops the share `ratio` of groups that are the lowest by `of`; a group of one row counts as 0.
fn lowest_dropped(of: &str, ratio: f64) -> String {
    format!(
        "SELECT group_key FROM (SELECT group_key, count(*) OVER () AS groups, \
         row_number() OVER (ORDER BY CASE WHEN rows = 1 THEN 0 ELSE {of} END, group_key) AS place FROM {GROUPS}) \
         WHERE place > floor(groups * {ratio}) ORDER BY group_key"
    )
}

// PL-B08
#[test]
fn groups_and_samples_are_dropped_by_each_rule() {
    let run = Run::empty();
    let solver = table(&run, "solver", GroupBy::Input, 4);
    for (input, rewards) in [
        ("a", &[1.0, 1.0, 1.0, 1.0][..]), // nothing to learn, at the top
        ("b", &[0.0, 0.0, 0.0, 0.0]),     // nor here
        ("c", &[0.1, 0.1, 0.1, 0.1]),     // nor here, where rounding makes a deviation of equal numbers
        ("d", &[0.0, 1.0, 0.0, 1.0]),
        ("e", &[0.5, 0.6, 0.5, 0.6]),
        ("f", &[0.9]), // alone
    ] {
        group(&solver, input, rewards);
    }
    // dapo: whatever another filter's ratio is, a group without spread is dropped.
    let dapo = format!("SELECT group_key FROM {GROUPS} WHERE ranged > 0 ORDER BY 1");
    assert_eq!(run.column(&dapo), ["d", "e"]);
    let exact = "SELECT group_key FROM solver GROUP BY 1 HAVING NOT zero_spread(reward) ORDER BY 1";
    assert_eq!(run.column(exact), ["d", "e"]);
    for (of, ratio, expected) in [
        ("mean", 0.0, &["a", "b", "c", "d", "e", "f"][..]),
        ("mean", 0.34, &["a", "c", "d", "e"]), // b, then f, which is alone
        ("mean", 0.5, &["a", "d", "e"]),
        ("std", 0.34, &["c", "d", "e", "f"]), // a, then b
        ("std", 0.7, &["d", "e"]),
        ("std", 1.0, &[]),
    ] {
        assert_eq!(run.column(&lowest_dropped(of, ratio)), expected, "{of} {ratio}");
    }
    // uid: the samples that deviate the most from their own group, wherever that is.
    let uid = |ratio: f64| {
        format!(
            "SELECT sample_id FROM (SELECT sample_id, count(*) OVER () AS rows, row_number() OVER \
             (ORDER BY off DESC, sample_id) AS place FROM (SELECT sample_id, \
              abs(reward - avg(reward) OVER (PARTITION BY group_key)) AS off FROM solver)) \
             WHERE place <= floor(rows * {ratio}) ORDER BY sample_id"
        )
    };
    assert_eq!(run.column(&uid(0.0)).len(), 0);
    assert_eq!(run.column(&uid(0.2)), ["d_0_0", "d_0_1", "d_0_2", "d_0_3"]);
    assert_eq!(run.column(&uid(0.39))[4..], ["e_0_0", "e_0_1", "e_0_2", "e_0_3"]);
}

// PL-B09
#[test]
fn what_is_compared_is_an_expression() {
    let run = Run::empty();
    table(&run, "designer", GroupBy::Input, 2);
    let executor = table(&run, "executor", GroupBy::Input, 2);
    // Question q1 has a design with three executions and one with two; q2 has two with one and two.
    for (execution, design, reward) in [
        ("q1_0_0", "q1_0_0", 1.0),
        ("q1_0_1", "q1_0_0", 0.0),
        ("q1_0_2", "q1_0_0", 0.5),
        ("q1_0_3", "q1_0_1", 1.0),
        ("q1_0_4", "q1_0_1", 0.0),
        ("q2_0_0", "q2_0_0", 0.25),
        ("q2_0_1", "q2_0_1", 0.75),
        ("q2_0_2", "q2_0_1", 0.5),
    ] {
        let new = NewRow::new(0, execution).unwrap().parent(&format!("designer/{design}"));
        row(&executor, new, reward);
    }
    let by_design =
        [&["q1_0_0", "q1_0_1", "q1_0_2"][..], &["q1_0_3", "q1_0_4"], &["q2_0_0"], &["q2_0_1", "q2_0_2"]];
    let by_question =
        [&["q1_0_0", "q1_0_1", "q1_0_2", "q1_0_3", "q1_0_4"][..], &["q2_0_0", "q2_0_1", "q2_0_2"]];
    let switched =
        [&["q1_0_0", "q1_0_1", "q1_0_2"][..], &["q1_0_3", "q1_0_4"], &["q2_0_0", "q2_0_1", "q2_0_2"]];
    let switch = "CASE WHEN executions <= 2 THEN 'question ' || input_id ELSE 'design ' || parent END";
    for (key, expected) in [("parent", &by_design[..]), ("input_id", &by_question), (switch, &switched)] {
        let keyed = format!(
            "(SELECT *, {key} AS key FROM (SELECT *, count(*) OVER (PARTITION BY parent) AS executions FROM executor))"
        );
        let groups = format!(
            "SELECT array_agg(sample_id ORDER BY sample_id) FROM {keyed} GROUP BY key ORDER BY min(sample_id)"
        );
        assert_eq!(json!(run.column(&groups)), json!(expected), "{key}");
        let advantages = run.rows(&format!(
            "SELECT sample_id, reward, advantage(reward, 'dr_grpo') OVER (PARTITION BY key) AS advantage FROM {keyed}"
        ));
        for row in &advantages {
            let group =
                expected.iter().find(|group| group.iter().any(|id| row["sample_id"] == **id)).unwrap();
            let rewards = advantages.iter().filter(|row| group.iter().any(|id| row["sample_id"] == **id));
            let mean = rewards.map(|row| row["reward"].as_f64().unwrap()).sum::<f64>() / group.len() as f64;
            close(&row["advantage"], row["reward"].as_f64().unwrap() - mean, &format!("{key}: {row}"));
        }
    }
}

// SP-12
#[test]
fn a_predicate_says_which_rows_of_peers_are_trained_on() {
    let run = Run::empty();
    let solver = table(&run, "solver", GroupBy::Input, 2);
    group(&solver, "own", &[1.0, 0.0]);
    for (peer, round, input, rewards) in [
        ("berlin", 1, "q1", [1.0, 1.0]), // everybody can
        ("berlin", 1, "q2", [0.0, 0.0]), // nobody can
        ("berlin", 2, "q5", [1.0, 0.0]),
        ("lima", 2, "q3", [0.0, 0.5]), // hard: what this node wants more of
        ("lima", 2, "q4", [1.0, 0.75]),
    ] {
        let origin = Origin { peer: peer.to_owned(), round };
        for (trajectory, reward) in rewards.into_iter().enumerate() {
            let new = NewRow::new(0, &format!("{input}_0_{trajectory}")).unwrap().external(&origin);
            row(&solver, new, reward);
        }
    }
    let chosen = |predicate: &str| {
        run.rows(&format!(
            "SELECT origin_peer, origin_round, group_key FROM solver \
             WHERE origin_peer IS NOT NULL AND state = 'ready' GROUP BY 1, 2, 3 HAVING {predicate} ORDER BY 1, 2, 3"
        ))
    };
    let shown = |groups: &[Json]| -> Vec<String> {
        let text = |group: &Json| {
            format!("{}/{} {}", group["origin_peer"], group["origin_round"], group["group_key"])
        };
        groups.iter().map(|group| text(group).replace('"', "")).collect()
    };
    for (predicate, expected) in [
        ("count(*) = 2", &["berlin/1 q1", "berlin/1 q2", "berlin/2 q5", "lima/2 q3", "lima/2 q4"][..]),
        ("NOT zero_spread(reward)", &["berlin/2 q5", "lima/2 q3", "lima/2 q4"]),
        ("NOT zero_spread(reward) AND avg(reward) < 0.4", &["lima/2 q3"]),
        ("false", &[]),
    ] {
        assert_eq!(shown(&chosen(predicate)), expected, "{predicate}");
    }
    // What was chosen is what a step is planned of, and what its trainer gets: nothing else of the peers.
    let names = chosen("NOT zero_spread(reward) AND avg(reward) <= 0.5").into_iter().map(|group| {
        let (peer, round) =
            (group["origin_peer"].as_str().unwrap().to_owned(), group["origin_round"].as_u64().unwrap());
        Origin { peer, round }.group(group["group_key"].as_str().unwrap())
    });
    let train = run.store.consumer("train-solver").unwrap();
    let plan = StepPlan::new().groups(&train, names.chain(["own".to_owned()]));
    let step = run.store.begin_step(plan).unwrap();
    while let Some(claim) = step.next(&train, MicroBatch::of(2), Wait::No).unwrap() {
        claim.accumulated().unwrap();
    }
    step.commit([("solver", vec![])]).unwrap();
    let trained = "SELECT coalesce(origin_peer, 'own') || ' ' || input_id AS g, count(*) AS rows FROM solver \
                   WHERE step = 1 GROUP BY 1 ORDER BY 1";
    assert_eq!(
        run.rows(trained),
        [
            json!({"g": "berlin q5", "rows": 2}),
            json!({"g": "lima q3", "rows": 2}),
            json!({"g": "own own", "rows": 2})
        ]
    );
}
