//! Rows that go for good: by a rule, and by retention.

use std::time::Duration;

use forebay_store::*;
use proptest::prelude::*;

use crate::support::*;

/// A store with a trainer that has taken a step at each of the versions 0 to `steps - 1`, over one of two rows.
fn stepped(world: &World, options: Options, steps: u64) -> (Store, Table, ConsumerHandle) {
    let store = Store::open(ROOT, options).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    for version in 0..steps {
        world.clock.advance(Duration::from_secs(10));
        finished(&table, version, &format!("q_{version}_0"));
        finished(&table, version, &format!("q_{version}_1"));
        train_once(&store, &train, StepPlan::new().rows(&train, 1), "solver");
    }
    (store, table, train)
}

fn left(store: &Store) -> Vec<String> {
    pick(store, "solver", &["sample_id"]).concat()
}

// FX-B07
#[test]
fn a_rule_that_names_nothing_is_refused() {
    let (store, table) = solver(&World::new());
    finished(&table, 0, "q_0_0");
    for rule in [Delete::default(), Delete::default().force()] {
        assert_eq!(table.delete(&rule).unwrap_err().kind(), Kind::Input);
    }
    assert_eq!(table.delete(&Delete::rows([])).unwrap(), Deleted::default());
    assert_eq!(left(&store), ["q_0_0"]);
    assert_eq!(table.delete(&Delete::all_confirmed()).unwrap(), Deleted { rows: 1, open: 1 });
    assert_eq!((left(&store).len(), table.counts().excluded["deleted"]), (0, 1));
}

// FX-95, FX-14
#[test]
fn an_old_version_goes_with_all_that_it_holds_and_never_comes_again() {
    let world = World::new();
    let (store, table, _) = stepped(&world, world.options(), 4);
    assert_eq!(table.delete(&Delete::versions_up_to(1)).unwrap(), Deleted { rows: 4, open: 0 });
    assert_eq!(table.delete(&Delete::versions_up_to(1)).unwrap(), Deleted::default());
    for store in [store.clone(), world.reopen(store)] {
        let table = store.table("solver").unwrap();
        assert_eq!(left(&store), ["q_2_0", "q_2_1", "q_3_0", "q_3_1"]);
        assert_eq!(
            (table.counts().consumed, table.counts().excluded["stale"], table.counts().open()),
            (4, 4, 0)
        );
        assert!(table.get(0, &"q_0_0".parse().unwrap()).is_none());
        for version in [0, 1] {
            let late = NewRow::new(version, "new_0_0").unwrap().late();
            let error = table.insert_row(late, []).unwrap_err();
            assert!(matches!(error.cause(), Cause::Retired { .. }), "{error}");
        }
        assert!(matches!(
            store.replay(1).unwrap_err().cause(),
            Cause::StepIncomplete { expected: 1, found: 0, .. }
        ));
    }
}

/// Values that live in extents.
fn live_values(store: &Store) -> u64 {
    store.extents().iter().map(|extent| extent.live_values).sum()
}

// FX-95: what an old version referred to goes with it: values too large for a row, and the objects of its policy.
#[test]
fn with_an_old_version_all_that_it_referred_to_is_gone() {
    let world = World::new();
    let objects = || ObjectOptions::default().host_folder(HostFolder::Anonymous).versions_kept(9);
    let store = Store::open(ROOT, world.options().objects(objects())).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    let long = "a prompt that lies in an extent ".repeat(100);
    for trajectory in 0..20 {
        let cells = [("prompt", (&*long).into()), ("response", vec![trajectory; 500].into())];
        table.insert(0, &format!("q_0_{trajectory}"), cells).unwrap();
    }
    assert_eq!(live_values(&store), 40);
    let set = store.objects().unwrap();
    let tensor = TensorBytes { class: "weights", name: "w", dtype: Dtype::U8, shape: &[5], bytes: &[7; 5] };
    for version in 1..=2 {
        assert_eq!(set.set("solver", &[tensor]).unwrap(), version);
        set.spill("solver", Which::Exact(version)).unwrap();
    }
    let kept = table.insert(1, "kept_0_0", [("prompt", (&*long).into())]).unwrap();
    assert_eq!(table.delete(&Delete::version(0).force()).unwrap().rows, 20);
    (1..=2).for_each(|version| assert!(set.delete("solver", version).unwrap()));
    assert_eq!(live_values(&store), 1, "that of the version that is kept");
    assert!(set.list().is_empty());
    assert!(
        files_with(&image_of(&world.disk), "safetensors").is_empty(),
        "and nothing of them is on the disk"
    );
    table.delete(&Delete::rows([kept])).unwrap();
    assert_eq!(live_values(&store), 0);
    drop((set, table));
    std::mem::forget(store);
    world.disk.restart();
    let store = Store::open(ROOT, world.options().objects(objects())).unwrap();
    assert_eq!(
        (live_values(&store), store.objects().unwrap().list().len()),
        (0, 0),
        "nor for the next process"
    );
}

// FX-B10
#[test]
fn an_identity_that_was_deleted_is_never_free_again() {
    let world = World::new();
    let (store, table) = solver(&world);
    let row = table.insert_row(NewRow::next_trajectory(3, "q", 0).unwrap().token(5), []).unwrap();
    table.delete(&Delete::rows([row])).unwrap();
    for store in [store.clone(), world.reopen(store)] {
        let table = store.table("solver").unwrap();
        for new in [NewRow::new(3, "q_0_0").unwrap(), NewRow::new(3, "q_0_0").unwrap().next_attempt()] {
            let error = table.insert_row(new, []).unwrap_err();
            assert!(matches!(error.cause(), Cause::RowDeleted { .. }), "{error}");
        }
        for refused in
            [table.write(row, [("reward", 1.0.into())]), table.exclude(row, "lost"), table.span(row, 1, 9)]
        {
            assert!(matches!(refused.unwrap_err().cause(), Cause::Unknown { what: "row", .. }));
        }
        let again = table.insert_row(NewRow::next_trajectory(3, "q", 0).unwrap().token(5), []);
        if let Ok(again) = again {
            assert_ne!(again, row, "its token is forgotten with it, its number is not");
        }
        assert!(!left(&store).contains(&"q_0_0".to_owned()));
    }
}

#[test]
fn what_is_held_or_may_be_needed_goes_by_force_only() {
    let world = World::new();
    let (store, table, train) = stepped(&world, world.options(), 3);
    let refused = |rule: Delete| table.delete(&rule).unwrap_err();
    assert!(matches!(refused(Delete::version(3)).cause(), Cause::VersionCurrent { current: 3, .. }));
    let error = refused(Delete::versions_up_to(2));
    assert!(matches!(error.cause(), Cause::RowNeeded { step: 2, .. }), "{error}");
    finished(&table, 3, "held_0_0");
    finished(&table, 3, "held_0_1");
    let step = store.begin_step(StepPlan::new().rows(&train, 2)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    let held = claim.rows()[0];
    let error = refused(Delete::rows([held]));
    assert!(matches!(error.cause(), Cause::RowHeld { .. }), "{error}");
    assert_eq!(table.delete(&Delete::rows([held]).force()).unwrap(), Deleted { rows: 1, open: 1 });
    claim.accumulated().unwrap();
    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
    assert_eq!(step.commit([("solver", vec![])]).unwrap().step, 4);
    table.delete(&Delete::versions_up_to(3).force()).unwrap();
    assert_eq!(left(&store).len(), 0);
    let store = world.reopen(store);
    assert_eq!(store.rewind(3, Rewind::TrainAgain).unwrap().step, 3, "there is nothing to train on again");
    assert_eq!(store.consumers()[0].ready_rows, 0);
}

#[test]
fn a_group_is_complete_without_its_deleted_members() {
    let world = World::new();
    let (store, table, train) = trained(&world, Some(3));
    let lost = table.insert(0, "q_0_0", []).unwrap();
    finished(&table, 0, "q_0_1");
    finished(&table, 0, "q_0_2");
    assert_eq!(store.consumers()[0].ready_rows, 0);
    table.delete(&Delete::rows([lost])).unwrap();
    let store = world.reopen(store);
    let train = store.consumer(train.name()).unwrap();
    assert_eq!(train_once(&store, &train, StepPlan::new().groups(&train, ["q"]), "solver"), 2);
}

#[test]
fn retention_keeps_the_newest_versions_and_what_a_rewind_needs() {
    let cases: [(u64, usize, &[&str]); 3] = [
        (2, 2, &["q_4_0", "q_4_1", "now_0_0"]),
        (1, 4, &["q_2_0", "q_2_1", "q_3_0", "q_3_1", "q_4_0", "q_4_1", "now_0_0"]),
        (
            9,
            1,
            &[
                "q_0_0", "q_0_1", "q_1_0", "q_1_1", "q_2_0", "q_2_1", "q_3_0", "q_3_1", "q_4_0", "q_4_1",
                "now_0_0",
            ],
        ),
    ];
    for (versions, states, expected) in cases {
        let world = World::new();
        let retention = Retention::default().versions(versions);
        let options = world.options().object_versions_kept(states).retention(retention);
        let (store, table, _) = stepped(&world, options, 5);
        finished(&table, 5, "now_0_0");
        store.run_once().unwrap();
        assert_eq!(left(&store), expected, "{versions} versions, {states} states");
        let commits = store.stats().commits;
        store.run_once().unwrap();
        assert_eq!(store.stats().commits, commits, "nothing more to do");
        let store = world.reopen(store);
        assert_eq!(left(&store), expected);
        let oldest = 6_u64.saturating_sub(states as u64);
        assert_eq!(store.table("solver").unwrap().counts().consumed, 5);
        drop(store);
        world.disk.restart();
        let store = Store::open(ROOT, world.options().object_versions_kept(states)).unwrap();
        let rewound = store.rewind(oldest, Rewind::TrainAgain).unwrap();
        assert_eq!(rewound.rows, 5 - oldest, "all of what a rewind needs is there");
    }
}

// What it was made of is forgotten, and so are the names of its gradients.
#[test]
fn a_step_whose_rows_are_gone_is_a_line_of_history() {
    let world = World::new();
    let options = world.options().object_versions_kept(1).retention(Retention::default().versions(1));
    let (store, table, train) = stepped(&world, options, 0);
    finished(&table, 0, "q_0_0");
    let taken = |step: &Step| step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    let plan = || StepPlan::new().rows(&train, 1);
    let given_up = store.begin_step(plan()).unwrap();
    let given_up_gradient = taken(&given_up).gradient_id().unwrap();
    drop(given_up);
    let step = store.begin_step(plan()).unwrap();
    let claim = taken(&step);
    let gradient = claim.gradient_id().unwrap();
    claim.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    for version in 1..4 {
        finished(&table, version, &format!("q_{version}_0"));
        train_once(&store, &train, plan(), "solver");
    }
    store.run_once().unwrap();
    let check = |store: &Store| {
        let line = &store.steps()[0];
        assert_eq!(
            (line.step, line.progress, line.rows, line.planned_rows),
            (1, StepProgress::Committed, 1, 0)
        );
        assert_eq!(line.updates, [("solver".to_owned(), 1)]);
        for gradient in [&given_up_gradient, &gradient] {
            let error = store.accumulate(gradient).unwrap_err();
            assert!(matches!(error.cause(), Cause::Unknown { what: "gradient", .. }), "{error}");
        }
    };
    check(&store);
    store.checkpoint().unwrap();
    check(&world.reopen(store));
}

#[test]
fn retention_keeps_what_was_trained_on_for_a_time() {
    let world = World::new();
    let retention = Retention::default().consumed_for(Duration::from_secs(25));
    let (store, _, _) = stepped(&world, world.options().object_versions_kept(1).retention(retention), 5);
    store.run_once().unwrap();
    assert_eq!(left(&store), ["q_0_1", "q_1_1", "q_2_0", "q_2_1", "q_3_0", "q_3_1", "q_4_0", "q_4_1"]);
    world.clock.advance(Duration::from_secs(10));
    store.run_once().unwrap();
    let expected = ["q_0_1", "q_1_1", "q_2_1", "q_3_0", "q_3_1", "q_4_0", "q_4_1"];
    assert_eq!(left(&store), expected);
    let store = world.reopen(store);
    assert_eq!(left(&store), expected);
}

#[derive(Clone, Debug)]
enum Op {
    Insert,
    Train,
    Rewind { back: u64 },
    Delete { from: usize, rows: usize, force: bool },
    Retain,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => Just(Op::Insert),
        4 => Just(Op::Train),
        1 => (0..3_u64).prop_map(|back| Op::Rewind { back }),
        2 => (0..40_usize, 1..6_usize, any::<bool>()).prop_map(|(from, rows, force)| Op::Delete { from, rows, force }),
        2 => Just(Op::Retain),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Clone, Debug)]
struct ModelRow {
    row: Row,
    id: String,
    version: u64,
    step: Option<u64>,
    stale: bool,
    deleted: bool,
}

const KEPT: usize = 3;
const VERSIONS: u64 = 2;

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_deletions_and_retention_agree_with_a_model(ops in prop::collection::vec(op(), 1..60)) {
        let world = World::new();
        let options =
            || world.options().object_versions_kept(KEPT).retention(Retention::default().versions(VERSIONS));
        let (mut store, mut table, mut train) = stepped(&world, options(), 0);
        let mut rows: Vec<ModelRow> = Vec::new();
        // Steps that stand, with the version that each led to.
        let mut steps: Vec<(u64, u64)> = vec![(0, 0)];
        // The oldest of them that a rewind goes back to: it never goes back itself.
        let mut oldest = (0, 0);
        for op in ops {
            let version = steps.last().map_or(0, |step| step.1);
            let needed = |row: &ModelRow| {
                row.step.is_some_and(|step| step > oldest.0) || (row.stale && row.version >= oldest.1)
            };
            match op {
                Op::Insert => {
                    let id = format!("q_0_{}", rows.len());
                    let row = finished(&table, version, &id);
                    rows.push(ModelRow { row, id, version, step: None, stale: false, deleted: false });
                }
                Op::Train => {
                    let fresh =
                        rows.iter().position(|r| !r.deleted && r.step.is_none() && !r.stale && r.version == version);
                    if fresh.is_none() {
                        continue;
                    }
                    let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
                    step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
                    let number = step.commit([("solver", vec![])]).unwrap().step;
                    steps.push((number, version + 1));
                    oldest = oldest.max(steps[steps.len().saturating_sub(KEPT)]);
                    for row in &mut rows {
                        let info = table.get(row.version, &row.id.parse().unwrap());
                        if info.is_some_and(|info| info.step == Some(number)) {
                            row.step = Some(number);
                        } else if row.step.is_none() && !row.deleted && row.version <= version {
                            row.stale = true;
                        }
                    }
                }
                Op::Rewind { back } => {
                    let last = steps.len() - 1;
                    let at = last.saturating_sub(back as usize);
                    let at = (at..last).find(|&at| steps[at] >= oldest).unwrap_or(last);
                    store.rewind(steps[at].0, Rewind::TrainAgain).unwrap();
                    steps.truncate(at + 1);
                    let (step, version) = steps[at];
                    for row in rows.iter_mut().filter(|row| !row.deleted) {
                        row.step = row.step.filter(|of| *of <= step);
                        row.stale &= row.version < version;
                    }
                }
                Op::Delete { from, rows: count, force } => {
                    let named: Vec<usize> = (from..from + count).filter(|at| *at < rows.len()).collect();
                    let rule = Delete::rows(named.iter().map(|&at| rows[at].row));
                    let refused = named.iter().any(|&at| !rows[at].deleted && needed(&rows[at]));
                    let result = table.delete(&if force { rule.force() } else { rule });
                    prop_assert_eq!(result.is_err(), refused && !force, "{:?}", result);
                    if result.is_ok() {
                        named.iter().for_each(|&at| rows[at].deleted = true);
                    }
                }
                Op::Retain => {
                    store.run_once().unwrap();
                    let beyond = version.checked_sub(VERSIONS).zip(oldest.1.checked_sub(1)).map(|(a, b)| a.min(b));
                    for row in rows.iter_mut().filter(|row| beyond.is_some_and(|beyond| row.version <= beyond)) {
                        row.deleted = true;
                    }
                }
                Op::Reopen => {
                    drop((table, train));
                    std::mem::forget(store);
                    world.disk.restart();
                    store = Store::open(ROOT, options()).unwrap();
                    table = store.table("solver").unwrap();
                    train = store.consumer("train").unwrap();
                }
            }
            let shown = pick(&store, "solver", &["sample_id", "step"]);
            let mut expected: Vec<(u64, usize, Vec<String>)> = Vec::new();
            for (at, row) in rows.iter().enumerate().filter(|(_, row)| !row.deleted) {
                let step = row.step.map_or("null".to_owned(), |step| step.to_string());
                expected.push((row.version, at, vec![row.id.clone(), step]));
            }
            expected.sort();
            prop_assert_eq!(shown, expected.into_iter().map(|(.., row)| row).collect::<Vec<_>>());
            let version = steps.last().map_or(0, |step| step.1);
            let ready = rows.iter().filter(|r| !r.deleted && r.step.is_none() && !r.stale && r.version == version);
            prop_assert_eq!(store.consumers()[0].ready_rows, ready.count() as u64);
        }
    }
}

#[test]
fn a_row_whose_old_attempt_was_deleted_starts_over_as_any_other() {
    let world = World::new();
    let (store, table) = solver(&world);
    let first = table.insert(0, "q_0_0", []).unwrap();
    let again = || NewRow::new(0, "q_0_0").unwrap().next_attempt();
    let second = table.insert_row(again(), []).unwrap();
    table.delete(&Delete::rows([first])).unwrap();
    let store = world.reopen(store);
    let table = store.table("solver").unwrap();
    let third = table.insert_row(again(), []).unwrap();
    table.delete(&Delete::rows([third])).unwrap();
    let refused = table.insert_row(again(), []).unwrap_err();
    assert!(matches!(refused.cause(), Cause::RowDeleted { .. }), "the sample itself is gone: {refused}");
    table.delete(&Delete::rows([second])).unwrap();
    assert!(matches!(table.insert(0, "q_0_0", []).unwrap_err().cause(), Cause::RowDeleted { .. }));
}
