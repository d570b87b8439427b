//! Queries that make rows faster than anybody could take them end all the same: by their time, or when nobody wants the rest.

use std::time::{Duration, Instant};

use forebay_query::{Cause, Kind, Options, QueryThreads, Session};
use forebay_store::{DataType, NewRow, Schema};
use futures_util::StreamExt;
use tokio::sync::oneshot::error::TryRecvError;

use crate::fixture::Run;

const ROWS: u32 = 2_000;

/// Each of these makes a trillion rows or more, and gives none, few, or all of them to a plan that takes them.
const ENDLESS: [&str; 9] = [
    "SELECT count(*) FROM solver a, solver b, solver c, solver d WHERE a.turn + b.turn + c.turn + d.turn > 3",
    "SELECT count(*) FROM (SELECT a.turn + b.turn + c.turn + d.turn AS n FROM solver a, solver b, solver c, solver d \
     UNION ALL SELECT a.turn * b.turn * c.turn * d.turn FROM solver a, solver b, solver c, solver d) WHERE n > 3",
    "SELECT sum(a.turn + d.turn) FROM solver a, solver b, solver c, solver d",
    "SELECT count(*) FROM solver a JOIN solver b ON a.turn = b.turn JOIN solver c ON b.turn = c.turn \
     JOIN solver d ON c.turn = d.turn AND a.reward + b.reward + c.reward + d.reward > 9",
    "SELECT max(a.reward + d.reward) FROM solver a JOIN solver b ON a.turn = b.turn JOIN solver c ON b.turn = c.turn \
     JOIN solver d ON c.turn = d.turn",
    "SELECT count(*) FROM solver a WHERE EXISTS \
     (SELECT 1 FROM solver b, solver c, solver d WHERE b.turn + c.turn + d.turn > a.turn + 3)",
    "SELECT a.sample_id FROM solver a, solver b, solver c WHERE a.reward + b.reward > c.reward + 5 LIMIT 1",
    "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    "EXPLAIN ANALYZE SELECT count(*) FROM solver a, solver b, solver c, solver d WHERE a.turn + b.turn + c.turn + d.turn > 3",
];

fn run() -> Run {
    let run = Run::empty();
    let solver = run.store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    let mut batch = run.store.batch();
    for row in 0..ROWS {
        let new = NewRow::new(0, &format!("q{row}_0_0")).unwrap();
        batch.insert(&solver, new, [("reward", ((row % 2) as f32).into())]).unwrap();
    }
    batch.commit().unwrap();
    run
}

#[test]
fn what_makes_rows_without_end_ends_in_its_time() {
    let run = run();
    let limit = Duration::from_millis(100);
    for partitions in [1, 3] {
        let options = Options::default().statement_time_max(limit).partitions(partitions);
        let session = Session::with_options(&run.store, &options).unwrap();
        for sql in ENDLESS {
            let error = session.sql_blocking(sql).unwrap_err();
            assert!(matches!(error.cause(), Cause::Time { limit: told } if *told == limit), "{sql}: {error}");
            assert_eq!(error.kind(), Kind::Capacity);
        }
    }
}

#[test]
fn what_other_threads_compute_ends_when_nobody_wants_the_rest() {
    let run = run();
    let threads = QueryThreads::new(1).unwrap();
    let asker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for sql in ENDLESS {
        asker.block_on(async {
            let (keeps, mut kept) = tokio::sync::oneshot::channel::<()>();
            let mut rows = run.session.stream(sql).await.unwrap().driven_by(&threads, keeps);
            let given = tokio::time::timeout(Duration::from_millis(50), rows.next()).await;
            assert!(given.is_err(), "{sql} has given something");
            assert!(kept.try_recv() == Err(TryRecvError::Empty), "{sql} is still computed");
            drop(rows);
            // The one thread is free again, and what was kept until then is gone.
            assert!(kept.await.is_err());
            let next = run.session.stream("SELECT 1").await.unwrap().driven_by(&threads, ());
            assert_eq!(next.collect().await.unwrap().row_count(), 1);
        });
    }
}

#[test]
fn rows_that_other_threads_compute_are_the_same() {
    let run = run();
    let threads = QueryThreads::new(1).unwrap();
    let asker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for sql in
        ["SELECT sample_id, reward FROM solver ORDER BY sample_id", "SELECT a.turn FROM solver a LIMIT 0"]
    {
        let here = run.session.sql_blocking(sql).unwrap();
        let there = asker.block_on(async {
            let rows = run.session.stream(sql).await.unwrap();
            rows.driven_by(&threads, ()).collect().await.unwrap()
        });
        assert_eq!((here.schema, here.batches), (there.schema, there.batches));
    }
    let failing = asker.block_on(async {
        let rows = run.session.stream("SELECT 1 / (turn - turn) FROM solver").await.unwrap();
        rows.driven_by(&threads, ()).collect().await.unwrap_err()
    });
    assert_eq!(failing.kind(), Kind::Input, "{failing}");
}

/// A statement that takes long to be planned, and gives nothing.
fn long_to_plan() -> String {
    let joins = (1..40).map(|at| format!(" JOIN solver s{at} ON s{}.sample_id = s{at}.sample_id", at - 1));
    format!("EXPLAIN SELECT count(*) FROM solver s0{}", joins.collect::<String>())
}

#[test]
fn planning_ends_in_its_time_and_when_nobody_wants_it() {
    let run = run();
    let sql = long_to_plan();
    let begun = Instant::now();
    run.session.sql_blocking(&sql).unwrap();
    let whole = begun.elapsed();
    let limit = whole / 20;
    let limited = run.session.with_statement_time_max(Some(limit));
    let asker = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let error = limited.sql_blocking(&sql).unwrap_err();
    assert!(matches!(error.cause(), Cause::Time { limit: told } if *told == limit), "{error}");
    let error = asker.block_on(limited.prepare(&sql)).unwrap_err();
    assert!(matches!(error.cause(), Cause::Time { limit: told } if *told == limit), "{error}");
    assert!(begun.elapsed() < whole, "{:?} of {whole:?}", begun.elapsed());

    let threads = QueryThreads::new(1).unwrap();
    let begun = Instant::now();
    asker.block_on(async {
        let (session, sql) = (run.session.clone(), sql.clone());
        let planning = threads.run(async move { session.stream(&sql).await });
        assert!(tokio::time::timeout(limit, planning).await.is_err());
        // The one thread is free again.
        let session = run.session.clone();
        let next = threads.run(async move { session.stream("SELECT 1").await }).await.unwrap();
        assert_eq!(next.driven_by(&threads, ()).collect().await.unwrap().row_count(), 1);
    });
    assert!(begun.elapsed() < whole / 2, "{:?} of {whole:?}", begun.elapsed());
}

/// Many rows of which none is let through: the scan gives nothing on the way.
#[test]
fn a_scan_that_refuses_every_row_ends_in_its_time() {
    let run = Run::empty();
    let solver = run.store.create_table("solver", Schema::new().data("reward", DataType::Float32)).unwrap();
    let mut batch = run.store.batch();
    for row in 0..100_000 {
        batch.insert(&solver, NewRow::new(0, &format!("q{row}_0_0")).unwrap(), []).unwrap();
    }
    batch.commit().unwrap();
    let options = Options::default().statement_time_max(Duration::from_millis(20));
    let session = Session::with_options(&run.store, &options).unwrap();
    for what in ["turn", "count(*)"] {
        let slow = format!(
            "SELECT {what} FROM solver WHERE strpos(repeat(sample_id, 2000), 'nowhere') > 0 GROUP BY turn"
        );
        let start = Instant::now();
        let error = session.sql_blocking(&slow).unwrap_err();
        let took = start.elapsed();
        assert!(matches!(error.cause(), Cause::Time { .. }), "{slow}: {error}");
        let whole = run.session.with_statement_time_max(Some(took * 2)).sql_blocking(&slow);
        assert!(whole.is_err(), "it ended long before its end");
    }
}
