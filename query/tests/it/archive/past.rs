//! The past of a table, and its episodes, where the store is gone: all that is known is in the archive.

use std::fs;

use forebay_query::{Archive, Kind, Options, Session};
use serde_json::{Value as Json, json};

use super::fixture::*;

fn alone(archive: &Archive) -> Session {
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

/// The moments that one manifest holds are not known without it, whichever rows are asked for; all others are as before.
#[test]
fn a_moment_that_a_damaged_manifest_may_hold_is_not_told_by_others() {
    let cases = [
        (2, ["version => 2", "step => 3"], ["version => 0", "version => 1", "version => 3", "step => 4"]),
        (4, ["version => 4", "step => 5"], ["version => 0", "version => 2", "version => 3", "step => 3"]),
    ];
    for (damaged, held, others) in cases {
        let run = stepped();
        let (archive, path) = in_directory(&run);
        move_all(&run.store, &archive);
        let asked = |moment: &str| {
            format!(
                "SELECT * FROM as_of('solver', {moment}) WHERE policy_version < 2 ORDER BY policy_version, sample_id"
            )
        };
        let before = others.map(|moment| rows(&alone(&archive), &asked(moment)));
        let name = format!("_commits/solver/{damaged}.1.json");
        fs::write(path.join(&name), b"").unwrap();
        let alone = alone(&Archive::open(path.to_str().unwrap()).unwrap());
        for moment in held {
            let message = error(&alone, &asked(moment), Kind::Archive);
            assert!(message.contains(&format!("{name} is corrupt")), "{moment}: {message}");
        }
        for (moment, before) in others.iter().zip(&before) {
            assert_eq!(&rows(&alone, &asked(moment)), before, "{moment}");
        }
    }
}

/// What ended a version that is not in the archive is in the manifest of none.
#[test]
fn the_end_of_a_version_that_was_not_archived_is_not_that_of_the_next_one() {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    fs::remove_file(path.join("_commits/solver/2.1.json")).unwrap();
    let alone = alone(&Archive::open(path.to_str().unwrap()).unwrap());
    let message = error(&alone, &as_of("version => 2"), Kind::Input);
    assert!(message.contains("version 2 is not in the archive"), "{message}");
    assert!(!rows(&alone, &as_of("version => 3")).is_empty());
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
