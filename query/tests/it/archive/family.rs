//! Lineage of rows some of whose relatives have left the store.

use forebay_query::{Options, Session};
use forebay_store::NewRow;
use serde_json::{Value as Json, json};

use super::fixture::*;
use crate::fixture::{Run, finished_group};

/// Every version `v` has rows `q<v>_0_0` and `q<v>_0_1` of the solver, each continued by one of the checker, and all were
/// trained on. Then rows come that continue those of version 0 over three generations.
fn generations() -> Run {
    let run = Run::with_tables();
    for version in 0..STEPS {
        let input = format!("q{version}");
        for agent in ["solver", "checker"] {
            finished_group(&run.store.table(agent).unwrap(), version, &input, [1.0, 0.0]);
        }
        for agent in ["solver", "checker"] {
            run.commit_step(agent, &[input.as_str()]);
        }
    }
    for (table, sample, parent) in [
        ("solver", "q0_1_0", "checker/q0_0_0"),
        ("solver", "q0_1_2", "checker/q0_0_0"),
        ("checker", "q0_1_0", "solver/q0_1_0"),
    ] {
        let row = NewRow::new(STEPS, sample).unwrap().parent(parent);
        run.store.table(table).unwrap().insert_row(row, []).unwrap();
    }
    run
}

fn family(session: &Session, row: &str) -> Vec<Json> {
    rows(session, &format!("SELECT * FROM lineage('{row}')"))
}

/// What there is of a family, shortly.
fn shown(family: &[Json]) -> Vec<(i64, &str, &str, u64)> {
    let text = |row: &'static str, from: usize| family[from][row].as_str().unwrap();
    let number = |row: &str, from: usize| family[from][row].as_i64().unwrap();
    let row = |at| {
        (
            number("depth", at),
            text("table_name", at),
            text("sample_id", at),
            number("policy_version", at) as u64,
        )
    };
    (0..family.len()).map(row).collect()
}

const OF_ALL: [&str; 7] = [
    "solver/q0_0_0",
    "checker/q0_0_0",
    "solver/q0_1_0",
    "checker/q0_1_0",
    "checker/q3_0_1",
    "solver/q5_0_0",
    "checker/nobody_0_0",
];

// PL-B05, FX-16
#[test]
fn a_family_is_whole_wherever_its_rows_are() {
    let run = generations();
    let before: Vec<Vec<Json>> = OF_ALL.iter().map(|row| family(&run.session, row)).collect();
    let tree = [
        (-1, "solver", "q0_0_0", 0),
        (0, "checker", "q0_0_0", 0),
        (1, "solver", "q0_1_0", STEPS),
        (1, "solver", "q0_1_2", STEPS),
        (2, "checker", "q0_1_0", STEPS),
    ];
    assert_eq!(shown(&before[1]), tree);
    assert_eq!(before[3].len(), 4, "its brother is no relative in line");
    let (archive, _) = in_memory();
    assert!(!move_all(&run.store, &archive).is_empty());
    let gone = "SELECT (SELECT min(policy_version) FROM solver) AS solver, (SELECT min(policy_version) FROM checker) AS checker";
    assert_eq!(
        rows(&run.session, gone),
        [json!({"solver": OVER, "checker": OVER})],
        "the oldest are archived"
    );
    let both = session(&run.store, &archive);
    for (row, before) in OF_ALL.iter().zip(&before) {
        assert_eq!(&family(&both, row), before, "{row}");
    }
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    assert_eq!(
        shown(&family(&alone, "checker/q3_0_1")),
        [(-1, "solver", "q3_0_1", 3), (0, "checker", "q3_0_1", 3)]
    );
    assert_eq!(
        shown(&family(&run.session, "checker/q0_1_0")).len(),
        2,
        "the session without the archive sees live rows"
    );
}

/// Whoever writes parents may write anything.
#[test]
fn a_family_that_runs_in_a_circle_is_shown_once() {
    let run = generations();
    let solver = run.store.table("solver").unwrap();
    for (sample, parent) in
        [("c_0_0", "solver/c_0_1"), ("c_0_1", "solver/c_0_0"), ("d_0_0", "solver/d_0_0"), ("e_0_0", "none")]
    {
        solver.insert_row(NewRow::new(STEPS, sample).unwrap().parent(parent), []).unwrap();
    }
    let circle = family(&run.session, "solver/c_0_0");
    assert_eq!(shown(&circle), [(-1, "solver", "c_0_1", STEPS), (0, "solver", "c_0_0", STEPS)]);
    for own in ["d_0_0", "e_0_0"] {
        let alone = family(&run.session, &format!("solver/{own}"));
        assert_eq!(shown(&alone), [(0, "solver", own, STEPS)]);
    }
}

/// Every version and every attempt of a sample is a row of the family.
#[test]
fn versions_and_attempts_of_a_sample_are_as_many_rows() {
    let run = generations();
    let checker = run.store.table("checker").unwrap();
    for version in [STEPS, STEPS + 1] {
        let row = NewRow::new(version, "q0_0_0").unwrap().parent("solver/q0_0_0");
        checker.insert_row(row, []).unwrap();
    }
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let found = family(&session(&run.store, &archive), "solver/q0_0_0");
    let children: Vec<_> = shown(&found).into_iter().filter(|(depth, ..)| *depth == 1).collect();
    let expected = [0, STEPS, STEPS + 1].map(|version| (1, "checker", "q0_0_0", version));
    assert_eq!(children, expected);
}
