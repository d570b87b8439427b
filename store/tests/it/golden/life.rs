//! The life of which the golden files are what is left: every kind of record, every kind of value, two processes.
//!
//! Nothing in it is left to chance, so that it can be lived again and has to leave the same bytes.

use std::time::Duration;

use forebay_store::*;

use crate::support::*;

/// Small extents, so that some are full, thin, empty and used again before long.
pub(super) fn options(world: &World) -> Options {
    world.options().extent_bytes(4096, 4096).object_versions_kept(8)
}

fn open(world: &World) -> Store {
    Store::open(ROOT, options(world)).unwrap()
}

/// Two processes, killed one after the other. `checkpointed` lets the second take a checkpoint on its way, which changes
/// the files and nothing that anybody sees.
pub(super) fn live(checkpointed: bool) -> World {
    let world = World::new();
    first_process(&world);
    world.disk.restart();
    second_process(&world, checkpointed);
    world.disk.restart();
    world
}

fn first_process(world: &World) {
    let store = open(world);
    declare(&store);
    write_every_type(&store);
    write_rows(&store);
    group_rows(&store);
    work_on_tasks(world, &store);
    train(world, &store);
    go_back(&store);
    move_values(&store);
    // Left as a process leaves it that dies in the middle of a step.
    let train = store.consumer("train").unwrap();
    finished(&store.table("solver").unwrap(), 3, "left_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 5)).unwrap();
    let claim = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap();
    std::mem::forget((claim, step, train, store));
}

fn second_process(world: &World, checkpointed: bool) {
    world.clock.advance(Duration::from_secs(60));
    let retention = Retention::default().consumed_for(Duration::from_secs(100));
    let store = Store::open(ROOT, options(world).object_versions_kept(1).retention(retention)).unwrap();
    change_columns(&store);
    delete(&store);
    if checkpointed {
        store.checkpoint().unwrap();
    }
    let judge = store.table("judge").unwrap();
    let notes = "written into a column that came later".into();
    judge
        .insert(4, "late_0_0", [("verdict", 0.75.into()), ("pressure", 9.into()), ("notes", notes)])
        .unwrap();
    let solver = store.table("solver").unwrap();
    let row = solver
        .insert(3, "half_0_0", [("prompt", "half a row, with one cell that still grows".into())])
        .unwrap();
    solver.append(row, "response", vec![7_i32; 20].into()).unwrap();
    leave_open(&store);
}

fn every_element() -> [(&'static str, Element); 12] {
    [
        ("int8", Element::Int8),
        ("int16", Element::Int16),
        ("int32", Element::Int32),
        ("int64", Element::Int64),
        ("uint8", Element::UInt8),
        ("uint16", Element::UInt16),
        ("uint32", Element::UInt32),
        ("uint64", Element::UInt64),
        ("float16", Element::Float16),
        ("bfloat16", Element::BFloat16),
        ("float32", Element::Float32),
        ("float64", Element::Float64),
    ]
}

fn declare(store: &Store) {
    let start = store.put_object("judge.weights", 3, b"the judge as it began").unwrap();
    store.declare_policy("judge", Policy::durable(["judge.weights"]).version(3).objects(&[start])).unwrap();
    let solver = Schema::new()
        .data_shared("prompt", DataType::Utf8)
        .data("response", DataType::list(Element::Int32))
        .role("response", Role::InputIds)
        .data("logprobs", DataType::list(Element::Float32))
        .role("logprobs", Role::BehaviourLogprobs)
        .data("reward", DataType::Float32)
        .role("reward", Role::Reward);
    store.create_table("solver", solver).unwrap();
    let judge = Schema::new()
        .data("verdict", DataType::Float32)
        .data("pressure", DataType::Int32)
        .data("image", DataType::tensor(Element::UInt8, [2, 3]))
        .lazy("image")
        .policy("judge");
    store.create_table("judge", judge).unwrap();
    let every = every_element().into_iter().fold(Schema::new(), |schema, (name, element)| {
        schema.data(name, DataType::Number(element)).data(&format!("{name}s"), DataType::list(element))
    });
    let every =
        every.data("bool", DataType::Bool).data("utf8", DataType::Utf8).data("binary", DataType::Binary);
    store.create_table("types", every.data("tensor", DataType::tensor(Element::Float32, [2, 2]))).unwrap();
    store.create_table("turns", Schema::new().data("text", DataType::Utf8)).unwrap();
    store.create_table("short-lived", Schema::new().data("text", DataType::Utf8)).unwrap();
    let archived = Schema::new().data("reward", DataType::Float32).policy("solver");
    store.create_table("archived", archived).unwrap();
    store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    let judged = Consumer::trainer(["judge"]).ready(["verdict"]).only("verdict", Comparison::AtLeast, 0.5);
    store.create_consumer("train-judge", judged.priority("pressure")).unwrap();
    let score = Consumer::task(["solver"]).ready(["prompt"]).purposes([Purpose::Train, Purpose::Eval]);
    store.create_consumer("score", score).unwrap();
    let turns = Consumer::trainer(["turns"])
        .ready(["text"])
        .trajectories(GroupBy::Input, 2, TrajectoryEnd::Closed)
        .when_a_member_fails(GroupRule::Shrink { least: 1 })
        .staleness(2);
    store.create_consumer("train-turns", turns).unwrap();
    let pairs = Consumer::task(["turns"]).group(GroupBy::Parent, 2).when_a_member_fails(GroupRule::Exclude);
    store.create_consumer("pairs", pairs).unwrap();
}

/// A row that has a value of every type, one that has the extremes of some, and one that has nulls.
fn write_every_type(store: &Store) {
    let table = store.table("types").unwrap();
    for (at, number) in [(0, 1_i64), (1, 100)] {
        let mut batch = store.batch();
        batch.insert(&table, NewRow::new(0, &format!("all_0_{at}")).unwrap(), []).unwrap();
        let row = batch.commit().unwrap()[0];
        for (name, element) in every_element() {
            let lists = format!("{name}s");
            let bytes = (0..element.width_bytes() * 10 * at).map(|i| i as u8 % 64).collect::<Vec<u8>>();
            let list = Value::Numbers(element, bytes.into());
            table.write(row, [(name, number.into()), (&*lists, list)]).unwrap();
        }
        let text = "text that does not lie inside its view ".repeat(at);
        let bytes = vec![0xFE_u8; 12 + at];
        let tensor = Value::from(vec![1.0_f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE]);
        let cells = [
            ("bool", (at == 1).into()),
            ("utf8", text.into()),
            ("binary", (&bytes[..]).into()),
            ("tensor", tensor),
        ];
        table.write(row, cells).unwrap();
    }
    let extremes =
        [("int64", i64::MIN.into()), ("uint64", u64::MAX.into()), ("float64", f64::MIN_POSITIVE.into())];
    table.insert(0, "extremes_0_0", extremes).unwrap();
    table
        .insert(0, "nulls_0_0", [("utf8", Value::Null), ("int8", Value::Null), ("tensor", Value::Null)])
        .unwrap();
}

const PROMPT: &str = "a prompt that every member of its group has, and that is stored once";

/// Everything that may be said of a row, at every level.
fn write_rows(store: &Store) {
    let table = store.table("solver").unwrap();
    let prompt = || [("prompt", Value::from(PROMPT))];
    let new = NewRow::new(0, "q_0_0").unwrap().agent("alice").parent("q_0_9");
    table.insert_row(new.weights("fingerprint").token(77), prompt()).unwrap();
    table.insert_rollouts(NewRow::next_trajectory(0, "numbered", 0).unwrap(), 3, prompt()).unwrap();
    for (purpose, id) in [(Purpose::Eval, "eval_0_0"), (Purpose::WarmUp, "warm_0_0")] {
        table.insert_row(NewRow::new(0, id).unwrap().purpose(purpose), prompt()).unwrap();
    }
    table.insert_row(NewRow::new(0, "out_0_0").unwrap().excluded("parent"), []).unwrap();
    let lost = table.insert(0, "lost_0_0", []).unwrap();
    table.exclude(lost, "the worker died").unwrap();
    table.insert(0, "again_0_0", []).unwrap();
    table.insert_row(NewRow::new(0, "again_0_0").unwrap().next_attempt(), prompt()).unwrap();
    for level in [Durability::Memory, Durability::Logged, Durability::Synced] {
        let mut batch = store.batch();
        batch.durability(level);
        let row = NewRow::new(0, &format!("{level}_0_0")).unwrap();
        let response = vec![level as i32; 100];
        batch.insert(&table, row, [("response", response.into()), ("reward", 1.0.into())]).unwrap();
        batch.commit().unwrap();
    }
    let spanned = table.insert(0, "spanned_0_0", prompt()).unwrap();
    table.append(spanned, "response", vec![1_i32; 30].into()).unwrap();
    table.span(spanned, 30, 2).unwrap();
    table.append(spanned, "response", vec![2_i32; 12].into()).unwrap();
    table.finalize(spanned, "response").unwrap();
    table.trainable_from(spanned, 30).unwrap();
    let origin = Origin { peer: "another-run".to_owned(), round: 4 };
    table.insert_row(NewRow::new(0, "theirs_0_0").unwrap().external(&origin), prompt()).unwrap();
    store.sync().unwrap();
}

/// Groups of rows and of trajectories, and what can be said of them.
fn group_rows(store: &Store) {
    store
        .table("short-lived")
        .unwrap()
        .insert(0, "gone_0_0", [("text", "of a version that is retired".into())])
        .unwrap();
    store.table("archived").unwrap().insert(0, "moved_0_0", [("reward", 0.5.into())]).unwrap();
    let table = store.table("turns").unwrap();
    let turns = store.consumer("train-turns").unwrap();
    for id in ["story_0_0", "story_1_0", "story_0_1", "other_0_0", "short_0_0"] {
        let row = NewRow::new(0, id).unwrap().parent("root_0_0");
        table.insert_row(row, [("text", format!("what was said in {id}").into())]).unwrap();
    }
    turns.expect_group(&table, 0, "other", 1).unwrap();
    turns.close_trajectory(&table, 0, "story", 0).unwrap();
    turns.close_group(&table, 0, "short").unwrap();
}

/// Claims of a task: one that finishes, one that is given back, one whose lease ends, one that is held on.
fn work_on_tasks(world: &World, store: &Store) {
    let (table, score) = (store.table("solver").unwrap(), store.consumer("score").unwrap());
    let claim = |rows| score.claim(MicroBatch::up_to(rows), "scorer", Wait::No).unwrap().unwrap();
    let done = claim(2);
    let rows = done.rows().to_vec();
    done.finish(|batch| rows.iter().try_for_each(|row| batch.write(&table, *row, [("reward", 0.25.into())])))
        .unwrap();
    claim(1).release().unwrap();
    let expires = claim(2);
    world.clock.advance(LEASE);
    store.run_once().unwrap();
    drop(expires);
    std::mem::forget(claim(1));
}

fn commit(store: &Store, step: &Step, policy: &str) {
    let version = store.policy(policy).unwrap().version + 1;
    let key = format!("{policy}.weights");
    let weights = store.put_object(&key, version, format!("{policy} at {version}").as_bytes()).unwrap();
    step.commit([(policy, vec![weights])]).unwrap();
}

/// Steps: given up, with a cache that was dropped, by a gang, and of another policy.
fn train(world: &World, store: &Store) {
    let train = store.consumer("train").unwrap();
    drop(store.begin_step(StepPlan::new().rows(&train, 1)).unwrap());
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let next = |rows| step.next(&train, MicroBatch::up_to(rows), Wait::No).unwrap().unwrap();
    next(1).accumulated().unwrap();
    step.drop_cache("solver").unwrap();
    next(2).accumulated().unwrap();
    commit(store, &step, "solver");

    world.clock.advance(Duration::from_secs(100)); // only what came before is too old for retention in the end
    for id in ["gang_0_0", "gang_0_1"] {
        finished(&store.table("solver").unwrap(), 1, id);
    }
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let ranks = [0, 1].map(|rank| step.join(&train, Gang::new("ranks", rank, 2).split(Split::Same)).unwrap());
    ranks
        .iter()
        .for_each(|rank| rank.next(MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap());
    commit(store, &step, "solver");

    let (judge, judged) = (store.table("judge").unwrap(), store.consumer("train-judge").unwrap());
    for (id, verdict, pressure) in [("bad_0_0", 0.25, 9), ("good_0_0", 0.5, 1), ("best_0_0", 1.0, 2)] {
        let image = Value::Numbers(Element::UInt8, vec![1, 2, 3, 4, 5, pressure as u8].into());
        judge
            .insert(3, id, [("verdict", verdict.into()), ("pressure", pressure.into()), ("image", image)])
            .unwrap();
    }
    let step = store.begin_step(StepPlan::new().rows(&judged, 1)).unwrap();
    step.next(&judged, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    commit(store, &step, "judge");
}

/// Two more steps, each undone, once with its rows to be trained on again and once without.
fn go_back(store: &Store) {
    let (table, train) = (store.table("solver").unwrap(), store.consumer("train").unwrap());
    for (how, id) in [(Rewind::TrainAgain, "rewound_0_0"), (Rewind::Exclude, "rewound_0_1")] {
        finished(&table, 2, id);
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        commit(store, &step, "solver");
        let back = store
            .steps()
            .iter()
            .rev()
            .filter(|step| step.progress == StepProgress::Committed)
            .nth(1)
            .unwrap()
            .step;
        store.rewind(back, how).unwrap();
    }
    finished(&table, 2, "after_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    commit(store, &step, "solver");
}

/// Cells that grow and are closed leave dead fragments behind; what lives beside them moves, and the extents are used
/// again.
fn move_values(store: &Store) {
    let table = store.table("solver").unwrap();
    for i in 0..4 {
        let row = table.insert(3, &format!("grows_0_{i}"), []).unwrap();
        (0..20).for_each(|part| table.append(row, "response", vec![part; 10].into()).unwrap());
        table.finalize(row, "response").unwrap();
        store.sync().unwrap();
        store.run_once().unwrap();
    }
    assert!(store.stats().extents_recycled > 0, "{:?}", store.stats());
}

fn change_columns(store: &Store) {
    let judge = store.table("judge").unwrap();
    judge.add_column(DataColumn::new("notes", DataType::Utf8).lazy()).unwrap();
    judge.rename_column("pressure", "urgency").unwrap();
    judge.rename_column("urgency", "pressure").unwrap();
    judge.retire_column("image").unwrap();
}

/// One row, one version, rows of peers with their groups, a version that was moved out, and what retention no longer keeps: the rows of
/// the first step.
fn delete(store: &Store) {
    let (turns, origin) =
        (store.table("turns").unwrap(), Origin { peer: "another-run".to_owned(), round: 5 });
    let theirs = |i: u32| NewRow::new(0, &format!("theirs{i}_0_0")).unwrap().external(&origin);
    let theirs: Vec<Row> = (0..16).map(|i| turns.insert_row(theirs(i), []).unwrap()).collect();
    turns.delete(&Delete::rows(theirs)).unwrap();
    let solver = store.table("solver").unwrap();
    let row = solver.find(0, &"lost_0_0".parse().unwrap()).unwrap();
    solver.delete(&Delete::rows([row])).unwrap();
    store.table("short-lived").unwrap().delete(&Delete::version(0).force()).unwrap();
    let archived = store.table("archived").unwrap();
    archived.delete_unchanged(0, store.snapshot().table("archived").unwrap()).unwrap();
    store.run_once().unwrap();
}

/// What the files end with: claims of a task, of a step and of a gang, none of them over.
fn leave_open(store: &Store) {
    let score = store.consumer("score").unwrap();
    let task = score.claim(MicroBatch::up_to(1), "scorer", Wait::No).unwrap().unwrap();
    let train = store.consumer("train").unwrap();
    for id in ["open_0_0", "open_0_1", "open_0_2"] {
        finished(&store.table("solver").unwrap(), 3, id);
    }
    let step = store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let ranks = [0, 1].map(|rank| step.join(&train, Gang::new("ranks", rank, 2)).unwrap());
    let parts = ranks.each_ref().map(|rank| rank.next(MicroBatch::of(2), Wait::No).unwrap().unwrap());
    let [first, second] = parts;
    task.extend(Duration::from_secs(86_400)).unwrap(); // is written with what comes next
    first.accumulated().unwrap();
    std::mem::forget((task, second, ranks, step));
}
