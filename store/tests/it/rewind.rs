//! Going back to a step, and what a step was made of.

use std::collections::BTreeMap;

use forebay_store::*;
use proptest::prelude::*;

use crate::support::*;

fn open(world: &World) -> Store {
    Store::open(ROOT, world.options().object_versions_kept(8)).unwrap()
}

fn reopen(world: &World, store: Store) -> Store {
    std::mem::forget(store);
    world.disk.restart();
    open(world)
}

/// A store that keeps eight states of its policy, with a table that is trained on by rows or by groups of an input.
fn trained(world: &World, group: Option<u32>) -> (Store, Table, ConsumerHandle) {
    let store = open(world);
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]);
    let declared = group.map_or(declared.clone(), |members| declared.group(GroupBy::Input, members));
    let train = store.create_consumer("train", declared).unwrap();
    (store, table, train)
}

/// One step over `rows` rows in micro-batches of `rule`, with an object of its own. Gives the micro-batches.
fn step(store: &Store, train: &ConsumerHandle, plan: StepPlan, rule: usize) -> Vec<Vec<String>> {
    let step = store.begin_step(plan).unwrap();
    let mut taken = Vec::new();
    while let Some(claim) = step.next(train, MicroBatch::up_to(rule), Wait::No).unwrap() {
        taken.push(ids(&claim));
        claim.accumulated().unwrap();
    }
    let version = store.policy("solver").unwrap().version + 1;
    let weights = store.put_object("solver", version, format!("weights {version}").as_bytes()).unwrap();
    step.commit([("solver", vec![weights])]).unwrap();
    taken
}

fn progress(store: &Store) -> Vec<(u64, StepProgress)> {
    store.steps().into_iter().map(|step| (step.step, step.progress)).collect()
}

#[test]
fn rows_of_undone_steps_are_trained_on_again_in_their_order() {
    for (group, reopened) in [(None, false), (None, true), (Some(2), false), (Some(2), true)] {
        let world = World::new();
        let (mut store, table, mut train) = trained(&world, group);
        let plan = |train: &ConsumerHandle, version: u64| match group {
            None => StepPlan::new().rows(train, 4),
            Some(_) => StepPlan::new().groups(train, ["a", "b"].map(|g| format!("{g}{version}"))),
        };
        let mut taken = Vec::new();
        for version in 0..3 {
            for id in ["b_0_1", "a_0_0", "a_0_1", "b_0_0"] {
                finished(&table, version, &id.replace('_', &format!("{version}_")).replacen("__", "_", 1));
            }
            finished(&table, version, &format!("left{version}_0_0"));
            taken.push(step(&store, &train, plan(&train, version), 2));
        }
        assert_eq!(table.counts().excluded["stale"], 3);
        if reopened {
            (store, train) = {
                let store = reopen(&world, store);
                let train = store.consumer("train").unwrap();
                (store, train)
            };
        }
        let table = store.table("solver").unwrap();
        let outcome = store.rewind(1, Rewind::TrainAgain).unwrap();
        assert_eq!(outcome, RewoundTo { step: 1, steps_undone: 2, rows: 8 });
        assert_eq!(
            progress(&store),
            [(1, StepProgress::Committed), (2, StepProgress::Rewound), (3, StepProgress::Rewound)]
        );
        let policy = store.policy("solver").unwrap();
        assert_eq!((policy.version, policy.objects[0].version), (1, 1));
        assert_eq!(store.object(&policy.objects[0]).unwrap(), b"weights 1");
        assert_eq!((table.counts().consumed, table.counts().excluded["stale"]), (4, 1));
        check_counts(&store);
        if reopened {
            let before = scan(&store);
            store = reopen(&world, store);
            train = store.consumer("train").unwrap();
            assert_eq!(scan(&store), before);
        }
        for version in 1..3 {
            let again = step(&store, &train, plan(&train, version), 2);
            assert_eq!(again, taken[version as usize], "{group:?} version {version}");
        }
        assert_eq!(progress(&store)[3..], [(4, StepProgress::Committed), (5, StepProgress::Committed)]);
        assert_eq!(store.table("solver").unwrap().counts().excluded["stale"], 3);
        check_counts(&store);
    }
}

#[test]
fn rows_of_undone_steps_are_left_out_when_asked() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    for version in 0..3 {
        (0..4).for_each(|i| _ = finished(&table, version, &format!("q_{version}_{i}")));
        step(&store, &train, StepPlan::new().rows(&train, 3), 2);
    }
    finished(&table, 3, "q_3_0");
    store.rewind(1, Rewind::Exclude).unwrap();
    let counts = table.counts();
    assert_eq!((counts.consumed, counts.open()), (3, 1), "the fresh row that no step took is fresh again");
    assert_eq!(
        counts.excluded,
        BTreeMap::from([("rewound".to_owned(), 8), ("stale".to_owned(), 1)]),
        "six of undone steps, two of versions that are gone"
    );
    check_counts(&store);
    let store = reopen(&world, store);
    assert_eq!(store.table("solver").unwrap().counts(), counts);
    let train = store.consumer("train").unwrap();
    assert_eq!(step(&store, &train, StepPlan::new().rows(&train, 1), 2), [["q_1_3"]]);
}

#[test]
fn what_tasks_have_done_stays_done_and_what_they_missed_comes_back() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let judge = store.create_consumer("judge", Consumer::task(["solver"]).ready(["prompt"])).unwrap();
    for id in ["a_0_0", "b_0_0", "c_0_0"] {
        finished(&table, 0, id);
    }
    judge.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap().finish(|_| Ok(())).unwrap();
    let late = judge.claim(MicroBatch::of(1), "me", Wait::No).unwrap().unwrap();
    step(&store, &train, StepPlan::new().rows(&train, 1), 1);
    assert_eq!(table.counts().excluded["stale"], 2);
    store.rewind(0, Rewind::TrainAgain).unwrap();
    assert!(judge.claim(MicroBatch::up_to(9), "you", Wait::No).unwrap().is_none(), "its holder has it again");
    drop(late);
    assert_eq!(ids(&judge.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().unwrap()), ["c_0_0"]);
}

/// A task may finish a row after its version was left behind: the row is done all the same, and should the version come back,
/// nobody is given it again.
#[test]
fn what_a_task_finishes_after_it_was_left_behind_stays_done() {
    for (group, checkpoint) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        let (store, table, train) = trained(&world, None);
        let judge = Consumer::task(["solver"]).ready(["prompt"]);
        let judge = if group { judge.group(GroupBy::Input, 1) } else { judge };
        let judge = store.create_consumer("judge", judge).unwrap();
        for id in ["a_0_0", "b_0_0", "c_0_0"] {
            finished(&table, 0, id);
        }
        let claim = judge.claim(MicroBatch::of(2), "me", Wait::No).unwrap().unwrap();
        assert_eq!(ids(&claim), ["a_0_0", "b_0_0"]);
        step(&store, &train, StepPlan::new().rows(&train, 1), 1);
        claim.finish(|_| Ok(())).unwrap();
        if checkpoint {
            store.checkpoint().unwrap();
        }
        store.rewind(0, Rewind::TrainAgain).unwrap();
        let shown = scan(&store);
        let store = reopen(&world, store);
        assert_eq!(scan(&store), shown);
        let judge = store.consumer("judge").unwrap();
        let again = judge.claim(MicroBatch::up_to(9), "me", Wait::No).unwrap().unwrap();
        assert_eq!(ids(&again), ["c_0_0"], "group {group}, checkpoint {checkpoint}");
        again.finish(|_| Ok(())).unwrap();
        check_counts(&store);
    }
}

#[test]
fn a_rewind_goes_back_to_what_is_kept_and_stands_only() {
    let world = World::new();
    let store = world.open();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    for version in 0..4 {
        finished(&table, version, "q_0_0");
        step(&store, &train, StepPlan::new().rows(&train, 1), 1);
    }
    let error = store.rewind(2, Rewind::TrainAgain).unwrap_err();
    assert!(matches!(error.cause(), Cause::RewindTooFar { step: 2, oldest: 3, kept: 2 }), "{error}");
    assert_eq!(store.rewind(9, Rewind::TrainAgain).unwrap_err().kind(), Kind::Input);
    let open = store.begin_step(StepPlan::new()).unwrap();
    assert!(matches!(store.rewind(3, Rewind::TrainAgain).unwrap_err().cause(), Cause::StepOpen { .. }));
    drop(open);
    let commits = store.stats().commits;
    assert_eq!(store.rewind(4, Rewind::TrainAgain).unwrap().steps_undone, 0);
    assert_eq!(store.stats().commits, commits, "nothing to undo, nothing written");
    let kept = store.put_object("solver", 3, b"other weights").unwrap_err();
    assert!(
        matches!(kept.cause(), Cause::Exists { .. }),
        "committed, not current, and not to be overwritten"
    );
    store.rewind(3, Rewind::TrainAgain).unwrap();
    assert_eq!(store.rewind(4, Rewind::TrainAgain).unwrap_err().kind(), Kind::Input, "it was undone");
    let other = store.put_object("solver", 4, b"weights of another fourth step").unwrap();
    finished(&table, 3, "q_0_1");
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    assert_eq!(step.number(), 5);
    step.next(&train, MicroBatch::of(2), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![other.clone()])]).unwrap();
    assert_eq!(store.object(&other).unwrap(), b"weights of another fourth step");
}

#[test]
fn an_object_that_a_rewind_may_need_is_kept_while_its_policy_sits_out() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    let judge = store.create_table("judge", solver_schema()).unwrap();
    let trained_judge =
        store.create_consumer("train-judge", Consumer::trainer(["judge"]).ready(["reward"])).unwrap();
    let mut first = None;
    for round in 0..12 {
        finished(&table, round, "q_0_0");
        let mut plan = StepPlan::new().rows(&train, 1);
        let mut updates = vec![("solver", vec![])];
        if round % 6 == 0 {
            finished(&judge, round / 6, "q_0_0");
            plan = plan.rows(&trained_judge, 1);
            // Named for the round: versions of an object need not follow on each other.
            let object = store.put_object("judge", round * 10, &round.to_le_bytes()).unwrap();
            first.get_or_insert(object.clone());
            updates.push(("judge", vec![object]));
        }
        let step = store.begin_step(plan).unwrap();
        for consumer in [&train, &trained_judge] {
            if let Some(claim) = step.next(consumer, MicroBatch::up_to(4), Wait::No).unwrap() {
                claim.accumulated().unwrap();
            }
        }
        step.commit(updates).unwrap();
    }
    let first = first.unwrap();
    store.rewind(6, Rewind::TrainAgain).unwrap();
    assert_eq!(store.policy("judge").unwrap().objects, std::slice::from_ref(&first));
    assert_eq!(store.object(&first).unwrap(), 0_u64.to_le_bytes());
    assert_eq!((store.policy("judge").unwrap().version, store.policy("solver").unwrap().version), (1, 6));
    check_counts(&store);
}

#[test]
fn a_durable_policy_moves_with_all_of_its_state_or_not() {
    let world = World::new();
    let store = world.open();
    store.declare_policy("solver", Policy::durable(["solver.weights", "solver.cursor"])).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    finished(&table, 0, "q_0_0");
    let store = world.reopen(store);
    let train = store.consumer(train.name()).unwrap();
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    let weights = store.put_object("solver.weights", 1, b"w").unwrap();
    let error = step.commit([("solver", vec![weights.clone()])]).unwrap_err();
    assert!(matches!(error.cause(), Cause::StateMissing { key, .. } if key == "solver.cursor"), "{error}");
    let nowhere = ObjectRef { key: "solver.cursor".into(), version: 1, bytes: 1, crc32c: 0 };
    let error = step.commit([("solver", vec![weights.clone(), nowhere])]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Unknown { what: "object", .. }), "{error}");
    let cursor = store.put_object("solver.cursor", 1, b"c").unwrap();
    let longer = ObjectRef { bytes: 2, ..cursor.clone() };
    assert_eq!(step.commit([("solver", vec![weights.clone(), longer])]).unwrap_err().kind(), Kind::Input);
    step.commit([("solver", vec![weights, cursor])]).unwrap();
    assert_eq!(store.policy("solver").unwrap().objects.len(), 2);
}

// FX-16, FX-39
#[test]
fn samples_and_steps_know_each_other_by_the_gradient() {
    for reopened in [false, true] {
        let world = World::new();
        let (mut store, table, train) = trained(&world, None);
        let rows: Vec<Row> = (0..5).map(|i| finished(&table, 0, &format!("q_0_{i}"))).collect();
        let taken = step(&store, &train, StepPlan::new().rows(&train, 5), 2);
        let columns: Vec<String> = ["sample_id", "reward"].map(str::to_owned).to_vec();
        if reopened {
            store = reopen(&world, store);
        }
        let batches = store.replay(1).unwrap();
        let names: Vec<Vec<String>> =
            batches.iter().map(|b| b.sample_ids().iter().map(ToString::to_string).collect()).collect();
        assert_eq!(names, taken, "in the original order");
        for (sequence, batch) in batches.iter().enumerate() {
            let id = batch.gradient_id();
            assert_eq!((id.step, id.sequence, &*id.policy), (1, sequence as u32, "solver"));
            assert_eq!(store.samples_of(id).unwrap(), batch.sample_ids());
            for (row, sample) in batch.rows().iter().zip(batch.sample_ids()) {
                assert_eq!(store.gradient_of(*row).as_ref(), Some(id));
                assert_eq!(rows[sample.trajectory() as usize], *row);
            }
            let shown = show_batch(&batch.columns(columns.iter().map(String::as_str)).unwrap());
            assert_eq!(shown.len(), batch.rows().len());
            assert!(shown[0].contains(&taken[sequence][0]), "{shown:?}");
        }
        assert_eq!(store.replay(2).unwrap_err().kind(), Kind::Input);
        store.rewind(0, Rewind::TrainAgain).unwrap();
        assert_eq!(store.replay(1).unwrap_err().kind(), Kind::Input, "it was undone");
        assert_eq!(store.gradient_of(rows[0]), None);
    }
}

// FX-39
#[test]
fn a_gradient_that_is_reported_again_counts_once() {
    let (store, table, train) = trained(&World::new(), None);
    (0..3).for_each(|i| _ = finished(&table, 0, &format!("q_0_{i}")));
    let open = || store.begin_step(StepPlan::new().rows(&train, 3)).unwrap();
    let take = |step: &Step| step.next(&train, MicroBatch::of(3), Wait::No).unwrap().unwrap();
    let given_up = open();
    let first = take(&given_up).gradient_id().unwrap();
    drop(given_up);
    let step = open();
    let claim = take(&step);
    let id = claim.gradient_id().unwrap();
    assert_ne!(id, first, "the step has the number of the one before, its gradients have other names");
    assert!(matches!(store.accumulate(&first).unwrap_err().cause(), Cause::CacheDropped { .. }));
    let commits = store.stats().commits;
    assert_eq!([(); 3].map(|()| store.accumulate(&id).unwrap()), [true, false, false]);
    assert_eq!(store.stats().commits, commits + 1);
    drop(claim);
    assert_eq!(
        store.claims().last().unwrap().progress,
        ClaimProgress::Accumulated,
        "its handle is not needed"
    );
    step.drop_cache("solver").unwrap();
    assert!(matches!(store.accumulate(&id).unwrap_err().cause(), Cause::CacheDropped { .. }));
    let again = take(&step).gradient_id().unwrap();
    assert_eq!((again.sequence, again.cache_epoch), (id.sequence + 1, id.cache_epoch + 1));
    assert!(
        matches!(store.accumulate(&again).unwrap_err().cause(), Cause::ClaimFenced { .. }),
        "it was released"
    );
    let last = take(&step);
    let name = last.gradient_id().unwrap();
    last.accumulated().unwrap();
    assert!(!store.accumulate(&name).unwrap());
    assert_eq!(step.commit([("solver", vec![])]).unwrap().rows, 3);
    assert!(!store.accumulate(&name).unwrap(), "also after the commit");
    let nobody = GradientId { sequence: 99, ..name };
    assert_eq!(store.accumulate(&nobody).unwrap_err().kind(), Kind::Input);
}

#[derive(Clone, Debug)]
enum Op {
    Insert { ahead: bool },
    Train { rows: u64 },
    Rewind { back: u64, exclude: bool },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<bool>().prop_map(|ahead| Op::Insert { ahead }),
        4 => (1..4_u64).prop_map(|rows| Op::Train { rows }),
        2 => (0..4_u64, any::<bool>()).prop_map(|(back, exclude)| Op::Rewind { back, exclude }),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Clone, Debug)]
struct ModelRow {
    version: u64,
    step: Option<u64>,
    excluded: Option<&'static str>,
}

/// Plain rows and lists; every answer is found by looking through all of them.
#[derive(Debug, Default)]
struct Model {
    version: u64,
    rows: Vec<ModelRow>,
    /// Ready rows of all versions in the order of the queue.
    queue: Vec<usize>,
    /// Steps that stand: number, and rows in the order in which they were taken.
    steps: Vec<(u64, Vec<usize>)>,
    last_step: u64,
}

impl Model {
    fn insert(&mut self, version: u64) -> String {
        self.queue.push(self.rows.len());
        self.rows.push(ModelRow { version, step: None, excluded: None });
        format!("q_0_{}", self.rows.len() - 1)
    }

    fn train(&mut self, rows: u64) -> Vec<usize> {
        let fresh = self.queue.iter().copied().filter(|&row| self.rows[row].version == self.version);
        let taken: Vec<usize> = fresh.take(rows as usize).collect();
        self.last_step += 1;
        self.steps.push((self.last_step, taken.clone()));
        taken.iter().for_each(|&row| self.rows[row].step = Some(self.last_step));
        self.queue.retain(|row| !taken.contains(row));
        if taken.is_empty() {
            return taken;
        }
        self.version += 1;
        for &row in &self.queue {
            if self.rows[row].version < self.version {
                self.rows[row].excluded = Some("stale");
            }
        }
        let Model { queue, rows, .. } = self;
        queue.retain(|&row| rows[row].excluded.is_none());
        taken
    }

    fn rewind(&mut self, step: u64, exclude: bool) {
        let undone: Vec<usize> = self
            .steps
            .iter()
            .filter(|(number, _)| *number > step)
            .flat_map(|(_, rows)| rows.clone())
            .collect();
        let moved = self.steps.iter().filter(|(number, rows)| *number > step && !rows.is_empty()).count();
        self.steps.retain(|(number, _)| *number <= step);
        self.version -= moved as u64;
        if moved == 0 {
            return;
        }
        for (index, row) in self.rows.iter_mut().enumerate() {
            if row.excluded == Some("stale") && row.version >= self.version {
                row.excluded = None;
            }
            if row.step.is_some_and(|number| number > step) {
                row.step = None;
            }
            let left = undone.contains(&index)
                || (row.version > self.version && row.step.is_none() && row.excluded.is_none());
            if exclude && left {
                row.excluded = Some("rewound");
            }
        }
        let all = 0..self.rows.len();
        let mut queue: Vec<usize> = Vec::new();
        for row in undone.into_iter().chain(self.queue.clone()).chain(all) {
            let open = self.rows[row].step.is_none() && self.rows[row].excluded.is_none();
            if open && !queue.contains(&row) {
                queue.push(row);
            }
        }
        self.queue = queue;
    }

    fn shown(&self) -> Vec<Vec<String>> {
        let text = |value: Option<String>| value.unwrap_or("null".to_owned());
        let mut rows: Vec<(u64, usize, Vec<String>)> = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let step = text(row.step.map(|step| step.to_string()));
            let shown = vec![
                format!("q_0_{index}"),
                row.version.to_string(),
                step,
                text(row.excluded.map(str::to_owned)),
            ];
            rows.push((row.version, index, shown));
        }
        rows.sort();
        rows.into_iter().map(|(.., shown)| shown).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_steps_and_rewinds_agree_with_a_model(ops in prop::collection::vec(op(), 1..60)) {
        let world = World::new();
        let (mut store, mut table, mut train) = trained(&world, None);
        let mut model = Model::default();
        let mut floor = 0;
        for op in ops {
            match op {
                Op::Insert { ahead } => {
                    let version = model.version + u64::from(ahead);
                    finished(&table, version, &model.insert(version));
                }
                Op::Train { rows } => {
                    let step = store.begin_step(StepPlan::new().rows(&train, rows)).unwrap();
                    let mut taken = Vec::new();
                    while let Some(claim) = step.next(&train, MicroBatch::up_to(1), Wait::No).unwrap() {
                        taken.extend(ids(&claim));
                        claim.accumulated().unwrap();
                    }
                    let expected = model.train(rows);
                    let names: Vec<String> = expected.iter().map(|row| format!("q_0_{row}")).collect();
                    prop_assert_eq!(&taken, &names);
                    let updates = if taken.is_empty() { vec![] } else { vec![("solver", vec![])] };
                    prop_assert_eq!(step.commit(updates).unwrap().step, model.last_step);
                    let moves = model.steps.iter().filter(|(_, rows)| !rows.is_empty());
                    let oldest = moves.map(|(number, _)| *number).rev().nth(7);
                    floor = floor.max(oldest.unwrap_or(0));
                }
                Op::Rewind { back, exclude } => {
                    let stands = model.steps.len() as u64;
                    let step = match stands.checked_sub(back + 1) {
                        Some(at) => model.steps[at as usize].0,
                        None => 0,
                    };
                    let moving = model.steps.iter().filter(|(number, rows)| *number > step && !rows.is_empty());
                    if moving.count() >= 8 {
                        continue; // further back than what is kept
                    }
                    if step < floor {
                        // What lies behind it was given away once, and a rewind does not bring that back.
                        let error = store.rewind(step, Rewind::TrainAgain).unwrap_err();
                        let too_far = matches!(error.cause(), Cause::RewindTooFar { .. });
                        prop_assert!(too_far, "{error}");
                        continue;
                    }
                    store.rewind(step, if exclude { Rewind::Exclude } else { Rewind::TrainAgain }).unwrap();
                    model.rewind(step, exclude);
                }
                Op::Reopen => {
                    drop((table, train));
                    store = reopen(&world, store);
                    table = store.table("solver").unwrap();
                    train = store.consumer("train").unwrap();
                }
            }
            prop_assert_eq!(
                pick(&store, "solver", &["sample_id", "policy_version", "step", "excluded_reason"]),
                model.shown()
            );
            prop_assert_eq!(store.policy("solver").unwrap().version, model.version);
            check_counts(&store);
            for (step, rows) in &model.steps {
                let replayed = store.replay(*step).unwrap();
                let samples: Vec<String> =
                    replayed.iter().flat_map(ReplayedBatch::sample_ids).map(ToString::to_string).collect();
                prop_assert_eq!(samples, rows.iter().map(|row| format!("q_0_{row}")).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_checkpoint_that_is_taken_after_a_rewind_opens() {
    let world = World::new();
    let (store, table, train) = trained(&world, None);
    for version in 0..2 {
        finished(&table, version, &format!("q{version}_0_0"));
        step(&store, &train, StepPlan::new().rows(&train, 1), 1);
    }
    store.rewind(1, Rewind::TrainAgain).unwrap();
    store.checkpoint().unwrap();
    let (before, claims) = (scan_content(&store), store.claims());
    assert!(claims.iter().any(|claim| claim.progress == ClaimProgress::Rewound));
    let store = reopen(&world, store);
    assert_eq!((scan_content(&store), store.claims()), (before, claims));
}

/// A power failure may undo the rewind: the step needs its object then.
#[test]
fn a_version_that_was_set_and_that_an_undone_step_named_stays_until_that_is_durable() {
    let world = World::new();
    let host = ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(1);
    let store = Store::open(ROOT, world.options().objects(host).object_versions_kept(8)).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let declared = Consumer::trainer(["solver"]).ready(["reward"]);
    let train = store.create_consumer("train", declared).unwrap();
    let objects = store.objects().unwrap();
    let bytes = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[1], bytes: &[7] };
    assert_eq!(objects.set("state", &[bytes]).unwrap(), 1);
    finished(&table, 0, "a_0_0");
    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    step.commit([("solver", vec![objects.reference("state", 1).unwrap()])]).unwrap();
    let file = std::path::Path::new("/store/objects/state/00000000000000000001.safetensors");
    store.rewind(0, Rewind::TrainAgain).unwrap();
    objects.set("state", &[bytes]).unwrap();
    assert!(objects.get("state", Which::Exact(1)).is_err() && world.disk.exists(file).unwrap());
    store.sync().unwrap();
    store.run_once().unwrap();
    assert!(!world.disk.exists(file).unwrap(), "and goes then");
}
