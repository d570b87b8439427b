//! Rows that SQL chooses and the store deletes.

use forebay_store::Delete;
use serde_json::json;

use crate::fixture::Run;

// FX-B07: a condition chooses rows by SQL, the store finds them by name and deletes them, all or none
#[test]
fn rows_that_a_condition_chooses_are_deleted_by_the_store() {
    let (run, step, claim) = Run::busy();
    drop((claim, step));
    let solver = run.store.table("solver").unwrap();
    let chosen = run.rows("SELECT policy_version, sample_id FROM solver WHERE excluded_reason = 'too_long' OR state = 'waiting'");
    assert_eq!(chosen.len(), 2, "{chosen:?}");
    let found: Vec<_> = chosen
        .iter()
        .map(|row| {
            let sample = row["sample_id"].as_str().unwrap().parse().unwrap();
            solver.find(row["policy_version"].as_u64().unwrap(), &sample).unwrap()
        })
        .collect();
    let live = || run.column("SELECT sum(live_values) FROM system.extents")[0].as_u64().unwrap();
    let (before, rows) = (live(), run.column("SELECT count(*) FROM solver")[0].as_u64().unwrap());
    assert!(solver.delete(&Delete::default()).is_err(), "nothing at all is no rule");
    let deleted = solver.delete(&Delete::rows(found).force()).unwrap();
    assert_eq!((deleted.rows, deleted.open), (2, 1));
    assert_eq!(run.column("SELECT count(*) FROM solver"), [json!(rows - 2)]);
    assert_eq!(live(), before - 2, "their prompts are gone with them");
    let left = "SELECT count(*) FROM solver WHERE excluded_reason = 'too_long' OR state = 'waiting'";
    assert_eq!(run.column(left), [json!(0)]);
}
