//! A query sees one instant, whatever others write meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_store::{Kind as StoreKind, MicroBatch, NewRow, StepPlan, Store, Value, Wait};

use crate::fixture::{PROMPT, Run};

/// Tells the other thread at its end, also when that is a failed assertion.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Rows are written to both tables in one batch, so at no instant do they differ.
#[test]
fn tables_that_are_joined_show_the_same_instant() {
    const QUERIES: usize = 12;
    const PAIRS_A_QUERY: usize = 100; // the writer runs ahead of the queries, but not out of sight
    let run = Run::with_tables();
    let [solver, checker] = ["solver", "checker"].map(|name| run.store.table(name).unwrap());
    let (asked, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for pair in 0..QUERIES * PAIRS_A_QUERY {
                while pair >= (asked.load(Ordering::Acquire) + 1) * PAIRS_A_QUERY {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    std::thread::yield_now();
                }
                let mut batch = run.store.batch();
                for table in [&solver, &checker] {
                    batch.insert(table, NewRow::new(0, &format!("q{pair}_0_0")).unwrap(), []).unwrap();
                }
                batch.commit().unwrap();
            }
        });
        let sql = "SELECT (SELECT count(sample_id) FROM solver) AS a, (SELECT count(sample_id) FROM checker) AS b, \
                   (SELECT count(*) FROM solver s FULL JOIN checker c USING (sample_id) \
                    WHERE s.sample_id IS NULL OR c.sample_id IS NULL) AS alone, \
                   (SELECT min(written) FROM system.tables) AS least, (SELECT max(written) FROM system.tables) AS most";
        let _over = Raise(&over);
        for _ in 0..QUERIES {
            let rows = run.rows(sql);
            let count = |column: &str| rows[0][column].as_u64().unwrap();
            assert_eq!(count("alone"), 0);
            assert_eq!([count("b"), count("least"), count("most")], [count("a"); 3]);
            asked.fetch_add(1, Ordering::Release);
        }
    });
    assert!(run.store.table("solver").unwrap().counts().written as usize >= (QUERIES - 1) * PAIRS_A_QUERY);
}

/// Steps move rows, versions and counts together; no query sees one without the other.
#[test]
fn a_step_is_seen_whole_or_not_at_all() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Raise(&done);
            for version in 0..40 {
                let input = format!("q{version}");
                crate::fixture::finished_group(&solver, version, &input, [1.0, 0.0]);
                run.commit_step("solver", &[input.as_str()]);
            }
        });
        let sql = "SELECT t.current_version, t.consumed, t.written = t.consumed + t.excluded + t.open AS whole, \
                   (SELECT count(*) FROM solver WHERE step IS NOT NULL) AS stepped \
                   FROM system.tables t WHERE t.table_name = 'solver'";
        while !done.load(Ordering::Acquire) {
            let row = &run.rows(sql)[0];
            let number = |column: &str| row[column].as_u64().unwrap();
            assert_eq!(number("consumed"), 2 * number("current_version"), "{row}");
            assert_eq!(number("stepped"), number("consumed"));
            assert_eq!(row["whole"], true);
        }
    });
    assert_eq!(run.column("SELECT current_version FROM system.tables WHERE table_name = 'solver'"), [40]);
}

/// Ends all waits for rows when an assertion has failed: nobody would write them any more.
struct Close<'a>(&'a Store);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close("an assertion failed");
        }
    }
}

/// Groups that a step takes of each agent, of two rows each.
const GROUPS_A_STEP: u64 = 2;
/// Rows of each agent that a step takes.
const ROWS_A_STEP: u64 = 2 * GROUPS_A_STEP;

/// Writes groups of both agents until it is told to stop: two rows of each, ready to be trained on, in one batch.
fn write_pairs(run: &Run, writer: usize, version: &AtomicU64, over: &AtomicBool) -> u64 {
    let [solver, checker] = ["solver", "checker"].map(|name| run.store.table(name).unwrap());
    let tokens: Vec<i32> = (0..16).collect();
    let (mut written, mut number, mut of_version) = (0, 0_u64, (0, 0));
    let _close = Close(&run.store);
    while !over.load(Ordering::Acquire) {
        let now = version.load(Ordering::Acquire);
        if of_version.0 != now {
            of_version = (now, 0);
        }
        if of_version.1 >= 12 {
            std::thread::yield_now(); // enough for this version: it runs ahead of the trainer, but not out of sight
            continue;
        }
        let (mut batch, input) = (run.store.batch(), format!("w{writer}x{number}"));
        for trajectory in 0..2 {
            let id = format!("{input}_0_{trajectory}");
            let cells: [(&str, Value<'_>); 3] =
                [("prompt", PROMPT.into()), ("response", (&tokens[..]).into()), ("reward", 1.0.into())];
            batch.insert(&solver, NewRow::new(now, &id).unwrap(), cells.clone()).unwrap();
            let parent = format!("solver/{id}");
            batch.insert(&checker, NewRow::new(now, &id).unwrap().parent(&parent), cells).unwrap();
        }
        match batch.commit() {
            Ok(_) => (written, of_version.1) = (written + 2, of_version.1 + 1),
            Err(error) => assert_eq!(error.kind(), StoreKind::State, "the version has moved on: {error}"),
        }
        number += 1;
    }
    written
}

/// Makes a step that trains both agents.
fn train_both(run: &Run) -> u64 {
    let trainers = ["train-solver", "train-checker"].map(|name| run.store.consumer(name).unwrap());
    let plan = trainers.iter().fold(StepPlan::new(), |plan, train| plan.rows(train, ROWS_A_STEP));
    let step = run.store.begin_step(plan).unwrap();
    for train in &trainers {
        while let Some(claim) = step.next(train, MicroBatch::of(2), Wait::Forever).unwrap() {
            claim.accumulated().unwrap();
        }
    }
    step.commit([("solver", vec![]), ("checker", vec![])]).unwrap().step
}

/// What one query sees of two tables, which are given as SQL, and of the rows that belong together.
fn counted(solver: &str, checker: &str) -> String {
    format!(
        "SELECT (SELECT count(*) FROM {solver} s) AS solver, (SELECT count(*) FROM {checker} c) AS checker, \
                (SELECT count(*) FROM {solver} s JOIN {checker} c ON c.parent = 'solver/' || s.sample_id \
                 AND c.policy_version = s.policy_version) AS joined, \
                (SELECT count(*) FROM {solver} s FULL JOIN {checker} c USING (sample_id, policy_version) \
                 WHERE s.agent IS NULL OR c.agent IS NULL) AS alone, \
                (SELECT count(*) FROM (SELECT step FROM (SELECT step, agent FROM {solver} s UNION ALL \
                 SELECT step, agent FROM {checker} c) WHERE step IS NOT NULL GROUP BY step \
                 HAVING count(*) <> 2 * {ROWS_A_STEP} OR count(DISTINCT agent) <> 2)) AS torn, \
                (SELECT count(*) FROM {solver} s WHERE step IS NOT NULL) AS trained, \
                (SELECT coalesce(max(step), 0) FROM {solver} s) AS last"
    )
}

/// Asks [`counted`], checks that nothing is half there, and gives the numbers of rows and of steps.
fn whole(run: &Run, sql: &str) -> (u64, u64) {
    let row = &run.rows(sql)[0];
    let number = |column: &str| row[column].as_u64().unwrap();
    assert_eq!([number("checker"), number("joined")], [number("solver"); 2], "{row}");
    assert_eq!([number("alone"), number("torn")], [0; 2], "{row}");
    assert_eq!(number("trained"), ROWS_A_STEP * number("last"), "{row}");
    (number("solver"), number("last"))
}

/// Two agents are written in one batch and trained in one step, by threads that never pause: now and in the past, no query
/// shows one without the other.
#[test]
fn joined_tables_never_show_half_a_batch_or_half_a_step() {
    const STEPS: u64 = 40;
    const WRITERS: usize = 2;
    let run = Run::with_tables();
    let (version, asked, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (mut past, mut before): (BTreeMap<u64, u64>, (u64, u64)) = (BTreeMap::new(), (0, 0));
    let as_of = |step: u64| {
        let table = |agent: &str| format!("as_of('{agent}', step => {step})");
        counted(&table("solver"), &table("checker"))
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (run, version, over) = (&run, &version, &over);
                scope.spawn(move || write_pairs(run, writer, version, over))
            })
            .collect();
        scope.spawn(|| {
            let _over = Raise(&over);
            for step in 1..=STEPS {
                // As many steps as there were queries, and a few more.
                while step > 4 * (asked.load(Ordering::Acquire) + 1) && !over.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                assert_eq!(train_both(&run), step);
                version.store(step, Ordering::Release);
            }
        });
        let (_over, _close) = (Raise(&over), Close(&run.store));
        while !over.load(Ordering::Acquire) {
            let now = whole(&run, &counted("solver", "checker"));
            assert!(now.0 >= before.0 && now.1 >= before.1, "{now:?} after {before:?}");
            before = now;
            // The newest step of which is known that it was committed, and one from long ago.
            for step in [version.load(Ordering::Acquire), now.1 / 2].into_iter().filter(|step| *step > 0) {
                let then = whole(&run, &as_of(step));
                assert_eq!(then.1, step, "as of step {step}");
                assert_eq!(*past.entry(step).or_insert(then.0), then.0, "as of step {step}, asked again");
            }
            asked.fetch_add(1, Ordering::Release);
        }
        let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        assert_eq!(whole(&run, &counted("solver", "checker")), (written, STEPS));
    });
    assert!(asked.load(Ordering::Relaxed) >= STEPS / 4 - 1 && past.len() as u64 >= STEPS / 8, "{past:?}");
    for (step, rows) in past {
        assert_eq!(whole(&run, &as_of(step)), (rows, step), "as of step {step}, after the end");
    }
}
