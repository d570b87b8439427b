//! What is moved, when, and what stays.

use std::sync::Arc;

use forebay_query::{Archive, ArchiveRule, Archiver, Kind, Options, Session};
use forebay_store::{
    Claim, Consumer, DataColumn, DataType, MicroBatch, NewRow, Origin, Row, Store, Table, Value, Wait,
};

use super::fixture::*;
use super::meddling::Meddling;
use crate::fixture::{Run, finished_group};

fn due(run: &Run, rule: ArchiveRule) -> Vec<u64> {
    let archiver = Archiver::over(&run.store, &in_memory().0, rule);
    let solver = archiver.due().unwrap().into_iter().filter(|due| due.table == "solver");
    solver.map(|due| due.version).collect()
}

#[test]
fn versions_that_are_over_are_due() {
    let run = stepped();
    let cases = [
        (ArchiveRule::keep_versions(1), vec![0, 1, 2, 3, 4]),
        (ArchiveRule::keep_versions(0), vec![0, 1, 2, 3, 4]),
        (ArchiveRule::keep_versions(4), vec![0, 1, 2]),
        (ArchiveRule::keep_versions(6), vec![0]),
        (ArchiveRule::keep_versions(7), vec![]),
        (ArchiveRule::keep_versions(u64::MAX), vec![]),
        (ArchiveRule::keep_versions(1).versions(1..=2), vec![1, 2]),
        (ArchiveRule::keep_versions(5).versions(1..=9), vec![1]),
    ];
    for (rule, expected) in cases {
        assert_eq!(due(&run, rule.clone()), expected, "{rule:?}");
    }
}

#[test]
fn a_version_with_a_row_that_a_trainer_may_take_is_not_due() {
    let run = Run::with_tables();
    let checker = run.store.table("checker").unwrap();
    let all = Consumer::trainer(["open"]).ready(["reward"]).origins(forebay_store::Origins::All);
    let open = run
        .store
        .create_table("open", forebay_store::Schema::new().data("reward", DataType::Float32).policy("solver"))
        .unwrap();
    run.store.create_consumer("train-open", all).unwrap();
    let origin = Origin { peer: "berlin".to_owned(), round: 1 };
    open.insert_row(NewRow::new(0, "q1_0_0").unwrap().external(&origin), []).unwrap();
    finished_group(&checker, 0, "q1", [1.0, 0.0]);
    for version in 0..3 {
        step(&run, version);
    }
    let archiver = Archiver::over(&run.store, &in_memory().0, ArchiveRule::keep_versions(1));
    let due: Vec<_> = archiver.due().unwrap().into_iter().map(|due| (due.table, due.version)).collect();
    let expected = [("solver".to_owned(), 0), ("solver".to_owned(), 1)];
    assert_eq!(
        due, expected,
        "a row of a peer is fresh at every version, and the checker stands at version 0"
    );
}

#[test]
fn what_was_moved_is_gone_from_the_store_and_moving_again_does_nothing() {
    let run = stepped();
    let (archive, _) = in_memory();
    let before = live_rows(&run.store, "solver");
    let moved = move_all(&run.store, &archive);
    assert_eq!(moved.iter().map(|due| due.version).collect::<Vec<_>>(), (0..OVER).collect::<Vec<_>>());
    let rows: u64 = moved.iter().map(|due| due.rows).sum();
    assert_eq!(live_rows(&run.store, "solver") + rows as usize, before);
    assert_eq!(rows, OVER * 4);
    assert!(move_all(&run.store, &archive).is_empty());
    let archiver = Archiver::new(&run.store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let again = archiver.move_version(&moved[0]).unwrap();
    assert_eq!((again.rows, again.files, again.held_back), (0, 0, None));
    let late = run.store.table("solver").unwrap().insert(0, "late_0_0", []).unwrap_err();
    assert!(late.to_string().contains("retired"), "{late}");
}

#[test]
fn a_version_of_which_somebody_holds_a_row_stays_until_it_is_given_back() {
    let run = Run::with_tables();
    let score = Consumer::task(["solver"]).ready(["response"]);
    let score = run.store.create_consumer("score", score).unwrap();
    finished_group(&run.store.table("solver").unwrap(), 0, "first", [1.0, 0.0]);
    let held: Claim = score.claim(MicroBatch::of(1), "scorer", Wait::No).unwrap().unwrap();
    run.commit_step("solver", &["first"]);
    for version in 1..4 {
        step(&run, version);
    }
    let (archive, objects) = in_memory();
    let counting = Meddling::looked_at(objects, |_| {});
    let counted = over(counting.clone());
    let archiver = Archiver::new(&run.store, &counted, ArchiveRule::keep_versions(1)).unwrap();
    let (due, moved) = archiver.run_once().unwrap().unwrap();
    assert_eq!((due.version, moved.rows), (0, 0));
    let reason = moved.held_back.unwrap();
    assert!(reason.contains("held by claim"), "{reason}");
    let operations = counting.operations();
    assert_eq!(archiver.move_version(&due).unwrap().held_back, Some(reason));
    assert_eq!(counting.operations() - operations, 1, "the manifests are listed, and no file is read again");
    let all = rows(&run.session, EVERYTHING);
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all, "it is in both, and read once");
    let (next, moved) = archiver.run_once().unwrap().unwrap();
    assert_eq!((next.version, moved.held_back), (1, None), "others go on");
    held.finish(|_| Ok(())).unwrap();
    assert_eq!(archiver.move_version(&due).unwrap().rows, 2);
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
}

/// A change that comes in just before the store deletes what was archived.
type Change = fn(&Store, &Table, Row);

#[test]
fn a_row_that_changes_while_its_version_is_moved_is_archived_as_it_is_in_the_end() {
    let changes: [(&str, Change); 4] = [
        ("written", |_, table, row| table.write(row, [("reward", Value::from(7.0))]).unwrap()),
        ("excluded", |_, table, row| table.exclude(row, "judge_down").unwrap()),
        ("column", |_, table, _| table.add_column(DataColumn::new("score", DataType::Float32)).unwrap()),
        ("come", |_, table, _| {
            let origin = Origin { peer: "berlin".to_owned(), round: 1 };
            table.insert_row(NewRow::new(0, "new_0_0").unwrap().external(&origin), []).unwrap();
        }),
    ];
    for (what, change) in changes {
        let run = stepped();
        let (archive, objects) = in_memory();
        let store = run.store.clone();
        let meddling = Meddling::looked_at(objects, move |operation| {
            // The marker takes two operations; the version's manifests are listed, its file is put, then its manifest.
            if operation == 4 {
                let table = store.table("solver").unwrap();
                let row = table.find(0, &"eval0_0_10".parse().unwrap()).unwrap();
                change(&store, &table, row);
            }
        });
        let meddled = over(meddling.clone());
        let archiver = Archiver::new(&run.store, &meddled, ArchiveRule::keep_versions(1)).unwrap();
        let (due, moved) = archiver.run_once().unwrap().unwrap();
        assert_eq!(due.version, 0, "{what}");
        let reason = moved.held_back.expect(what);
        assert!(reason.contains("not as the snapshot showed it"), "{what}: {reason}");
        let all = rows(&run.session, EVERYTHING);
        let both = session(&run.store, &archive);
        assert_eq!(rows(&both, EVERYTHING), all, "{what}: the store's rows are the ones that count");
        let moved = archiver.move_version(&archiver.due().unwrap()[0]).unwrap();
        assert_eq!(moved.held_back, None, "{what}");
        assert_eq!(rows(&both, EVERYTHING), all, "{what}");
        assert_eq!(
            archiver.clean(std::time::Duration::ZERO).unwrap().files,
            1,
            "{what}: the first attempt's file"
        );
        assert_eq!(rows(&both, EVERYTHING), all, "{what}");
    }
}

#[test]
fn an_archive_is_of_one_store() {
    let (run, other) = (stepped(), stepped());
    let (archive, objects) = in_memory();
    move_all(&run.store, &archive);
    let refused = Archiver::new(&other.store, &over(objects), ArchiveRule::keep_versions(1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Archive);
    assert!(refused.to_string().contains("the archive of store"), "{refused}");
    let message = error(&session(&other.store, &archive), "SELECT 1", Kind::Archive);
    assert!(message.contains("each store an archive of its own"), "{message}");
}

#[test]
fn what_is_no_address_is_refused() {
    for address in ["", "http://", "ftp://host/path", "s3://", "file://host:x"] {
        let error = Archive::open(address).map(|archive| archive.url().to_owned()).expect_err(address);
        assert_eq!(error.kind(), Kind::Input, "{address}: {error}");
        assert!(error.to_string().contains("s3://BUCKET/PREFIX"), "{address}: {error}");
    }
}

#[test]
fn an_archive_is_found_by_path_and_by_url() {
    let run = stepped();
    let (archive, path) = in_directory(&run);
    let all = rows(&run.session, EVERYTHING);
    move_all(&run.store, &archive);
    for address in [format!("file://{}", path.display()), format!("{}/", path.display())] {
        let archive = Archive::open(&address).unwrap();
        assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all, "{address}");
    }
    let sizes = |name: &str| std::fs::read_dir(path.join(name)).unwrap().count();
    assert_eq!(
        [sizes("solver"), sizes("solver/at_version=3"), sizes("_commits/solver")],
        [OVER as usize, 1, OVER as usize]
    );
}

#[test]
fn it_is_driven_from_an_async_program_too() {
    let run = stepped();
    let (archive, _) = in_memory();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let moved = runtime.block_on(async { move_all(&run.store, &archive).len() });
    assert_eq!(moved as u64, OVER);
    let options = Options::default().archive(&archive);
    let session = Arc::new(Session::with_options(&run.store, &options).unwrap());
    let count =
        runtime.block_on(async { session.sql("SELECT count(*) FROM solver").await.unwrap().row_count() });
    assert_eq!(count, 1);
}
