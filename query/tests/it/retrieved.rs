//! Rows by conditions over all columns, at once or keys first; columns that come while a run goes on.

use arrow_array::{RecordBatch, cast::AsArray, types::UInt64Type};
use forebay_query::{Answer, Format, Kind};
use forebay_store::{DataColumn, DataType, NewRow, Schema, Value};
use serde_json::{Value as Json, json};

use crate::fixture::{PROMPT, Run, finished_group};

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

fn rows(answer: &Answer) -> Vec<Json> {
    let mut document = Vec::new();
    answer.render(Format::Json, &mut document, None).unwrap();
    serde_json::from_slice(&document).unwrap()
}

// FX-B04
#[test]
fn a_condition_is_over_columns_of_every_class_with_either_operator() {
    let (run, _step, _claim) = Run::busy();
    let solver = run.store.table("solver").unwrap();
    solver.insert(1, "q6_0_0", [("reward", (-0.5).into())]).unwrap();
    for (condition, expected) in [
        ("reward_status AND reward > 0", &["q1_0_0", "q2_0_0", "q2_0_1", "q3_0_0", "q3_0_1"][..]),
        ("reward == 1", &["q1_0_0", "q3_0_0", "q3_0_1"]),
        ("reward == 1 AND policy_version == 0", &["q1_0_0"]),
        ("sample_id == 'q1_0_1' OR input_id == 'q2' AND trajectory_id == 0", &["q1_0_1", "q2_0_0"]),
        ("reward_status == false", &["q4_0_0", "q5_0_0"]),
        ("reward_status == true AND response_status == false", &["q6_0_0"]),
        ("state == 'consumed' AND reward != 1", &["q1_0_1", "q2_0_0", "q2_0_1"]),
        ("state == 'consumed' AND reward <> 1", &["q1_0_1", "q2_0_0", "q2_0_1"]),
        ("excluded_reason == 'too_long'", &["q5_0_0"]),
        ("is_processing", &["q3_0_0", "q3_0_1"]),
        ("prompt == 'nobody asked this'", &[]),
        ("array_length(response) == 16 AND reward == 0", &["q1_0_1"]),
        ("reward BETWEEN -1 AND 0.25", &["q1_0_1", "q2_0_1", "q6_0_0"]),
    ] {
        for condition in [condition.to_owned(), condition.replace("==", "=")] {
            let all = format!("SELECT sample_id FROM solver WHERE {condition} ORDER BY sample_id");
            assert_eq!(run.column(&all), expected, "{condition}");
            let two = run.column(&format!("{all} LIMIT 2"));
            assert_eq!(two, expected[..expected.len().min(2)], "{condition}");
        }
    }
    assert!(run.error("SELECT 1 FROM solver LIMIT -1", Kind::Input).contains("-1"));
}

const KEYS: &str = "SELECT sample_id, policy_version, attempt FROM solver WHERE reward_status AND reward > 0.3 \
                    ORDER BY sample_id, policy_version, attempt";
const RETRIEVED: &str = "SELECT sample_id, policy_version, attempt, prompt, response, reward FROM solver \
                         WHERE reward_status AND reward > 0.3 ORDER BY sample_id, policy_version, attempt";
const OF_A_KEY: &str = "SELECT sample_id, policy_version, attempt, prompt, response, reward FROM solver \
                        WHERE sample_id = ? AND policy_version = ? AND attempt = ?";

// FX-B06
#[test]
fn keys_first_and_values_later_are_what_one_query_gives() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for (version, input, rewards) in
        [(0, "q1", [1.0, 0.0]), (0, "q2", [0.5, 0.25]), (1, "q1", [0.75, 0.1]), (1, "q3", [1.0, 1.0])]
    {
        finished_group(&solver, version, input, rewards);
    }
    let again = NewRow::new(0, "q1_0_0").unwrap().token(9).next_attempt();
    solver.insert_row(again, [("prompt", PROMPT.into()), ("reward", 0.5.into())]).unwrap();
    let retrieved = run.rows(RETRIEVED);
    wait(async {
        let keys: RecordBatch = {
            let answer = run.session.sql(KEYS).await.unwrap();
            arrow::compute::concat_batches(&answer.schema, &answer.batches).unwrap()
        };
        assert_eq!(keys.num_rows(), retrieved.len());
        // What comes between the two is in neither.
        finished_group(&solver, 0, "q9", [1.0, 1.0]);
        finished_group(&solver, 1, "q2", [1.0, 1.0]);
        let prepared = run.session.prepare(OF_A_KEY).await.unwrap();
        let values = prepared.stream(Some(&keys)).await.unwrap().collect().await.unwrap();
        assert_eq!(rows(&values), retrieved);
        // All keys of a version in one look.
        let first = keys.column(1).as_primitive::<UInt64Type>().values().iter().filter(|v| **v == 0).count();
        let samples: Vec<String> =
            keys.column(0).as_string_view().iter().map(|sample| format!("'{}'", sample.unwrap())).collect();
        let version = format!(
            "SELECT count(*) AS n FROM solver WHERE policy_version = 0 AND reward > 0.3 AND sample_id IN ({})",
            samples.join(", ")
        );
        assert_eq!(rows(&run.session.sql(&version).await.unwrap()), [json!({"n": first})]);
    });
    assert!(run.rows(RETRIEVED).len() > retrieved.len());
}

// FX-24, FX-20
#[test]
fn a_column_that_comes_later_can_be_asked_from_the_next_statement_on() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    finished_group(&solver, 0, "q1", [1.0, 0.0]);
    let sql = "SELECT sample_id, next_agent_id, next_agent_id_status, next_agent_id_at IS NULL AS never FROM solver ORDER BY 1";
    assert!(run.error(sql, Kind::Input).contains("next_agent_id"), "it is not there yet");
    solver.add_column(DataColumn::new("next_agent_id", DataType::Int32)).unwrap();
    let row = |id: &str, next: Option<i32>, status: bool| json!({"sample_id": id, "next_agent_id": next, "next_agent_id_status": status, "never": !status});
    let old = [row("q1_0_0", None, false), row("q1_0_1", None, false)];
    assert_eq!(run.rows(sql), old, "of old rows the status is false");
    // A null that is final says that the trajectory ends here; one that is not, that nobody knows yet.
    let solver = run.store.table("solver").unwrap();
    solver.insert(0, "q2_0_0", [("next_agent_id", Value::Null)]).unwrap();
    solver.insert(0, "q2_0_1", [("next_agent_id", 1.into())]).unwrap();
    solver.insert(0, "q2_0_2", []).unwrap();
    let new = [row("q2_0_0", None, true), row("q2_0_1", Some(1), true), row("q2_0_2", None, false)];
    assert_eq!(run.rows(sql), [&old[..], &new].concat());
    let ends = "SELECT sample_id FROM solver WHERE next_agent_id IS NULL AND next_agent_id_status";
    assert_eq!(run.column(ends), ["q2_0_0"]);
    let added =
        "SELECT data_type FROM system.columns WHERE table_name = 'solver' AND column_name = 'next_agent_id'";
    assert_eq!(run.column(added), ["int32"]);
}

// AW-B20
#[test]
fn an_episode_log_is_a_select() {
    let run = Run::empty();
    let schema = Schema::new()
        .data("difficulty", DataType::Int32)
        .data("reward", DataType::Float64)
        .data("progress", DataType::Float64)
        .data("tier", DataType::Utf8);
    let player = run.store.create_table("player", schema).unwrap();
    // Task t1 is easy and done twice in three rollouts; t2 is hard and was done once, late.
    for (task, rollout, tier, difficulty, turns) in [
        ("t1", 0, "easy", 1, &[0.5, 1.0][..]),
        ("t1", 1, "easy", 1, &[0.0]),
        ("t1", 2, "easy", 1, &[1.0]),
        ("t2", 0, "hard", 5, &[0.1, 0.2, 0.3]),
        ("t2", 1, "hard", 5, &[0.25, 0.5, 0.75, 1.0]),
    ] {
        for (turn, progress) in turns.iter().enumerate() {
            let cells: [(&str, Value<'_>); 4] = [
                ("difficulty", difficulty.into()),
                ("reward", f64::from(u8::from(*progress == 1.0)).into()),
                ("progress", (*progress).into()),
                ("tier", tier.into()),
            ];
            player.insert(3, &format!("{task}_{turn}_{rollout}"), cells).unwrap();
        }
    }
    let log = run.rows(
        "WITH episodes AS (SELECT policy_version AS step, trajectory_id AS rollout_idx, input_id AS task_id, \
             max(difficulty) AS difficulty, max(reward) AS task_reward, max(reward) >= 1 AS task_achieved, \
             last_value(progress ORDER BY turn) AS final_progress, count(*) AS num_steps, max(tier) AS tier, \
             max(reward_at) AS timestamp FROM player WHERE reward_status GROUP BY 1, 2, 3) \
         SELECT step, rollout_idx, task_id, difficulty, task_reward, task_achieved, final_progress, num_steps, tier, \
             round(avg(CAST(task_achieved AS INT)) OVER (PARTITION BY step, tier), 3) AS tier_success_rate, \
             timestamp IS NOT NULL AS timed FROM episodes ORDER BY task_id, rollout_idx",
    );
    let episode = |rollout: u32, task: &str, difficulty: i32, achieved: bool, progress: f64, steps: u32| {
        let (tier, rate) = if task == "t1" { ("easy", 0.667) } else { ("hard", 0.5) };
        json!({"step": 3, "rollout_idx": rollout, "task_id": task, "difficulty": difficulty,
            "task_reward": f64::from(u8::from(achieved)), "task_achieved": achieved, "final_progress": progress,
            "num_steps": steps, "tier": tier, "tier_success_rate": rate, "timed": true})
    };
    let expected = [
        episode(0, "t1", 1, true, 1.0, 2),
        episode(1, "t1", 1, false, 0.0, 1),
        episode(2, "t1", 1, true, 1.0, 1),
        episode(0, "t2", 5, false, 0.3, 3),
        episode(1, "t2", 5, true, 1.0, 4),
    ];
    assert_eq!(log, expected);
}
