//! Columns that were renamed, or retired with their names given again, between store and archive.

use forebay_query::{Archive, Options, Session};
use forebay_store::{DataColumn, DataType, Element, Store, Table, Value};
use serde_json::{Value as Json, json};

use super::fixture::*;
use crate::fixture::Run;

/// A run with a column `note` behind all others, which the evaluated row of each version that is over has.
fn with_notes() -> Run {
    let run = stepped();
    let solver = run.store.table("solver").unwrap();
    solver.add_column(DataColumn::new("note", DataType::Utf8)).unwrap();
    (0..OVER).for_each(|version| note(&solver, version, "note", "written before".into()));
    run
}

fn note(solver: &Table, version: u64, column: &str, value: Value<'_>) {
    let row = solver.find(version, &format!("eval{version}_0_10").parse().unwrap()).unwrap();
    solver.write(row, [(column, value)]).unwrap();
}

fn alone(archive: &Archive) -> Session {
    Session::of_archive(archive, &Options::default()).unwrap()
}

fn count(session: &Session, what: &str) -> Json {
    rows(session, &format!("SELECT count(*) AS n FROM solver WHERE {what}"))[0]["n"].clone()
}

#[test]
fn a_column_does_not_have_the_values_of_a_retired_one_of_its_name() {
    let types = [DataType::Utf8, DataType::Number(Element::Int32), DataType::list(Element::Int32)];
    for data_type in types {
        let run = with_notes();
        let (archive, _) = in_memory();
        move_all(&run.store, &archive);
        let solver = run.store.table("solver").unwrap();
        solver.retire_column("note").unwrap();
        solver.add_column(DataColumn::new("note", data_type.clone())).unwrap();
        let both = session(&run.store, &archive);
        let all = rows(&both, "SELECT note, note_status, note_at FROM solver");
        let nothing = json!({"note": null, "note_status": false, "note_at": null});
        assert_eq!(all, vec![nothing; 4 * STEPS as usize], "{data_type:?}");
        for (what, expected) in [
            ("note IS NOT NULL", 0),
            ("note_status", 0),
            ("note_at IS NOT NULL", 0),
            ("NOT note_status AND policy_version < 2", 8),
            ("note IS NULL AND sample_id = 'eval1_0_10'", 1),
            ("note IS NULL OR reward > 3", 4 * STEPS),
        ] {
            assert_eq!(count(&both, what), expected, "{data_type:?}: {what}");
        }
    }
}

#[test]
fn values_under_a_name_that_was_given_again_are_those_of_the_column_that_has_it() {
    let run = with_notes();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let before = rows(&alone(&archive), "SELECT count(note) AS n FROM solver");
    assert_eq!(before, [json!({"n": OVER})]);
    let solver = run.store.table("solver").unwrap();
    solver.retire_column("note").unwrap();
    solver.add_column(DataColumn::new("note", DataType::Utf8)).unwrap();
    step(&run, STEPS);
    note(&solver, OVER, "note", "written after".into());
    let both = session(&run.store, &archive);
    let found = json!([{"note": "written after"}]);
    let sql = "SELECT note FROM solver WHERE note LIKE 'written%'";
    assert_eq!(json!(rows(&both, sql)), found, "live");
    assert_eq!(move_all(&run.store, &archive).len(), 1);
    assert_eq!(json!(rows(&both, sql)), found, "archived, beside older ones that had another column");
    assert_eq!(json!(rows(&alone(&archive), sql)), found, "and alone");
    assert_eq!(rows(&both, "SELECT count(note) AS n FROM solver"), [json!({"n": 1})]);
}

/// A store that was put back from an older copy has lost the coming of these columns, as a repair may lose it. Its other life archived
/// two rows that have their names as values.
fn lost(columns: &[&str]) -> (Run, Archive, Store) {
    let run = Run::with_tables();
    (0..2).for_each(|version| step(&run, version));
    let copy = run.directory.path().join("copy");
    run.store.backup(&copy).unwrap();
    (2..STEPS).for_each(|version| step(&run, version));
    let solver = run.store.table("solver").unwrap();
    for column in columns {
        solver.add_column(DataColumn::new(column, DataType::Utf8)).unwrap();
        (3..OVER).for_each(|version| note(&solver, version, column, (*column).into()));
    }
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let store = Store::open(&copy, forebay_store::Options::default()).unwrap();
    let solver = store.table("solver").unwrap();
    // It passes the instants of the manifests without a step.
    (0..1000).for_each(|i| _ = solver.insert(2, &format!("more{i}_0_0"), []).unwrap());
    (run, archive, store)
}

#[test]
fn a_column_at_the_place_of_one_that_was_lost_does_not_have_its_values() {
    let cases = [
        ("note", DataType::Utf8, 2), // it has come again, for all that one can tell
        ("other", DataType::Utf8, 0),
        ("note", DataType::Number(Element::Int32), 0),
        ("other", DataType::list(Element::Int32), 0),
    ];
    for (name, data_type, expected) in cases {
        let (_run, archive, store) = lost(&["note"]);
        let solver = store.table("solver").unwrap();
        solver.add_column(DataColumn::new(name, data_type.clone())).unwrap();
        let sql = format!(
            "SELECT count(*) AS n, count({name}) AS cells, count({name}_at) AS times, \
             count(*) FILTER (WHERE {name}_status) AS final FROM solver WHERE policy_version > 2"
        );
        let found = rows(&session(&store, &archive), &sql);
        let expected = json!({"n": 8, "cells": expected, "times": expected, "final": expected});
        assert_eq!(found, [expected], "{name}: {data_type:?}");
    }
}

#[test]
fn columns_that_were_lost_and_come_again_in_another_order_have_their_values() {
    let (_run, archive, store) = lost(&["note", "mark"]);
    let solver = store.table("solver").unwrap();
    for name in ["mark", "note"] {
        solver.add_column(DataColumn::new(name, DataType::Utf8)).unwrap();
        let both = session(&store, &archive);
        assert_eq!(count(&both, &format!("{name} = '{name}' AND {name}_status")), 2, "{name}");
        assert_eq!(count(&both, &format!("{name}_at IS NOT NULL OR {name} <> '{name}'")), 2, "{name}");
    }
    solver.retire_column("note").unwrap(); // where the other life had `mark`
    assert_eq!(count(&session(&store, &archive), "mark IS NOT NULL OR mark_status"), 0);
}

#[test]
fn a_renamed_column_is_asked_in_archived_versions_too() {
    let run = stepped();
    let questions = [
        "SELECT sample_id, reward AS r, reward_status AS s, reward_at AS t FROM solver ORDER BY policy_version, 1",
        "SELECT sample_id FROM solver WHERE reward > 1 AND policy_version < 4 ORDER BY 1",
        "SELECT sample_id, reward AS r FROM solver ORDER BY reward DESC NULLS LAST, 1 LIMIT 3",
        "SELECT policy_version AS v, avg(reward) AS r, count(reward) AS n FROM solver GROUP BY 1 ORDER BY 1",
        "SELECT prompt AS p, count(*) AS n FROM solver WHERE prompt IS NOT NULL GROUP BY 1 ORDER BY 1",
        "SELECT a.sample_id FROM solver a JOIN solver b ON a.reward = b.reward AND b.policy_version = 2 ORDER BY 1, b.sample_id",
        // Under a name that a file has for another column.
        "SELECT sample_id FROM solver ORDER BY prompt DESC NULLS LAST, 1 LIMIT 3",
        "SELECT a.sample_id FROM solver a JOIN solver b ON a.prompt = b.prompt AND b.policy_version = 2 ORDER BY 1, b.sample_id",
    ];
    let before = questions.map(|sql| rows(&run.session, sql));
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let solver = run.store.table("solver").unwrap();
    solver.rename_column("reward", "points").unwrap();
    solver.rename_column("prompt", "reward").unwrap();
    let both = session(&run.store, &archive);
    for (sql, before) in questions.iter().zip(&before) {
        let sql = sql.replace("reward", "points").replace("prompt", "reward");
        assert_eq!(&rows(&both, &sql), before, "{sql}");
    }
}

/// Archives of before hold no places: their columns are found by name, as they were then.
#[test]
fn columns_of_an_older_archive_are_found_by_name() {
    let run = with_notes();
    let (archive, objects) = in_memory();
    move_all(&run.store, &archive);
    forget(&*objects, &["places"]);
    let solver = run.store.table("solver").unwrap();
    solver.retire_column("note").unwrap();
    solver.add_column(DataColumn::new("note", DataType::Utf8)).unwrap();
    solver.rename_column("reward", "points").unwrap();
    step_without_reward(&run);
    let both = session(&run.store, &over(objects));
    assert_eq!(count(&both, "note = 'written before'"), OVER);
    assert_eq!(count(&both, "points IS NOT NULL"), 2 * (STEPS - OVER));
}

/// A row of the current version, so that store and archive are both read.
fn step_without_reward(run: &Run) {
    run.store.table("solver").unwrap().insert(STEPS, "later_0_0", []).unwrap();
}
