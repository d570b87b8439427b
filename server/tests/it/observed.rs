//! `/metrics`.

use std::collections::BTreeMap;

use forebay_server::Server;
use forebay_store::{BudgetChange, MicroBatch, NewRow, StepPlan, Wait};

use crate::client::{Served, samples_at};
use crate::conformance::*;

fn samples(served: &Served) -> BTreeMap<String, f64> {
    samples_at(served.server.address().unwrap())
}

// PL-21
#[test]
fn every_row_is_accounted_for() {
    let served = Served::new(Server::builder());
    let samples = samples(&served);
    let of = |name: &str| samples.get(name).copied().unwrap_or_else(|| panic!("no {name} in {samples:#?}"));
    assert_eq!(of("forebay_rows_written_total{table=\"solver\"}"), 3.0);
    assert_eq!(of("forebay_rows_consumed_total{table=\"solver\"}"), 1.0);
    assert_eq!(of("forebay_rows_excluded_total{table=\"solver\",reason=\"too \\\"long\\\"\"}"), 1.0);
    assert_eq!(of("forebay_open_rows{table=\"solver\"}"), 1.0);
    assert_eq!(of("forebay_ready_rows{consumer=\"train\",table=\"solver\"}"), 1.0);
    assert_eq!(of("forebay_policy_version{policy=\"solver\"}"), 1.0);
    assert_eq!(of("forebay_steps_committed_total"), 1.0);
    let stats = served.store.stats();
    assert_eq!(of("forebay_log_bytes_total"), stats.log_bytes as f64);
    assert_eq!(of("forebay_value_bytes_total"), stats.value_bytes_written as f64);
    assert!(stats.log_bytes > 0 && stats.value_bytes_written > 0);
}

#[test]
fn what_the_store_takes_stands_beside_what_it_may_take() {
    let served = Served::new(Server::builder());
    let store = &served.store;
    let budget = |of: &str| samples(&served).get(&format!("forebay_budget_bytes{{of=\"{of}\"}}")).copied();
    assert_eq!((budget("memory"), budget("disk")), (None, None), "nothing is limited");
    store.change_budgets(&BudgetChange::new().memory_bytes_max(Some(1 << 30))).unwrap();
    assert_eq!((budget("memory"), budget("disk")), (Some(f64::from(1 << 30)), None));
    store.sync().unwrap();
    let (page, stats) = (samples(&served), store.stats());
    let taken = [
        ("forebay_memory_bytes", stats.memory_bytes),
        ("forebay_syncs_total", stats.syncs),
        ("forebay_durable_records", stats.commits),
        ("forebay_extent_bytes", stats.extent_bytes),
    ];
    for (name, expected) in taken {
        assert_eq!(page.get(name), Some(&(expected as f64)), "{name}");
        assert!(expected > 0, "{name}");
    }
}

#[test]
fn open_claims_are_counted_by_state() {
    let served = Served::new(Server::builder());
    let leased = "forebay_open_claims{consumer=\"train\",table=\"solver\",state=\"leased\"}";
    assert_eq!(samples(&served).get(leased), None);
    let train = served.store.consumer("train").unwrap();
    let step = served.store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    assert_eq!(samples(&served).get(leased), Some(&1.0));
    claim.accumulated().unwrap();
    let after = samples(&served);
    assert_eq!((after.get(leased), after.get(&leased.replace("leased", "accumulated"))), (None, Some(&1.0)));
}

/// Every number of the page that SQL has too is the same there. `$1` stands for the agent.
const TOLD_TWICE: [(&str, &str); 7] = [
    ("forebay_rows_written_total{table=\"$1\"}", "SELECT written FROM system.tables WHERE table_name = '$1'"),
    (
        "forebay_rows_consumed_total{table=\"$1\"}",
        "SELECT consumed FROM system.tables WHERE table_name = '$1'",
    ),
    ("forebay_open_rows{table=\"$1\"}", "SELECT open FROM system.tables WHERE table_name = '$1'"),
    (
        "forebay_ready_rows{consumer=\"train\",table=\"$1\"}",
        "SELECT ready_rows FROM system.consumers WHERE consumer = 'train' AND table_name = '$1'",
    ),
    (
        "forebay_open_claims{consumer=\"train\",table=\"$1\",state=\"leased\"}",
        "SELECT nullif(count(*), 0) AS n FROM system.claims \
         WHERE consumer = 'train' AND table_name = '$1' AND state = 'leased'",
    ),
    ("forebay_policy_version{policy=\"$1\"}", "SELECT version FROM system.policies WHERE policy = '$1'"),
    ("forebay_steps_committed_total", "SELECT count(*) AS n FROM system.steps WHERE state = 'committed'"),
];

// AJ-30, FX-96
#[test]
fn the_numbers_of_the_page_are_those_of_sql() {
    let served = Served::new(Server::builder());
    let compare = |when: &str| {
        let page = samples(&served);
        for (name, sql) in TOLD_TWICE {
            let (name, sql) = (name.replace("$1", "solver"), sql.replace("$1", "solver"));
            let found = served.sql(&sql).json()[0].as_object().unwrap().values().next().unwrap().as_f64();
            assert_eq!(page.get(&name).copied(), found, "{when}: {name}");
        }
    };
    compare("before a step");
    let train = served.store.consumer("train").unwrap();
    let step = served.store.begin_step(StepPlan::new().rows(&train, 1)).unwrap();
    let claim = step.next(&train, MicroBatch::of(1), Wait::No).unwrap().unwrap();
    compare("while a row is held");
    claim.accumulated().unwrap();
    step.commit([("solver", vec![])]).unwrap();
    served.store.table("solver").unwrap().insert(2, "q9_0_0", [("reward", 1.0.into())]).unwrap();
    compare("after the step");
}

#[test]
fn what_clients_do_is_on_the_page() {
    let mut world = World::new(Way::Embedded);
    let builder = Server::builder().grpc("127.0.0.1:0".parse().unwrap());
    world.server = Some(builder.bind(world.store.clone(), "127.0.0.1:0".parse().unwrap()).unwrap());
    world.way = Way::Tcp;
    let page = || samples_at(world.server.as_ref().unwrap().address().unwrap());
    let of = |name: &str| page().get(name).copied().unwrap_or_default();
    assert_eq!(
        (of("forebay_connections{door=\"grpc\"}"), of("forebay_sessions"), of("forebay_session_claims")),
        (0.0, 0.0, 0.0)
    );
    let (one, other) = (world.client(), world.client());
    let (table, judge) = (solver(&one), judge(&one));
    row(&table, 0, "q_0_0", None);
    let claim = judge.claim(up_to(1), Wait::No).unwrap().unwrap();
    assert_eq!(
        (of("forebay_connections{door=\"grpc\"}"), of("forebay_sessions"), of("forebay_session_claims")),
        (2.0, 2.0, 1.0)
    );
    one.table("nowhere").unwrap_err();
    for (name, calls) in [
        ("forebay_calls_total{method=\"Open\",outcome=\"ok\"}", 2.0),
        ("forebay_calls_total{method=\"Write\",outcome=\"ok\"}", 2.0),
        ("forebay_calls_total{method=\"Claim\",outcome=\"ok\"}", 1.0),
        ("forebay_calls_total{method=\"Describe\",outcome=\"input\"}", 1.0),
        ("forebay_calls_failed_total{cause=\"Unknown\"}", 1.0),
        ("forebay_call_seconds_count{method=\"Write\"}", 2.0),
        ("forebay_call_seconds_bucket{method=\"Write\",le=\"+Inf\"}", 2.0),
        ("forebay_sessions_begun_total", 2.0),
        ("forebay_connections_accepted_total{door=\"grpc\"}", 2.0),
    ] {
        assert_eq!(of(name), calls, "{name}");
    }
    assert!(of("forebay_call_seconds_sum{method=\"Write\"}") > 0.0);
    let before = of("forebay_connection_bytes_total{door=\"grpc\",direction=\"in\"}");
    let text = "x".repeat(100_000);
    table.insert(NewRow::new(0, "r_0_0").unwrap(), [("prompt", (&*text).into())]).unwrap();
    assert!(of("forebay_connection_bytes_total{door=\"grpc\",direction=\"in\"}") >= before + 100_000.0);
    assert!(of("forebay_connection_bytes_total{door=\"grpc\",direction=\"out\"}") > 0.0);
    drop((claim, judge, table, one));
    assert_eq!((of("forebay_sessions"), of("forebay_session_claims")), (1.0, 0.0));
    assert_eq!(of("forebay_sessions_ended_total{why=\"closed\"}"), 1.0);
    drop(other);
    while of("forebay_connections{door=\"grpc\"}") > 0.0 {
        std::thread::yield_now(); // until the server has read that they are closed
    }
}
