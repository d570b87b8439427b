//! The past of a table, and its episodes, where the store is gone: all that is known is in the archive.

use forebay_query::{Kind, Options, Session};
use serde_json::{Value as Json, json};

use super::fixture::*;

fn alone(archive: &forebay_query::Archive) -> Session {
    Session::of_archive(archive, &Options::default()).unwrap()
}

fn as_of(moment: &str) -> String {
    format!(
        "SELECT * FROM as_of('solver', {moment}) WHERE policy_version < {OVER} ORDER BY policy_version, sample_id, attempt"
    )
}

#[test]
fn the_past_of_archived_versions_is_the_same_without_the_store() {
    let run = stepped();
    let moments: Vec<String> = (1..=OVER)
        .map(|step| format!("step => {step}"))
        .chain((0..OVER).map(|version| format!("version => {version}")))
        .collect();
    let before: Vec<Vec<Json>> = moments.iter().map(|moment| rows(&run.session, &as_of(moment))).collect();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let (both, alone) = (session(&run.store, &archive), alone(&archive));
    for (moment, before) in moments.iter().zip(&before) {
        assert!(!before.is_empty(), "{moment}");
        assert_eq!(&rows(&both, &as_of(moment)), before, "{moment}, beside the store");
        assert_eq!(&rows(&alone, &as_of(moment)), before, "{moment}, alone");
    }
    let trained = "SELECT count(step) AS n FROM as_of('solver', step => 2)";
    assert_eq!(rows(&alone, trained), [json!({"n": 4})], "later steps had taken nothing by then");
}

#[test]
fn a_moment_that_the_archive_does_not_have_is_refused() {
    let run = stepped();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let alone = alone(&archive);
    for (moment, word) in [
        (format!("'solver', step => {STEPS}"), format!("the last one that is is {OVER}")),
        ("'solver', step => 0".to_owned(), "step 0 is not in the archive".to_owned()),
        (format!("'solver', version => {OVER}"), format!("the newest one that is is {}", OVER - 1)),
        ("'solvr', step => 1".to_owned(), "did you mean solver?".to_owned()),
    ] {
        let error = error(&alone, &format!("SELECT * FROM as_of({moment})"), Kind::Input);
        assert!(error.contains(&word), "{moment}: {error}");
    }
}

#[test]
fn an_archive_that_holds_no_steps_says_so_and_answers_everything_else() {
    let run = stepped();
    let (archive, objects) = in_memory();
    move_all(&run.store, &archive);
    forget(&*objects, &["steps"]);
    let reopened = over(objects);
    let alone = alone(&reopened);
    assert_eq!(rows(&alone, "SELECT count(*) AS n FROM solver"), [json!({"n": 4 * OVER})]);
    for moment in ["step => 1", "version => 0"] {
        let error = error(&alone, &as_of(moment), Kind::Archive);
        assert!(error.contains("when the steps of solver were committed"), "{error}");
        assert_eq!(
            rows(&session(&run.store, &reopened), &as_of(moment)),
            rows(&session(&run.store, &archive), &as_of(moment)),
            "the store knows"
        );
    }
}

#[test]
fn episodes_are_the_same_wherever_their_rows_lie() {
    let run = stepped();
    let sql = format!(
        "SELECT * FROM system.episodes WHERE policy_version < {OVER} ORDER BY policy_version, input_id, trajectory_id"
    );
    let before = rows(&run.session, &sql);
    assert_eq!(before.len() as u64, 4 * OVER);
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    assert_eq!(rows(&session(&run.store, &archive), &sql), before);
    assert_eq!(rows(&alone(&archive), &sql), before);
}
