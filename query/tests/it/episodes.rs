//! Episodes and instances: what a monitor sees of the rollouts.

use forebay_query::Kind;
use forebay_store::{Consumer, DataType, Element, MicroBatch, NewRow, Origin, Purpose, Role, Schema, Wait};
use serde_json::{Value as Json, json};

use crate::fixture::{PROMPT, Run, finished_group};

/// One column of the episodes, by input and trajectory.
fn shown(run: &Run, columns: &str) -> Vec<Json> {
    run.rows(&format!(
        "SELECT input_id || '/' || trajectory_id AS episode, {columns} FROM system.episodes \
         ORDER BY input_id, trajectory_id, policy_version, purpose, origin_peer NULLS FIRST"
    ))
}

/// Of a table that nobody trains on.
fn columns() -> Schema {
    let response = DataType::list(Element::Int32);
    Schema::new().data("prompt", DataType::Utf8).data("response", response).data("reward", DataType::Float32)
}

#[test]
fn an_episode_spans_agents_and_turns() {
    let run = Run::empty();
    let [solver, checker] =
        ["solver", "checker"].map(|name| run.store.create_table(name, columns()).unwrap());
    finished_group(&solver, 0, "q1", [1.0, 0.25]);
    finished_group(&checker, 0, "q1", [0.5, 0.5]);
    let second = checker.insert(0, "q1_1_0", [("prompt", PROMPT.into())]).unwrap();
    let columns = "tables, agents, turns, rows, rewarded, reward, state, ended_at IS NULL AS runs";
    let both = json!(["checker", "solver"]);
    let other = json!({"episode": "q1/1", "tables": both, "agents": both, "turns": 1, "rows": 2, "rewarded": 2,
        "reward": 0.75, "state": "completed", "runs": false});
    let running = json!({"episode": "q1/0", "tables": both, "agents": both, "turns": 2, "rows": 3, "rewarded": 2,
        "reward": 1.5, "state": "running", "runs": true});
    assert_eq!(shown(&run, columns), [running, other.clone()]);
    checker.write(second, [("reward", 2.0.into())]).unwrap();
    let over = json!({"episode": "q1/0", "tables": both, "agents": both, "turns": 2, "rows": 3, "rewarded": 3,
        "reward": 3.5, "state": "completed", "runs": false});
    assert_eq!(shown(&run, columns), [over, other]);
    let times = "started_at <= ended_at AND ended_at = last_write_at AS ok";
    assert_eq!(shown(&run, times).iter().map(|row| &row["ok"]).collect::<Vec<_>>(), [true, true]);
}

#[test]
fn an_episode_tells_what_became_of_its_rows() {
    let (run, step, claim) = Run::busy();
    let state = || {
        let rows = shown(&run, "policy_version AS v, state, step");
        rows.iter()
            .map(|row| format!("{} {} {} {}", row["episode"], row["v"], row["state"], row["step"]))
            .collect::<Vec<_>>()
    };
    let expected = [
        // The checker's rows of these two are not trained on.
        r#""q1/0" 0 "completed" 1"#,
        r#""q1/1" 0 "completed" 1"#,
        r#""q2/0" 0 "trained" 1"#,
        r#""q2/1" 0 "trained" 1"#,
        r#""q3/0" 1 "completed" null"#,
        r#""q3/1" 1 "completed" null"#,
        r#""q4/0" 1 "running" null"#,
        r#""q5/0" 1 "excluded" null"#,
    ];
    assert_eq!(state(), expected);
    claim.accumulated().unwrap();
    let solver = run.store.table("solver").unwrap();
    let retried = NewRow::new(1, "q4_0_0").unwrap().next_attempt();
    let cells = [("prompt", PROMPT.into()), ("response", vec![1_i32].into()), ("reward", 0.5.into())];
    solver.insert_row(retried, cells).unwrap();
    let again = run.rows("SELECT rows, retries, state, reward FROM system.episodes WHERE input_id = 'q4'");
    assert_eq!(again, [json!({"rows": 1, "retries": 1, "state": "completed", "reward": 0.5})]);
    drop(step);
}

#[test]
fn rows_that_no_trainer_waits_for_are_over_with_their_reward_or_with_all_cells() {
    let run = Run::empty();
    let named = Schema::new().data("score", DataType::Float32).data("text", DataType::Utf8);
    let scored = run.store.create_table("scored", named.clone().role("score", Role::Reward)).unwrap();
    let plain = run.store.create_table("plain", named).unwrap();
    for table in [&scored, &plain] {
        let row = NewRow::new(0, &format!("{}_0_0", table.name())).unwrap().purpose(Purpose::Eval);
        table.insert_row(row, [("score", 0.5.into())]).unwrap();
    }
    assert_eq!(
        shown(&run, "state, reward, purpose"),
        [
            json!({"episode": "plain/0", "state": "running", "reward": null, "purpose": "eval"}),
            json!({"episode": "scored/0", "state": "completed", "reward": 0.5, "purpose": "eval"}),
        ]
    );
    let row = plain.find(0, &"plain_0_0".parse().unwrap()).unwrap();
    plain.write(row, [("text", "done".into())]).unwrap();
    assert_eq!(shown(&run, "state")[0]["state"], "completed");
}

#[test]
fn rows_of_peers_and_of_other_versions_are_episodes_of_their_own() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    solver.insert(0, "q1_0_0", [("reward", 1.0.into())]).unwrap();
    solver.insert(1, "q1_0_0", [("reward", 2.0.into())]).unwrap();
    let origin = Origin { peer: "berlin".to_owned(), round: 7 };
    let row = NewRow::new(2, "q1_0_0").unwrap().external(&origin);
    solver.insert_row(row, [("reward", 3.0.into())]).unwrap();
    let rewards = shown(&run, "policy_version AS v, origin_peer AS peer, origin_round AS round, reward");
    assert_eq!(rewards.len(), 3, "{rewards:?}");
    let peer = rewards.iter().find(|row| row["peer"] == "berlin").unwrap();
    assert_eq!((&peer["round"], &peer["reward"]), (&json!(7), &json!(3.0)));
}

/// The conditions of a query go through to the tables: parts of other versions are not read.
#[test]
fn conditions_on_episodes_reach_the_tables() {
    let (run, _step, _claim) = Run::busy();
    let plan = run.rows(
        "EXPLAIN SELECT count(*) FROM system.episodes WHERE policy_version = 1 AND input_id = 'q3' AND state = 'completed'",
    );
    let plan = plan.iter().map(Json::to_string).collect::<String>();
    assert!(plan.contains("table=solver") && plan.contains("table=checker"), "{plan}");
    assert_eq!(plan.matches("policy_version@1 = 1, input_id@3 = q3").count(), 2, "{plan}");
    assert!(!plan.contains("ARRAY_AGG"), "what is not asked for is not computed: {plan}");
    assert!(run.error("SELECT nothing FROM system.episodes", Kind::Input).contains("nothing"));
}

/// What a run's own bookkeeping says of the pool.
#[derive(Debug, PartialEq)]
struct Pool {
    running: u64,
    completed: u64,
    tasks_done: u64,
    tasks_with_spread: u64,
    processing_rows: u64,
    ready_rows: u64,
}

/// The same by SQL alone; a task is done with `members` episodes that are over.
fn pool(run: &Run) -> Pool {
    let number = |sql: &str| run.column(sql)[0].as_u64().unwrap_or_else(|| panic!("no number: {sql}"));
    let tasks = |having: &str| {
        format!(
            "SELECT count(*) FROM (SELECT input_id FROM system.episodes WHERE state <> 'running' GROUP BY input_id \
             HAVING count(*) >= (SELECT max(group_members) FROM system.consumers WHERE kind = 'trainer'){having})"
        )
    };
    Pool {
        running: number("SELECT count(*) FROM system.episodes WHERE state = 'running'"),
        completed: number("SELECT count(*) FROM system.episodes WHERE state <> 'running'"),
        tasks_done: number(&tasks("")),
        tasks_with_spread: number(&tasks(" AND NOT zero_spread(reward)")),
        processing_rows: number("SELECT coalesce(sum(processing_rows), 0) FROM system.instances"),
        ready_rows: number("SELECT sum(ready_rows) FROM system.consumers WHERE kind = 'task'"),
    }
}

// AJ-30, AJ-B16: the counts of a pool, from its registering to its end, beside what the store and the run count.
#[test]
fn the_pool_of_rollouts_is_counted_as_the_store_and_the_run_count_it() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let generate =
        run.store.create_consumer("generate", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    let (inputs, members) = (6_u64, 2_u64);
    let mut rows = Vec::new();
    for input in 0..inputs {
        for member in 0..members {
            let id = format!("q{input}_0_{member}");
            rows.push(solver.insert(0, &id, [("prompt", PROMPT.into())]).unwrap());
        }
    }
    let total = inputs * members;
    let mut known = Pool {
        running: total,
        completed: 0,
        tasks_done: 0,
        tasks_with_spread: 0,
        processing_rows: 0,
        ready_rows: total,
    };
    assert_eq!(pool(&run), known, "registered");
    for (count, row) in rows.iter().enumerate() {
        let owner = format!("worker {}", count % 2);
        let claim = generate.claim(MicroBatch::of(1), &owner, Wait::No).unwrap().unwrap();
        (known.ready_rows, known.processing_rows) = (known.ready_rows - 1, 1);
        assert_eq!(pool(&run), known, "claimed {count}");
        let by_store: u64 = run.store.consumers().iter().map(|consumer| consumer.processing_rows).sum();
        assert_eq!(by_store, known.processing_rows);
        claim.finish_batch(run.store.batch()).unwrap();
        let (input, member) = (count as u64 / members, count as u64 % members);
        // Every third input has no spread.
        let reward = if input.is_multiple_of(3) { 1.0 } else { member as f64 };
        let cells = [("response", vec![1_i32].into()), ("reward", reward.into())];
        solver.write(*row, cells).unwrap();
        (known.running, known.completed, known.processing_rows) = (known.running - 1, known.completed + 1, 0);
        if member + 1 == members {
            known.tasks_done += 1;
            known.tasks_with_spread += u64::from(!input.is_multiple_of(3));
        }
        assert_eq!(pool(&run), known, "ended {count}");
    }
    assert_eq!((known.tasks_done, known.tasks_with_spread), (6, 4));
}

// AJ-B16: what else a monitor asks for, each beside what the run knows.
#[test]
fn targets_members_lists_and_the_global_step_are_asked_by_sql() {
    let (run, _step, _claim) = Run::busy();
    let targets = "SELECT planned_groups, planned_rows FROM system.steps WHERE state = 'open'";
    assert_eq!(run.rows(targets), [json!({"planned_groups": 2, "planned_rows": 0})]);
    let repeats = "SELECT DISTINCT group_members AS members FROM system.consumers";
    assert_eq!(run.rows(repeats), [json!({"members": 2})]);
    let global = "SELECT max(step) AS step FROM system.steps WHERE state = 'committed'";
    assert_eq!(run.rows(global), [json!({"step": 1})]);
    let lists = "SELECT input_id, array_agg(trajectory_id ORDER BY trajectory_id) AS episodes FROM system.episodes \
                 WHERE policy_version = 0 GROUP BY 1 ORDER BY 1";
    let both = json!([0, 1]);
    assert_eq!(
        run.rows(lists),
        [json!({"input_id": "q1", "episodes": both}), json!({"input_id": "q2", "episodes": both})]
    );
    let running = "SELECT input_id, trajectory_id, turns, rows FROM system.episodes WHERE state = 'running'";
    let of_q4 = json!({"input_id": "q4", "trajectory_id": 0, "turns": 1, "rows": 1});
    assert_eq!(run.rows(running), [of_q4]);
}

// AJ-B16: the remaining fields of a pool. The method is how its trainers group and what they wait for; the engine is up while its
// store answers and policies move; it was booted when its first step began; dummies are rows that are not for training.
#[test]
fn method_engine_boot_and_what_is_no_dummy_are_asked_by_sql() {
    let (run, step, claim) = Run::busy();
    let method = "SELECT consumer, kind, group_members FROM system.consumers ORDER BY consumer";
    let of = |name: &str| json!({"consumer": name, "kind": "trainer", "group_members": 2});
    assert_eq!(run.rows(method), ["train-checker", "train-solver"].map(of));

    let engine = "SELECT s.state, count(c.claim) AS claims, coalesce(sum(c.rows), 0) AS rows FROM system.steps s \
                  LEFT JOIN system.claims c ON c.step = s.step AND c.state IN ('leased', 'accumulated') \
                  WHERE s.step = (SELECT max(step) FROM system.steps) GROUP BY 1";
    assert_eq!(run.rows(engine), [json!({"state": "open", "claims": 1, "rows": 2})], "training");
    claim.accumulated().unwrap();
    drop(step);
    assert_eq!(run.rows(engine), [json!({"state": "abandoned", "claims": 0, "rows": 0})], "between steps");

    let boot = run.store.steps().iter().map(|step| step.begun_at).min().unwrap();
    let sql = "SELECT CAST(min(begun_at) AS BIGINT) AS boot FROM system.steps";
    assert_eq!(run.column(sql), [json!(boot.0)]);
    let versions = "SELECT policy, version, updated_at >= (SELECT min(begun_at) FROM system.steps) AS since \
                    FROM system.policies WHERE policy = 'solver'";
    assert_eq!(run.rows(versions), [json!({"policy": "solver", "version": 1, "since": true})]);

    let counts = || {
        let sql = "SELECT count(*) FILTER (WHERE purpose = 'train') AS real, count(*) FILTER (WHERE purpose <> 'train') AS dummy, \
                   count(DISTINCT input_id) FILTER (WHERE purpose = 'train') AS tasks FROM system.episodes WHERE state <> 'running'";
        let row = run.rows(sql)[0].clone();
        ["real", "dummy", "tasks"].map(|name| row[name].as_u64().unwrap())
    };
    // q1 and q2 of two trajectories at version 0, q3 at version 1, and q5, which was left out.
    assert_eq!(counts(), [7, 0, 4]);
    let solver = run.store.table("solver").unwrap();
    for purpose in [Purpose::Eval, Purpose::WarmUp] {
        let new = NewRow::new(1, &format!("dummy-{}_0_0", purpose.as_str())).unwrap().purpose(purpose);
        solver.insert_row(new, [("reward", 0.0.into())]).unwrap();
    }
    assert_eq!(counts(), [7, 2, 4]);
}

#[test]
fn an_instance_is_who_takes_rows_of_tasks() {
    let (run, _step, _claim) = Run::busy();
    assert_eq!(run.rows("SELECT * FROM system.instances"), [] as [Json; 0], "trainers do no rollouts");
    for (task, column) in [("generate", "prompt"), ("score", "response")] {
        run.store.create_consumer(task, Consumer::task(["solver"]).ready([column])).unwrap();
    }
    let claim = |task: &str, rows, owner: &str| {
        run.store.consumer(task).unwrap().claim(MicroBatch::up_to(rows), owner, Wait::No).unwrap().unwrap()
    };
    let first = claim("generate", 2, "worker 0");
    let second = claim("score", 1, "worker 0");
    claim("generate", 1, "worker 1").release().unwrap();
    let sql = "SELECT instance, tasks, claims, processing_rows, finished_claims, unfinished_claims, \
               first_claim_at <= last_seen_at AS seen, deadline IS NULL AS idle FROM system.instances ORDER BY 1";
    let tasks = |names: &[&str]| names.iter().map(|task| json!({"task": task})).collect::<Vec<_>>();
    let busy = json!({"instance": "worker 0", "tasks": tasks(&["generate", "score"]), "claims": 2,
        "processing_rows": 3, "finished_claims": 0, "unfinished_claims": 0, "seen": true, "idle": false});
    let idle = json!({"instance": "worker 1", "tasks": tasks(&["generate"]), "claims": 0,
        "processing_rows": 0, "finished_claims": 0, "unfinished_claims": 1, "seen": true, "idle": true});
    assert_eq!(run.rows(sql), [busy, idle]);
    first.finish_batch(run.store.batch()).unwrap();
    second.finish_batch(run.store.batch()).unwrap();
    let counts =
        "SELECT claims, finished_claims AS finished FROM system.instances WHERE instance = 'worker 0'";
    assert_eq!(run.rows(counts), [json!({"claims": 0, "finished": 2})]);
}

// The engine once took the name that a length was given for that of the list.
#[test]
fn the_length_of_a_list_may_have_its_name() {
    let (run, _step, _claim) = Run::busy();
    for length in ["array_length(agents)", "cardinality(agents)"] {
        let sql = format!("SELECT rows, {length} AS agents FROM system.episodes WHERE input_id = 'q1'");
        assert_eq!(
            run.rows(&sql),
            [json!({"rows": 2, "agents": 2}), json!({"rows": 2, "agents": 2})],
            "{sql}"
        );
    }
    let told = run.error("SELECT array_length(agnts) AS agents FROM system.episodes", Kind::Input);
    assert!(told.contains("agnts"), "{told}");
}
