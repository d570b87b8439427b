//! Shapes of data that frameworks keep, expressed with tables, columns, parents and tasks, and read back exactly.

use std::thread::Builder;

use forebay_store::*;

use crate::support::*;

fn id(text: &str) -> SampleId {
    text.parse().unwrap()
}

/// What a list cell shows, as numbers.
fn numbers<T: std::str::FromStr<Err: std::fmt::Debug>>(shown: &str) -> Vec<T> {
    shown.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

// AJ-B04: what is known of an episode from its start is in its row, what changes is a row a change.
#[test]
fn an_episode_record_is_a_table_and_its_finished_snapshot_another() {
    let world = World::new();
    let store = world.open();
    let record = Schema::new()
        .data("status", DataType::Utf8)
        .data("base_url", DataType::Utf8)
        .data("api_key", DataType::Utf8)
        .data("client_uuid", DataType::Utf8)
        .data("latest_activity", DataType::Number(Element::Int64))
        .data("discard_timeout", DataType::Number(Element::Float64))
        .data("llm_call_count", DataType::Number(Element::UInt32))
        .data("task_id", DataType::Utf8);
    let episodes = store.create_table("episodes", record).unwrap();
    let finished = Schema::new().data("output", DataType::Utf8).data("reward", DataType::Float32);
    let finished = store.create_table("finished", finished).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["finished"]).ready(["reward"])).unwrap();
    let note = |uuid: &str, change: u32, purpose, claimed: bool, calls: u64| {
        let new = NewRow::of(0, SampleId::new(uuid, change, 0).unwrap()).purpose(purpose);
        let (client, task) =
            if claimed { ("client-9".into(), "task-4".into()) } else { (Value::Null, Value::Null) };
        let cells = [
            ("status", if claimed { "claimed" } else { "registered" }.into()),
            ("base_url", "http://10.0.0.7:8000/v1".into()),
            ("api_key", uuid.into()),
            ("client_uuid", client),
            ("latest_activity", (1_000 + i64::from(change)).into()),
            ("discard_timeout", if claimed { 30.0 } else { -1.0 }.into()),
            ("llm_call_count", (calls as i64).into()),
            ("task_id", task),
        ];
        episodes.insert_row(new, cells).unwrap();
    };
    note("e_1", 0, Purpose::Train, false, 0);
    note("e_1", 1, Purpose::Train, true, 0);
    note("e_1", 2, Purpose::Train, true, 3);
    note("e_2", 0, Purpose::Eval, false, 0);
    let ended = |id: &str, purpose| {
        let new = NewRow::new(0, id).unwrap().purpose(purpose).parent("episodes/e_1_2_0");
        finished.insert_row(new, [("output", "done".into()), ("reward", 1.0.into())]).unwrap();
    };
    ended("e_1_0_0", Purpose::Train);
    ended("e_2_0_0", Purpose::Eval);
    let store = world.reopen(store);
    let shown = pick(
        &store,
        "episodes",
        &[
            "sample_id",
            "purpose",
            "status",
            "client_uuid",
            "latest_activity",
            "discard_timeout",
            "llm_call_count",
            "task_id",
        ],
    );
    assert_eq!(
        shown,
        [
            ["e_1_0_0", "train", "registered", "null", "1000", "-1.0", "0", "null"],
            ["e_1_1_0", "train", "claimed", "client-9", "1001", "30.0", "0", "task-4"],
            ["e_1_2_0", "train", "claimed", "client-9", "1002", "30.0", "3", "task-4"],
            ["e_2_0_0", "eval", "registered", "null", "1000", "-1.0", "0", "null"],
        ]
    );
    drop(train);
    let train = store.consumer("train").unwrap();
    assert_eq!(
        train_once(&store, &train, StepPlan::new().rows(&train, 9), "finished"),
        1,
        "eval stays out of it"
    );
}

// PL-04: {obs, action, reward, done}, a row a step; a trajectory is handed out with all of its steps.
#[test]
fn the_steps_of_a_trajectory_are_rows_that_come_together() {
    let world = World::new();
    let store = world.open();
    let step = Schema::new()
        .data("obs", DataType::Tensor(Element::Float32, vec![2, 3]))
        .data("action", DataType::list(Element::Int32))
        .data("reward", DataType::Float32)
        .data("done", DataType::Bool);
    let table = store.create_table("env", step).unwrap();
    let declared = Consumer::trainer(["env"]).ready(["obs", "action", "reward", "done"]);
    let declared = declared.trajectories(GroupBy::Input, 2, TrajectoryEnd::Closed);
    let train = store.create_consumer("train", declared).unwrap();
    let lengths = [3_u32, 5];
    let obs = |turn: u32, trajectory: u32| [turn as f32, trajectory as f32, 0.5, -1.0, 2.0, 4.0];
    for turn in 0..5 {
        for (trajectory, _) in (0..).zip(lengths).filter(|(_, length)| turn < *length) {
            let row = NewRow::of(0, SampleId::new("seed7", turn, trajectory).unwrap());
            let done = turn + 1 == lengths[trajectory as usize];
            let mut batch = store.batch();
            let cells = [
                ("obs", obs(turn, trajectory).to_vec().into()),
                ("action", vec![turn as i32, 9].into()),
                ("reward", f64::from(turn).into()),
                ("done", done.into()),
            ];
            batch.insert(&table, row, cells).unwrap();
            if done {
                batch.close_trajectory(&train, &table, 0, "seed7", trajectory).unwrap();
            }
            batch.commit().unwrap();
        }
    }
    let open = store.begin_step(StepPlan::new().groups(&train, ["seed7"])).unwrap();
    let claim = open.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap();
    assert_eq!(claim.len(), 8);
    let shown =
        show_batch(&claim.columns(["turn", "trajectory_id", "obs", "action", "reward", "done"]).unwrap());
    let mut expected = Vec::new();
    for turn in 0..5_u32 {
        for (trajectory, length) in (0_u32..).zip(lengths).filter(|(_, length)| turn < *length) {
            let done = turn + 1 == length;
            expected.push(format!(
                "turn={turn} | trajectory_id={trajectory} | obs={turn}.0 {trajectory}.0 0.5 -1.0 2.0 4.0 | \
                 action={turn} 9 | reward={turn}.0 | done={done}"
            ));
        }
    }
    assert_eq!(shown, expected);
}

// PL-B05: a parent pointer and an is-selected flag; the trajectory is a tree.
#[test]
fn a_tree_of_samples_gives_back_the_path_to_each_of_its_leaves() {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new().data("reward", DataType::Float32).data("is_selected", DataType::Bool);
    let table = store.create_table("tree", schema).unwrap();
    // Three candidates a turn; the one of the greatest reward goes on.
    let winners = [1_u32, 2, 0, 1];
    let mut parent = String::new();
    for (turn, winner) in (0_u32..).zip(winners) {
        let rows: Vec<Row> = (0..3)
            .map(|candidate| {
                let sample = SampleId::new("q", turn, turn * 3 + candidate).unwrap();
                let reward = if candidate == winner { 1.0 } else { 0.0 };
                table.insert_row(NewRow::of(0, sample).parent(&parent), [("reward", reward.into())]).unwrap()
            })
            .collect();
        for (candidate, row) in (0..).zip(rows) {
            table.write(row, [("is_selected", (candidate == winner).into())]).unwrap();
        }
        parent = format!("tree/q_{turn}_{}", turn * 3 + winner);
    }
    let store = world.reopen(store);
    let table = store.table("tree").unwrap();
    let path_of = |leaf: &str| {
        let mut path = vec![leaf.to_owned()];
        while let Some(parent) = table.get(0, &id(path.last().unwrap())).unwrap().parent {
            path.push(parent.strip_prefix("tree/").unwrap().to_owned());
        }
        path.reverse();
        path
    };
    assert_eq!(path_of("q_3_10"), ["q_0_1", "q_1_5", "q_2_6", "q_3_10"]);
    assert_eq!(path_of("q_3_11"), ["q_0_1", "q_1_5", "q_2_6", "q_3_11"], "a loser of the last turn");
    assert_eq!(path_of("q_1_3"), ["q_0_1", "q_1_3"]);
    let shown = pick(&store, "tree", &["sample_id", "is_selected"]);
    let selected: Vec<&str> = shown.iter().filter(|row| row[1] == "true").map(|row| &*row[0]).collect();
    assert_eq!(selected, path_of("q_3_10"), "the path of those that were selected");
}

// AW-B17, AW-11: turns lie in one sequence, and their spans give the interleaving back exactly.
#[test]
fn the_turns_of_a_merged_row_are_told_apart_exactly() {
    let world = World::new();
    let store = world.open();
    let merged = Schema::new()
        .data("tokens", DataType::list(Element::Int32))
        .data("mask", DataType::list(Element::Int8))
        .data("logprobs", DataType::list(Element::Float32))
        .data("turns", DataType::list(Element::UInt32))
        .data("reward", DataType::Float32)
        .role("tokens", Role::InputIds)
        .role("mask", Role::LossMask)
        .role("logprobs", Role::BehaviourLogprobs);
    let table = store.create_table("merged", merged).unwrap();
    let seed = 11;
    let dice = SeededRandomness::new(seed);
    let below = |limit: u64| (dice.next_u64() % limit) as usize;
    let mut episodes: Vec<Vec<(Vec<i32>, Vec<i32>)>> = Vec::new();
    for _ in 0..40 {
        let turns = (0..1 + below(6)).map(|_| {
            let ids = |most: u64| (0..below(most)).map(|_| below(1 << 15) as i32).collect::<Vec<i32>>();
            (ids(9), ids(14)) // a prompt or a completion may be empty
        });
        episodes.push(turns.collect());
    }
    for (number, turns) in episodes.iter().enumerate() {
        let row = table.insert(0, &format!("e_0_{number}"), []).unwrap();
        let mut spans = Vec::new();
        for (prompt, completion) in turns {
            let length = prompt.len() + completion.len();
            let mask: Vec<i8> = (0..length).map(|at| i8::from(at >= prompt.len())).collect();
            let logprobs: Vec<f32> = (0..length).map(|at| -(at as f32)).collect();
            table.append(row, "tokens", [&prompt[..], completion].concat().into()).unwrap();
            table.append(row, "mask", mask.into()).unwrap();
            table.append(row, "logprobs", logprobs.into()).unwrap();
            spans.extend([prompt.len() as u32, completion.len() as u32]);
        }
        ["tokens", "mask", "logprobs"].iter().for_each(|column| table.finalize(row, column).unwrap());
        table.write(row, [("turns", spans.into()), ("reward", 1.0.into())]).unwrap();
    }
    let store = world.reopen(store);
    let rows = pick(&store, "merged", &["tokens", "mask", "logprobs", "turns"]);
    for (turns, row) in episodes.iter().zip(rows) {
        let (tokens, mask): (Vec<i32>, Vec<i8>) = (numbers(&row[0]), numbers(&row[1]));
        assert_eq!((mask.len(), numbers::<f32>(&row[2]).len()), (tokens.len(), tokens.len()), "seed {seed}");
        let mut at = 0;
        let mut next = |length: u32| {
            at += length as usize;
            tokens[at - length as usize..at].to_vec()
        };
        let spans: Vec<u32> = numbers(&row[3]);
        let again: Vec<(Vec<i32>, Vec<i32>)> =
            spans.chunks(2).map(|turn| (next(turn[0]), next(turn[1]))).collect();
        assert_eq!(&again, turns, "seed {seed}");
        let completions: usize = turns.iter().map(|(_, completion)| completion.len()).sum();
        assert_eq!(mask.iter().filter(|kept| **kept == 1).count(), completions, "seed {seed}");
    }
}

// FX-20: the value may be null and has a status of its own: null that is final says that the lineage ends.
#[test]
fn a_next_agent_that_is_null_and_final_is_an_end() {
    let world = World::new();
    let store = world.open();
    let schema = Schema::new().data("response", DataType::Utf8).data("next_agent_id", DataType::Utf8);
    let table = store.create_table("solver", schema).unwrap();
    let routed = store.create_consumer("route", Consumer::task(["solver"]).ready(["next_agent_id"])).unwrap();
    let rows = ["a_0_0", "b_0_0", "c_0_0"].map(|id| table.insert(0, id, [("response", "r".into())]).unwrap());
    table.write(rows[0], [("next_agent_id", "checker".into())]).unwrap();
    table.write(rows[1], [("next_agent_id", Value::Null)]).unwrap();
    table.write(rows[1], [("next_agent_id", Value::Null)]).unwrap();
    assert!(table.write(rows[1], [("next_agent_id", "checker".into())]).is_err(), "an end is an end");
    assert_eq!(
        ids(&routed.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().unwrap()),
        ["a_0_0", "b_0_0"]
    );
    let store = world.reopen(store);
    assert_eq!(
        pick(&store, "solver", &["sample_id", "next_agent_id", "next_agent_id_status"]),
        [["a_0_0", "checker", "true"], ["b_0_0", "null", "true"], ["c_0_0", "null", "false"]]
    );
}

// PL-16: a thousand environments write at once, in batches of what 128 of them have; no row is lost.
#[test]
fn a_thousand_writers_lose_no_row() {
    const WRITERS: usize = 1000;
    let world = World::new();
    let (store, table) = solver(&world);
    let start = std::sync::Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (table, start, store) = (&table, &start, &store);
            let write = move || {
                start.wait();
                let prompt = format!("the prompt of environment {writer}, which lies in an extent");
                let row =
                    table.insert(0, &format!("env{writer}_0_0"), [("prompt", (&*prompt).into())]).unwrap();
                table.append(row, "response", vec![writer as i32; 1 + writer % 7].into()).unwrap();
                table.finalize(row, "response").unwrap();
                table.write(row, [("reward", (writer as f64).into())]).unwrap();
                if writer % 128 == 0 {
                    let mut batch = store.batch();
                    for other in writer..(writer + 128).min(WRITERS) {
                        let next = NewRow::new(0, &format!("env{other}_1_0")).unwrap();
                        batch.insert(table, next, [("prompt", "again".into())]).unwrap();
                    }
                    batch.commit().unwrap();
                }
            };
            Builder::new().stack_size(256 << 10).spawn_scoped(scope, write).unwrap();
        }
    });
    let store = world.reopen(store);
    let rows = pick(&store, "solver", &["sample_id", "prompt", "response", "reward"]);
    let mut expected: Vec<Vec<String>> = Vec::new();
    for writer in 0..WRITERS {
        let prompt = format!("the prompt of environment {writer}, which lies in an extent");
        let response = vec![writer.to_string(); 1 + writer % 7].join(" ");
        expected.push(vec![format!("env{writer}_0_0"), prompt, response, format!("{writer}.0")]);
        let nothing = || "null".to_owned();
        expected.push(vec![format!("env{writer}_1_0"), "again".to_owned(), nothing(), nothing()]);
    }
    assert_eq!(rows, expected);
    check_counts(&store);
}
