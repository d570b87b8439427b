//! Queries while rows move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use forebay_query::{ArchiveRule, Archiver};

use super::fixture::*;
use super::meddling::Meddling;
use crate::fixture::Run;

/// A query between any two operations of an archiver shows the same rows.
#[test]
fn between_any_two_steps_every_row_is_seen_once() {
    let run = stepped();
    let all = rows(&run.session, EVERYTHING);
    let (archive, objects) = in_memory();
    let looked = Arc::new(AtomicUsize::new(0));
    let look = {
        let (session, all, looked) = (session(&run.store, &archive), all.clone(), looked.clone());
        move |operation: usize| {
            if operation >= 2 {
                assert_eq!(rows(&session, EVERYTHING), all, "before operation {operation}");
                looked.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    move_all(&run.store, &over(Meddling::looked_at(objects, look)));
    assert_eq!(live_rows(&run.store, "solver"), 4 * (STEPS - OVER) as usize);
    assert!(looked.load(Ordering::SeqCst) > 4 * OVER as usize);
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
}

/// Tells the others at its end, also when that is a failed assertion.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A run goes on, an archiver follows it, and queries see whole versions, none twice, none missing.
#[test]
fn while_a_run_goes_on_versions_are_seen_whole() {
    const VERSIONS: u64 = 30;
    let run = Run::with_tables();
    let (archive, _) = in_directory(&run);
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let session = session(&run.store, &archive);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Raise(&over);
            for version in 0..VERSIONS {
                step(&run, version);
                while archiver.run_once().unwrap().is_some() {}
            }
        });
        let sql = "SELECT (SELECT count(*) FROM solver) AS rows, (SELECT count(DISTINCT sample_id) FROM solver) AS ids, \
                   (SELECT count(*) FROM solver WHERE step IS NOT NULL) AS trained, \
                   (SELECT count(*) FROM (SELECT policy_version FROM solver s, system.tables t \
                    WHERE t.table_name = 'solver' AND policy_version < t.current_version \
                    GROUP BY policy_version HAVING count(*) <> 4)) AS torn, \
                   (SELECT current_version FROM system.tables WHERE table_name = 'solver') AS version";
        let mut before = 0;
        while !over.load(Ordering::Acquire) {
            let row = &rows(&session, sql)[0];
            let number = |column: &str| row[column].as_u64().unwrap();
            assert_eq!(number("rows"), number("ids"), "{row}");
            assert_eq!(number("torn"), 0, "{row}");
            assert_eq!(number("trained"), 2 * number("version"), "{row}");
            assert!(number("rows") >= before.max(4 * number("version")), "{row} after {before}");
            before = number("rows");
        }
    });
    assert_eq!(rows(&session, "SELECT count(*) AS rows FROM solver")[0]["rows"], 4 * VERSIONS);
    assert!(live_rows(&run.store, "solver") <= 8);
}

/// Two archivers in one process: each version is moved by one of them, and the other takes it as it finds it.
#[test]
fn two_archivers_do_not_hinder_each_other() {
    let run = stepped();
    let all = rows(&run.session, EVERYTHING);
    let (archive, objects) = in_memory();
    let other = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let look = move |operation: usize| {
        if operation == 4 {
            other.run_once().unwrap().unwrap(); // while the first is about to put its manifest
        }
    };
    let first = over(Meddling::looked_at(objects, look));
    let archiver = Archiver::new(&run.store, &first, ArchiveRule::keep_versions(1)).unwrap();
    let error = archiver.run_once().unwrap_err();
    assert!(error.to_string().contains("another archiver"), "{error}");
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
    while archiver.run_once().unwrap().is_some() {}
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
    assert_eq!(live_rows(&run.store, "solver"), 4 * (STEPS - OVER) as usize);
}
