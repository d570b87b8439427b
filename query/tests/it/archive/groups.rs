//! What is left out within a file: row groups and pages.

use forebay_query::{ArchiveRule, Archiver, Session};
use forebay_store::{NewRow, Purpose};

use super::fixture::*;
use super::reading::{metric, plan};
use crate::fixture::Run;

/// A version of many rows, whose prompts and rewards go up with its sample ids.
fn archived_in_groups(row_group_bytes: usize) -> (Run, Session) {
    const ROWS: u64 = 6000;
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let mut batch = run.store.batch();
    for row in 0..ROWS {
        let new = NewRow::new(0, &format!("e{row}_0_0")).unwrap().purpose(Purpose::Eval);
        let prompt = format!("{row:05} {}", "What is it? ".repeat(40));
        let cells = [("prompt", prompt.as_str().into()), ("reward", (row as f64).into())];
        batch.insert(&solver, new, cells).unwrap();
    }
    batch.commit().unwrap();
    for version in 0..3 {
        step(&run, version);
    }
    let (archive, _) = in_memory();
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let archiver = archiver.row_group_bytes(row_group_bytes);
    while archiver.run_once().unwrap().is_some() {}
    let session = session(&run.store, &archive);
    (run, session)
}

#[test]
fn row_groups_and_pages_that_the_filters_rule_out_are_not_read() {
    // Of a metric such as "6.02 K total → 12 matched".
    let number = |shown: &str| match shown.trim().strip_suffix(" K") {
        Some(thousands) => thousands.parse::<f64>().unwrap() * 1000.0,
        None => shown.trim().parse().unwrap(),
    };
    let pruned = |plan: &str, word: &str| {
        let shown = metric(plan, word);
        let (all, left) = shown.split_once(" total → ").unwrap();
        (number(all), number(left.strip_suffix(" matched").unwrap()))
    };
    let sql = "SELECT sample_id FROM solver
        WHERE policy_version = 0 AND prompt >= '00300' AND prompt < '00311' AND purpose = 'eval'";
    let (_run, in_many) = archived_in_groups(64 << 10);
    let found = plan(&in_many, sql);
    let (groups, read) = pruned(&found, "row_groups_pruned_statistics=");
    assert!(groups >= 8.0 && read <= 2.0, "{read} of {groups}: {found}");
    assert_eq!(rows(&in_many, sql).len(), 11);
    // What is known of floats leaves out NaN, so nothing is left out by it.
    let sql = "SELECT sample_id FROM solver WHERE policy_version = 0 AND reward BETWEEN 300 AND 310 AND purpose = 'eval'";
    let found = plan(&in_many, sql);
    assert!(!found.contains("reward_m"), "no bound of rewards: {found}");
    let (all, read) = pruned(&found, "row_groups_pruned_statistics=");
    assert!(all >= 8.0 && read >= all - 1.0, "{read} of {all}: {found}");
    assert_eq!(rows(&in_many, sql).len(), 11);

    let sql =
        "SELECT sample_id FROM solver WHERE policy_version = 0 AND prompt < '00011' AND purpose = 'eval'";
    let (_run, in_one) = archived_in_groups(64 << 20);
    let found = plan(&in_one, sql);
    let (groups, read) = pruned(&found, "row_groups_pruned_statistics=");
    assert_eq!((groups, read), (1.0, 1.0), "{found}");
    let (all, left) = pruned(&found, "page_index_rows_pruned=");
    assert!(all >= 6000.0 && left < all, "{left} of {all}: {found}");
    assert_eq!(rows(&in_one, sql).len(), 11);
}
