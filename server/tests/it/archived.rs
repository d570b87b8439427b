//! A server of a store some of whose versions lie in an archive.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use forebay_query::{Archive, ArchiveRule, Archiver};
use forebay_server::{Error, Server};
use forebay_store::{Consumer, DataType, MicroBatch, Options, Schema, StepPlan, Store, Wait};
use serde_json::json;
use tempfile::TempDir;

use crate::client::{Served, loopback};
use crate::flight::{ask, with_served};

const STEPS: u64 = 6;
/// Two states are kept to go back to, so these are over.
const OVER: u64 = STEPS - 1;

/// A row a version, each but the last trained on by a step, and those that are over in the archive.
fn archived() -> (Store, TempDir, Archive) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("store"), Options::default()).unwrap();
    let solver = store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    let train = store.create_consumer("train", Consumer::trainer(["solver"]).ready(["reward"])).unwrap();
    for version in 0..STEPS {
        solver.insert(version, &format!("q{version}_0_0"), [("reward", 1.0.into())]).unwrap();
        let step = store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
        step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap().accumulated().unwrap();
        step.commit([("solver", vec![])]).unwrap();
    }
    let archive = Archive::open(directory.path().join("archive").to_str().unwrap()).unwrap();
    let archiver = Archiver::new(&store, &archive, ArchiveRule::keep_versions(1)).unwrap();
    let moved = std::iter::from_fn(|| archiver.run_once().unwrap()).count();
    assert_eq!(moved as u64, OVER);
    (store, directory, archive)
}

/// A statement and the number that answers it with the archive and without.
const STATEMENTS: [(&str, u64, u64); 4] = [
    ("SELECT count(*) AS n FROM solver", STEPS, STEPS - OVER),
    ("SELECT count(*) AS n FROM solver WHERE policy_version = 0", 1, 0),
    ("SELECT count(*) AS n FROM as_of('solver', step => 3) WHERE step IS NOT NULL", 3, 0),
    ("SELECT count(*) AS n FROM lineage('solver/q1_0_0')", 1, 0),
];

#[test]
fn archived_rows_are_answered_by_http_and_by_flight() {
    for with_archive in [true, false] {
        let (store, directory, archive) = archived();
        let builder = Server::builder().flight(loopback());
        let builder = if with_archive { builder.archive(&archive) } else { builder };
        let served = Served::over(store, directory, builder);
        let expected = |(_, both, live): (&str, u64, u64)| if with_archive { both } else { live };
        for statement in STATEMENTS {
            let reply = served.sql(statement.0);
            assert_eq!(reply.json(), json!([{"n": expected(statement)}]), "{}", statement.0);
        }
        with_served(served, async |_, mut client| {
            for statement in STATEMENTS {
                let batch = ask(&mut client, statement.0).await.unwrap();
                let found = batch.column(0).as_primitive::<Int64Type>().value(0);
                assert_eq!(found as u64, expected(statement), "{}", statement.0);
            }
        });
    }
}

#[test]
fn an_archive_that_is_not_there_or_not_ours_is_told_at_the_beginning() {
    let (store, directory, archive) = archived();
    let nowhere = Archive::open(directory.path().join("nowhere").to_str().unwrap()).unwrap();
    let other = Store::open(directory.path().join("other"), Options::default()).unwrap();
    for (store, archive, words) in
        [(&store, &nowhere, "there is no archive"), (&other, &archive, "the archive of store")]
    {
        let refused = Server::builder().archive(archive).bind(store.clone(), loopback()).unwrap_err();
        assert!(matches!(refused, Error::Archive { .. }), "{refused:?}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

#[test]
fn an_archive_that_vanishes_is_a_failure_of_queries_and_not_of_the_server() {
    let (store, directory, archive) = archived();
    let path = directory.path().join("archive");
    let served = Served::over(store, directory, Server::builder().archive(&archive));
    assert_eq!(served.sql(STATEMENTS[0].0).status, 200);
    std::fs::rename(&path, path.with_extension("away")).unwrap();
    assert!(served.sql(STATEMENTS[0].0).failure(502, "archive").contains("there is no archive"));
    assert_eq!(served.get("/health").status, 200);
    std::fs::rename(path.with_extension("away"), &path).unwrap();
    assert_eq!(served.sql(STATEMENTS[0].0).json(), json!([{"n": STEPS}]));
}

#[test]
fn an_archive_that_vanishes_is_out_of_reach_for_drivers_and_comes_back() {
    let (store, directory, archive) = archived();
    let path = directory.path().join("archive");
    let builder = Server::builder().flight(loopback()).archive(&archive);
    with_served(Served::over(store, directory, builder), async |_, mut client| {
        let statement = STATEMENTS[0].0;
        let count =
            |batch: arrow_array::RecordBatch| batch.column(0).as_primitive::<Int64Type>().value(0) as u64;
        assert_eq!(count(ask(&mut client, statement).await.unwrap()), STEPS);
        std::fs::rename(&path, path.with_extension("away")).unwrap();
        let status = ask(&mut client, statement).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        assert!(status.message().contains("there is no archive"), "{status:?}");
        std::fs::rename(path.with_extension("away"), &path).unwrap();
        assert_eq!(count(ask(&mut client, statement).await.unwrap()), STEPS);
    });
}
