//! Statements that are asked with other values each time, and which tables there are.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::DataType;
use forebay_query::{Answer, Format, Kind, Prepared, Result, TableKind};
use futures_util::StreamExt;
use serde_json::{Value as Json, json};

use crate::fixture::Run;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

fn prepare(run: &Run, sql: &str) -> Prepared {
    wait(run.session.prepare(sql)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn ask(prepared: &Prepared, values: Option<&RecordBatch>) -> Result<Answer> {
    wait(async { prepared.stream(values).await?.collect().await })
}

fn values(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.iter().map(|(name, array)| (*name, array.clone(), true)))
        .unwrap()
}

fn first_column(answer: &Answer) -> Vec<Json> {
    let mut document = Vec::new();
    answer.render(Format::Json, &mut document, None).unwrap();
    let rows: Vec<Json> = serde_json::from_slice(&document).unwrap();
    rows.iter().map(|row| row.as_object().unwrap().values().next().unwrap().clone()).collect()
}

#[test]
fn values_stand_for_placeholders_of_every_kind() {
    let (run, _step, _claim) = Run::busy();
    let reward = || ("reward", Arc::new(Float64Array::from(vec![0.3])) as ArrayRef);
    let version = || ("version", Arc::new(Int64Array::from(vec![0])) as ArrayRef);
    for (sql, given) in [
        ("WHERE reward > ? AND policy_version = ?", [reward(), version()]),
        ("WHERE reward > $1 AND policy_version = $2", [reward(), version()]),
        ("WHERE reward > $2 AND policy_version = $1", [version(), reward()]),
        ("WHERE reward > $reward AND policy_version = $version", [version(), reward()]),
    ] {
        let prepared = prepare(&run, &format!("SELECT sample_id FROM solver {sql} ORDER BY 1"));
        assert_eq!(prepared.parameters().fields().len(), 2, "{sql}");
        let answer = ask(&prepared, Some(&values(&given))).unwrap();
        assert_eq!(first_column(&answer), ["q1_0_0", "q2_0_0"], "{sql}");
    }
}

#[test]
fn a_statement_tells_its_columns_and_parameters_before_it_runs() {
    let (run, _step, _claim) = Run::busy();
    let prepared = prepare(
        &run,
        "SELECT sample_id, reward * 2 AS twice FROM solver WHERE policy_version = $1 AND reward < $3",
    );
    let names: Vec<&str> = prepared.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["sample_id", "twice"]);
    let types: Vec<(&str, &DataType)> = prepared
        .parameters()
        .fields()
        .iter()
        .map(|field| (field.name().as_str(), field.data_type()))
        .collect();
    let version = run.store.snapshot().tables()[0].arrow_schema();
    let version = version.field_with_name("policy_version").unwrap().data_type();
    assert_eq!(types, [("$1", version), ("$2", &DataType::Null), ("$3", &DataType::Float32)]);
    assert!(prepare(&run, "SELECT 1 AS one").parameters().fields().is_empty());
    assert_eq!(prepare(&run, "EXPLAIN SELECT 1").schema().fields().len(), 2);
}

#[test]
fn every_row_of_values_is_asked_in_turn_about_one_moment() {
    let (run, _step, _claim) = Run::busy();
    let prepared = prepare(&run, "SELECT count(*) FROM solver WHERE input_id = ?");
    let inputs =
        values(&[("1", Arc::new(StringArray::from(vec![Some("q4"), Some("q1"), None, Some("q3")])))]);
    wait(async {
        let mut rows = prepared.stream(Some(&inputs)).await.unwrap();
        let first = rows.next().await.unwrap().unwrap();
        assert_eq!(first.num_rows(), 1);
        let solver = run.store.table("solver").unwrap();
        solver.insert(1, "q3_0_7", [("prompt", "later".into())]).unwrap();
        let answer = rows.collect().await.unwrap();
        assert_eq!(first_column(&answer), [json!(2), json!(0), json!(2)]);
    });
    assert_eq!(
        first_column(&ask(&prepared, Some(&inputs)).unwrap())[3],
        3,
        "the next time it is another moment"
    );
}

#[test]
fn values_that_do_not_fit_are_refused_with_the_number_that_would() {
    let (run, _step, _claim) = Run::busy();
    let number = || ("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef);
    let two = prepare(&run, "SELECT ? + ?");
    let named = prepare(&run, "SELECT $here");
    let none = RecordBatch::new_empty(values(&[number()]).schema());
    for (prepared, given, expected) in [
        (&two, None, "2 parameters, and no values"),
        (&two, Some(values(&[number()])), "2 parameters, and 1 values"),
        (&two, Some(none), "no values were given"),
        (&named, Some(values(&[number()])), "no value was given for $here"),
    ] {
        let error = ask(prepared, given.as_ref()).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let text = values(&[("a", Arc::new(StringArray::from(vec!["x"]))), number()]);
    assert_eq!(ask(&two, Some(&text)).unwrap_err().kind(), Kind::Input, "a text is no number");
    assert!(
        run.error("SELECT sample_id FROM solver WHERE reward > $1", Kind::Input).contains("1 parameters")
    );
}

#[test]
fn hostile_statements_are_refused_before_they_cost() {
    let (run, _step, _claim) = Run::busy();
    for (sql, kind) in [
        ("SELECT $4294967295", Kind::Input),
        ("SELECT $99999999999999999999999999", Kind::Input),
        ("SELECT $0", Kind::Input),
        ("SELECT $a, $1", Kind::Input),
        ("SELECT ?; SELECT ?", Kind::Input),
        ("SELEC ?", Kind::Input),
        ("INSERT INTO solver VALUES (?)", Kind::ReadOnly),
    ] {
        let error = wait(run.session.prepare(sql)).map(|prepared| ask(&prepared, None).unwrap_err());
        assert_eq!(error.unwrap_or_else(|error| error).kind(), kind, "{sql}");
    }
}

#[test]
fn dropping_a_stream_ends_its_query() {
    let (run, _step, _claim) = Run::busy();
    wait(async {
        let mut rows =
            run.session.stream("SELECT value FROM generate_series(1, 1000000000000)").await.unwrap();
        assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
        let held = run.session.stream("SELECT prompt FROM solver").await.unwrap();
        assert!(!run.store.pins().is_empty(), "a stream holds its moment");
        drop((rows, held));
    });
    assert!(run.store.pins().is_empty(), "{:?}", run.store.pins());
}

#[test]
fn all_tables_are_listed_with_their_columns() {
    let (run, _step, _claim) = Run::busy();
    let tables = wait(run.session.tables()).unwrap();
    let of = |schema: &str, name: &str| {
        tables.iter().find(|table| (table.schema.as_str(), table.name.as_str()) == (schema, name)).unwrap()
    };
    assert!(of("public", "solver").columns.field_with_name("reward_status").is_ok());
    assert_eq!(of("public", "checker").kind, TableKind::Table);
    assert_eq!(of("system", "claims").kind, TableKind::System);
    assert_eq!(of("information_schema", "tables").kind, TableKind::System);
    for table in &tables {
        let sql = format!("SELECT * FROM {}.{}.\"{}\" LIMIT 1", table.catalog, table.schema, table.name);
        let answer = run.session.sql_blocking(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(answer.schema.fields().len(), table.columns.fields().len(), "{sql}");
    }
}
