//! Many rows that a rule deletes: once nobody holds any, over all tables at once, and over checkpoints.

use std::ops::ControlFlow;
use std::time::Duration;

use arrow_array::Array;
use forebay_store::*;

use crate::support::*;

/// Rows of a version: more than two full chunks.
const ROWS: usize = 2 * CHUNK_ROWS + 808;

const HOUR: Duration = Duration::from_secs(3600);

/// A version with many rows, of which the trainer trains on the first and a task holds that and two more.
struct Run {
    store: Store,
    table: Table,
    train: ConsumerHandle,
    score: ConsumerHandle,
}

impl Run {
    fn open(options: Options) -> Self {
        Run::keeping(1, options)
    }

    /// With so many states that a rewind can go back to.
    fn keeping(states: usize, options: Options) -> Self {
        let retention = Retention::default().versions(1);
        let options = options.object_versions_kept(states).retention(retention);
        let store = Store::open(ROOT, options).unwrap();
        let schema = solver_schema().data_shared("question", DataType::Utf8);
        let table = store.create_table("solver", schema).unwrap();
        let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
        let score = store.create_consumer("score", Consumer::task(["solver"]).ready(["reward"])).unwrap();
        Run { store, table, train, score }
    }

    /// Rows with cells of every form: in a view, in an extent, in one place with others, null, growing, and none.
    fn write(&self, version: u64) -> Vec<Row> {
        let mut batch = self.store.batch();
        for number in 0..ROWS {
            let id = format!("q{number}_{version}_0").parse().unwrap();
            let question = format!("a question of eight rows: {version} {}", number / 8);
            let prompt = match number % 5 {
                0 => "a prompt".into(),
                1 => Value::Null,
                _ => "a prompt that does not fit a view".into(),
            };
            let mut cells = vec![("reward", 1.0.into()), ("question", question.as_str().into())];
            cells.extend((number % 3 > 0).then_some(("prompt", prompt)));
            let purpose = if number % 11 == 10 { Purpose::Eval } else { Purpose::Train };
            batch.insert(&self.table, NewRow::of(version, id).purpose(purpose), cells).unwrap();
        }
        let rows = batch.commit().unwrap();
        for row in rows.iter().step_by(CHUNK_ROWS / 4) {
            (0..2).for_each(|_| self.table.append(*row, "response", (&[1_i32, 2, 3][..]).into()).unwrap());
        }
        rows
    }

    fn train(&self) {
        train_once(&self.store, &self.train, StepPlan::new().rows(&self.train, 1), "solver");
    }
}

// FX-95
#[test]
fn many_old_rows_go_at_once_when_nobody_holds_one() {
    let world = World::new();
    let run = Run::open(world.options());
    run.write(0);
    let held = run.score.claim(MicroBatch::of(3), "scorer", Wait::No).unwrap().unwrap();
    run.train();
    run.write(1);
    let commits = run.store.stats().commits;
    run.store.run_once().unwrap();
    assert_eq!(run.store.stats().commits, commits, "a row that was trained on is still held by a task");
    let rows = |store: &Store| pick(store, "solver", &["sample_id"]).concat().len();
    assert_eq!(rows(&run.store), 2 * ROWS);
    held.finish(|_| Ok(())).unwrap();
    run.store.run_once().unwrap();
    assert_eq!(rows(&run.store), ROWS);
    let error = run.table.insert(0, "late_0_0", [("reward", 1.0.into())]).unwrap_err();
    assert!(matches!(error.cause(), Cause::Retired { version: 0, .. }), "{error}");
    let commits = run.store.stats().commits;
    run.store.run_once().unwrap();
    assert_eq!(run.store.stats().commits, commits, "nothing more to do");
}

// FX-95, FX-B10
#[test]
fn rows_that_go_a_chunk_at_a_time_leave_what_rows_that_go_alone_leave() {
    let left_by = |states: usize, steps: u64, rule: &dyn Fn(Vec<Row>) -> Delete| {
        let world = World::new();
        let run = Run::keeping(states, world.options());
        let rows = run.write(0);
        for version in 1..=steps {
            run.train();
            run.write(version);
        }
        let deleted = run.table.delete(&rule(rows)).unwrap();
        let live = run
            .store
            .extents()
            .iter()
            .map(|extent| (extent.live_bytes, extent.live_values))
            .fold((0, 0), |(bytes, values), (more_bytes, more_values)| {
                (bytes + more_bytes, values + more_values)
            });
        let (counts, seen) = (run.table.counts(), scan_content(&run.store));
        let ready = run.score.claim(MicroBatch::of(ROWS), "scorer", Wait::No).unwrap().unwrap();
        assert_eq!(ready.rows().len(), ROWS, "of the newest version alone");
        drop(ready);
        let again = world.reopen(run.store);
        assert_eq!(
            (scan_content(&again), again.table("solver").unwrap().counts()),
            (seen.clone(), counts.clone())
        );
        (deleted, live, counts, seen)
    };
    // Those of a version that is over go together, those that are named one after the other while a rewind may bring them back.
    for (states, steps) in [(2, 1), (1, 3)] {
        let together = left_by(states, steps, &|_| Delete::version(0).force());
        let named = left_by(states, steps, &|rows| Delete::rows(rows).force());
        assert_eq!(together, named, "{states} states are kept, after {steps} steps");
        assert_eq!(together.0, Deleted { rows: ROWS as u64, open: 0 });
    }
}

// FX-95
#[test]
fn versions_between_some_that_went_before_are_gone_for_good_too() {
    let world = World::new();
    let store = Store::open(ROOT, world.options()).unwrap();
    let table = store.create_table("solver", solver_schema()).unwrap();
    for version in [0, 5] {
        table.delete(&Delete::version(version).force()).unwrap();
    }
    table.delete(&Delete::versions_up_to(5).force()).unwrap();
    for version in 0..=5 {
        let error = table.insert(version, "late_0_0", [("reward", 1.0.into())]).unwrap_err();
        assert!(matches!(error.cause(), Cause::Retired { .. }), "{version}: {error}");
    }
}

/// What `verify` finds wrong with a store that has been closed.
fn faults(world: &World) -> Vec<VerifyFault> {
    verify(ROOT, &world.options(), &mut |_| ControlFlow::Continue(())).unwrap().faults
}

// FX-95: with the whole chunks that they lie in, and alone.
#[test]
fn rows_that_are_deleted_between_accumulated_and_commit_are_counted_once() {
    type Rule = fn(&[Row]) -> Delete;
    let cases: [(&str, Rule); 3] = [
        ("their version", |_| Delete::version(0)),
        ("all by name", |rows| Delete::rows(rows.iter().copied())),
        ("a few by name", |rows| Delete::rows(rows.iter().copied().step_by(100))),
    ];
    for (which, rule) in cases {
        let world = World::new();
        let run = Run::keeping(2, world.options());
        let rows = run.write(0);
        let trainable = run.table.counts().open() as usize;
        let step = run.store.begin_step(StepPlan::new().rows(&run.train, trainable as u64)).unwrap();
        let claim = step.next(&run.train, MicroBatch::of(trainable), Wait::No).unwrap().unwrap();
        claim.accumulated().unwrap();
        let deleted = run.table.delete(&rule(&rows).force()).unwrap();
        step.commit([("solver", vec![])]).unwrap();
        let trained_on = trainable as u64 - deleted.open;
        let check = |store: &Store| {
            let counts = store.table("solver").unwrap().counts();
            assert_eq!(
                (counts.written, counts.consumed, counts.excluded.get("deleted"), counts.open()),
                (trainable as u64, trained_on, Some(&deleted.open), 0),
                "{which}"
            );
            assert_eq!(store.steps()[0].rows, trainable as u64);
            let error = store.replay(1).unwrap_err();
            let Cause::StepIncomplete { expected, found, .. } = error.cause() else { panic!("{error}") };
            assert_eq!((*expected, *found), (trainable as u64, trained_on));
        };
        check(&run.store);
        run.store.checkpoint().unwrap();
        let store = world.reopen(run.store);
        check(&store);
        store.rewind(0, Rewind::TrainAgain).unwrap();
        let ready = store.consumers().iter().find(|consumer| consumer.name == "train").unwrap().ready_rows;
        assert_eq!(ready, trained_on, "{which}");
        drop(store);
        assert_eq!(faults(&world), [], "{which}");
    }
}

// FX-95
#[test]
fn a_claim_whose_rows_were_deleted_is_no_fault_of_the_store() {
    for accumulated in [false, true] {
        let world = World::new();
        let run = Run::open(world.options());
        run.write(0);
        let step = run.store.begin_step(StepPlan::new().rows(&run.train, 5000)).unwrap();
        let claim = step.next(&run.train, MicroBatch::of(5000), Wait::No).unwrap().unwrap();
        if accumulated {
            claim.accumulated().unwrap();
        } else {
            std::mem::forget(claim);
        }
        run.table.delete(&Delete::version(0).force()).unwrap();
        run.store.checkpoint().unwrap();
        std::mem::forget((run, step));
        world.disk.restart();
        assert_eq!(faults(&world), [], "accumulated: {accumulated}");
    }
}

// FX-95
#[test]
fn versions_before_one_that_was_deleted_alone_go_when_their_time_comes() {
    let world = World::new();
    let run = Run::open(world.options());
    for version in 0..3 {
        finished(&run.table, version, &format!("q_{version}_0"));
        run.train();
    }
    finished(&run.table, 3, "q_3_0");
    run.table.delete(&Delete::version(2).force()).unwrap();
    run.store.run_once().unwrap();
    assert_eq!(pick(&run.store, "solver", &["sample_id"]).concat(), ["q_3_0"]);
}

// FX-95, FX-B10
#[test]
fn rows_that_stay_are_found_and_those_that_went_are_not_however_they_lie() {
    let lie: [(&str, &dyn Fn(usize) -> bool); 4] = [
        ("one", &|at| at == 700),
        ("a few", &|at| [0, 1, CHUNK_ROWS, ROWS - 1].contains(&at)),
        ("every second", &|at| at % 2 == 0),
        ("a chunk, and more here and there", &|at| at < CHUNK_ROWS || at % 37 == 0),
    ];
    for (how, goes) in lie {
        for (states, steps) in [(2, 1), (1, 3)] {
            let world = World::new();
            let mut run = Run::keeping(states, world.options());
            let rows = run.write(0);
            for version in 1..=steps {
                run.train();
                run.write(version);
            }
            let gone: Vec<Row> = (0..ROWS).filter(|&at| goes(at)).map(|at| rows[at]).collect();
            let count = gone.len() as u64;
            assert_eq!(run.table.delete(&Delete::rows(gone).force()).unwrap().rows, count);
            let check = |table: &Table| {
                for (at, row) in rows.iter().enumerate() {
                    let id = format!("q{at}_0_0").parse().unwrap();
                    let found = table.get(0, &id).map(|info| info.row);
                    assert_eq!(found, (!goes(at)).then_some(*row), "{at} of {how}, {steps} steps");
                }
            };
            check(&run.table);
            run.store.checkpoint().unwrap();
            run.store = world.reopen(run.store);
            check(&run.store.table("solver").unwrap());
        }
    }
}

// FX-95, FX-14
#[test]
fn chunks_that_are_gone_stay_gone_over_checkpoints() {
    let world = World::new();
    let mut run = Run::open(world.options());
    for version in 0..3 {
        run.write(version);
        run.train();
        if version != 1 {
            run.store.run_once().unwrap();
        }
        run.store.checkpoint().unwrap();
    }
    // Chunks in the middle go, and those around them stay.
    let rows = run.write(3);
    run.table.delete(&Delete::rows(rows[..2 * CHUNK_ROWS].to_vec()).force()).unwrap();
    run.store.checkpoint().unwrap();
    run.write(4);
    let seen = scan_content(&run.store);
    let heap = run.store.stats().memory_bytes;
    run.store = world.reopen(run.store);
    assert_eq!(scan_content(&run.store), seen);
    assert!(run.store.stats().memory_bytes <= heap);
}

/// When the space of what is over is free.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Free {
    /// No sync has come to it.
    AtOnce,
    /// With the sync that makes stable that it is over.
    AfterTheSync,
    /// With the one after that, which brings the proof.
    AfterTheNext,
}

// FX-95, FX-B10, FX-B18
#[test]
fn space_that_no_sync_has_come_to_is_free_at_once_and_other_space_after_the_next() {
    let (little, much) = (1 << 20, 65 << 20);
    for (bytes, lived_through_a_sync, is_written_to, is_segment_long, free) in [
        (little, false, true, false, Free::AtOnce),
        (much, false, true, false, Free::AtOnce),
        (little, true, false, false, Free::AfterTheNext), // not worth a segment
        (little, true, true, true, Free::AfterTheNext),
        (much, true, true, false, Free::AfterTheNext), // the next comes soon
        (much, true, true, true, Free::AfterTheSync),
        (much, true, false, false, Free::AfterTheSync), // no other may come
    ] {
        let world = World::new();
        let options = world.options().extent_bytes(1 << 20, 1 << 30).segment_bytes_max(1 << 30);
        let run = Run::open(options.sync_interval(HOUR));
        let prompt = "x".repeat(bytes);
        run.table.insert(0, "q_0_0", [("prompt", prompt.as_str().into()), ("reward", 1.0.into())]).unwrap();
        if is_segment_long {
            let mut batch = run.store.batch();
            for row in 0..20_000 {
                let row = NewRow::new(1, &format!("long{row}_0_0")).unwrap();
                batch.insert(&run.table, row, [("reward", 1.0.into())]).unwrap();
            }
            batch.commit().unwrap();
        }
        if lived_through_a_sync {
            run.store.sync().unwrap();
        }
        run.train();
        let syncs = run.store.stats().syncs;
        let is_free = || (run.store.tend().unwrap(), run.store.stats().free_extent_bytes >= bytes as u64).1;
        let write = |id: &str| _ = run.table.insert(1, id, []).unwrap();
        let mut found = vec![is_free()];
        assert_eq!(run.store.stats().syncs, syncs, "none before its time");
        run.store.sync().unwrap();
        if is_written_to {
            write("written_0_0");
        }
        found.push(is_free());
        write("next_0_0");
        run.store.sync().unwrap();
        found.push(is_free());
        let expected = match free {
            Free::AtOnce => [true, true, true],
            Free::AfterTheSync => [false, true, true],
            Free::AfterTheNext => [false, false, true],
        };
        assert_eq!(
            found, expected,
            "{bytes} bytes, {lived_through_a_sync}, {is_written_to}, {is_segment_long}"
        );
    }
}

/// Who holds rows in a claim while they are deleted sees that they have nothing, and is not told of damage.
// FX-95
#[test]
fn rows_that_went_while_they_were_held_are_empty_when_their_values_are_gone() {
    let world = World::new();
    let run = Run::open(world.options());
    for row in 0..4 {
        let cells = [("prompt", "a prompt that does not fit a view".into()), ("reward", 1.0.into())];
        run.table.insert(0, &format!("q{row}_0_0"), cells).unwrap();
    }
    let claim = |rows| run.score.claim(MicroBatch::of(rows), "scorer", Wait::No).unwrap().unwrap();
    claim(1).finish(|_| Ok(())).unwrap(); // what is trained on is not taken from who holds it
    let held = claim(3);
    let columns = ["prompt", "reward"];
    let are_empty = || held.cells("prompt").unwrap().iter().all(|cell| matches!(cell, Cell::Empty));
    assert!(!are_empty());
    run.train();
    let (mut rounds, old) = (0, run.store.extents());
    let is_there =
        |extent: &ExtentInfo| run.store.extents().iter().any(|other| other.number == extent.number);
    while old.iter().any(is_there) {
        rounds += 1;
        assert!(rounds < 10, "the extents of what was deleted stay: {:?}", run.store.extents());
        run.store.checkpoint().unwrap();
        run.store.sync().unwrap();
        run.store.run_once().unwrap();
    }
    assert!(are_empty());
    for batch in [held.columns(columns), held.columns_in_place(columns)] {
        let batch = batch.unwrap();
        assert_eq!((batch.num_rows(), batch.column(0).null_count(), batch.column(1).null_count()), (3, 3, 3));
    }
    held.places(["prompt"]).unwrap();
}

/// Between two looks at everything what versions leave behind goes each time.
// FX-95, FX-B10
#[test]
fn whoever_tends_is_asked_again_soon_while_extents_come_and_go() {
    let world = World::new();
    let run = Run::open(world.options().sync_interval(HOUR));
    let soon = Duration::from_millis(20);
    for version in 0..3 {
        run.write(version);
        run.train();
        let again = world.clock.now().after(soon);
        assert_eq!(run.store.tend().unwrap(), Some(again), "version {version}");
        assert_eq!(pick(&run.store, "solver", &["sample_id"]).concat().len(), 0, "version {version}");
        world.clock.advance(soon);
    }
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(run.store.tend().unwrap(), None);
}

#[test]
fn a_rule_that_finds_nothing_syncs_nothing() {
    let world = World::new();
    let run = Run::open(world.options().durability(Durability::Synced));
    run.write(0);
    run.train();
    let syncs = || run.store.stats().syncs;
    let before = syncs();
    run.store.run_once().unwrap();
    assert_eq!(syncs() - before, 1);
    let mut batch = run.store.batch();
    let id = "unsynced_0_0".parse().unwrap();
    batch.insert(&run.table, NewRow::of(1, id), [("reward", 1.0.into())]).unwrap();
    batch.durability(Durability::Memory);
    batch.commit().unwrap();
    let before = syncs();
    run.store.run_once().unwrap();
    assert_eq!(syncs(), before);
}
