//! Queries over what is in the archive: the same answers, and what is left out on the way.

use std::sync::Arc;

use arrow_schema::DataType as ArrowType;
use forebay_query::{Format, Kind, Options, Session};
use forebay_store::{DataColumn, DataType, compact};
use object_store::path::Path;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use serde_json::json;

use super::fixture::*;
use crate::fixture::{Run, finished_group};

/// Of what was asked before and after, the answers are the same.
const QUESTIONS: [&str; 17] = [
    EVERYTHING,
    "SELECT policy_version, count(*), avg(reward), max(reward_at) FROM solver GROUP BY 1 ORDER BY 1",
    "SELECT sample_id, prompt, response FROM solver WHERE policy_version = 3 ORDER BY 1",
    "SELECT sample_id FROM solver WHERE policy_version BETWEEN 2 AND 5 AND reward > 1 ORDER BY 1",
    "SELECT sample_id FROM solver WHERE policy_version IN (0, 5) OR reward > 3 ORDER BY 1",
    "SELECT sample_id, response[3], array_length(response) FROM solver WHERE sample_id = 'q2_0_1'",
    "SELECT sample_id, step, claim FROM solver WHERE step = 2 ORDER BY 1",
    "SELECT excluded_reason, state, count(*) FROM solver GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT sample_id, version_spans FROM solver WHERE purpose = 'eval' ORDER BY policy_version",
    "SELECT version_spans[2]['version'] AS later FROM solver WHERE purpose = 'eval' ORDER BY policy_version",
    "SELECT count(*) FROM solver",
    "SELECT array_length(version_spans) AS spans, count(*) FROM solver WHERE array_length(version_spans) > 0 GROUP BY 1 ORDER BY 1",
    "SELECT count(*), count(reward), count(response) FROM solver WHERE NOT reward_status",
    "SELECT sample_id, reward FROM solver ORDER BY reward DESC NULLS LAST, sample_id LIMIT 3",
    "SELECT s.sample_id, t.state FROM solver s JOIN system.steps t ON s.step = t.step ORDER BY 1",
    "SELECT a.sample_id FROM solver a JOIN solver b USING (group_key) WHERE a.trajectory_id = 0 AND b.trajectory_id = 1 ORDER BY 1",
    "SELECT sample_id FROM solver WHERE prompt LIKE '%2 + 2%' AND policy_version > 100",
];

#[test]
fn answers_are_the_same_wherever_the_rows_lie() {
    let run = stepped();
    finished_group(&run.store.table("checker").unwrap(), 0, "q1", [0.5, 0.5]);
    let before: Vec<_> = QUESTIONS.iter().map(|sql| rows(&run.session, sql)).collect();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let both = session(&run.store, &archive);
    for (sql, before) in QUESTIONS.iter().zip(&before) {
        assert_eq!(&rows(&both, sql), before, "{sql}");
    }
    assert_eq!(rows(&both, "SELECT * FROM solver LIMIT 7").len(), 7);
    assert_eq!(rows(&both, "SELECT * FROM checker").len(), 2);
    let live = rows(&run.session, "SELECT count(*) AS rows FROM solver");
    assert_eq!(live, [json!({"rows": 4 * (STEPS - OVER)})], "without the archive only what is live is seen");
}

#[test]
fn an_archive_can_be_asked_alone() {
    let run = stepped();
    let all = rows(
        &run.session,
        "SELECT * FROM solver WHERE policy_version < 5 ORDER BY policy_version, sample_id",
    );
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    let Run { store, session, directory } = run;
    drop((store, session, archive));
    std::fs::remove_dir_all(directory.path().join("store")).unwrap();
    let archive = forebay_query::Archive::open(path.to_str().unwrap()).unwrap();
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    assert_eq!(rows(&alone, EVERYTHING), all);
    for table in
        ["tables", "columns", "consumers", "claims", "instances", "steps", "policies", "objects", "extents"]
    {
        let sql = format!("SELECT * FROM system.{table}");
        assert_eq!(rows(&alone, &sql), [] as [serde_json::Value; 0], "{table}");
    }
    let episodes =
        "SELECT count(*) AS n, count(*) FILTER (WHERE state = 'trained') AS trained FROM system.episodes";
    assert_eq!(rows(&alone, episodes), [json!({"n": 4 * OVER, "trained": 2 * OVER})]);
    let tables =
        rows(&alone, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'");
    assert_eq!(tables, [json!({"table_name": "solver"})]);
    let message = error(&alone, "SELECT * FROM solvr", Kind::Input);
    assert!(message.contains("did you mean solver?"), "{message}");
}

/// A column that came later has no value in older files, and is not final there; a renamed one has its values.
#[test]
fn columns_that_came_later_are_null_and_not_final_in_older_versions() {
    let run = stepped();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let solver = run.store.table("solver").unwrap();
    solver.add_column(DataColumn::new("score", DataType::Float32)).unwrap();
    solver.add_column(DataColumn::new("tags", DataType::list(forebay_store::Element::Int32))).unwrap();
    solver.rename_column("reward", "points").unwrap();
    for version in STEPS..STEPS + 4 {
        let row = solver.insert(version, &format!("n{version}_0_0"), [("score", 2.5.into())]).unwrap();
        solver.exclude(row, "kept").unwrap();
        let input = format!("q{version}");
        for trajectory in 0..2 {
            let cells = [("response", vec![1_i32].into()), ("points", 0.5.into())];
            solver.insert(version, &format!("{input}_0_{trajectory}"), cells).unwrap();
        }
        run.commit_step("solver", &[input.as_str()]);
    }
    assert!(!move_all(&run.store, &archive).is_empty());
    let both = session(&run.store, &archive);
    let sql = "SELECT policy_version AS v, count(*) AS rows, count(score) AS scores, count(points) AS points, \
               count(*) FILTER (WHERE score_status) AS final, count(score_status) AS known, count(tags) AS tags \
               FROM solver GROUP BY 1 ORDER BY 1";
    let found = rows(&both, sql);
    assert_eq!(found.len() as u64, STEPS + 4);
    for row in &found {
        let scores = u64::from(row["v"].as_u64().unwrap() >= STEPS);
        assert_eq!((&row["scores"], &row["final"]), (&json!(scores), &json!(scores)), "{row}");
        assert_eq!((&row["known"], &row["tags"]), (&row["rows"], &json!(0)), "{row}");
        assert_eq!(row["points"], 2, "a renamed column has its values under its new name: {row}");
    }
    let cases = [
        ("score > 2", 4),
        ("score IS NULL AND policy_version < 2", 8),
        ("NOT score_status AND policy_version = 0", 4),
        ("score_status OR tags IS NOT NULL", 4),
        ("score_status = false AND sample_id = 'q1_0_0'", 1),
    ];
    for (condition, expected) in cases {
        let sql = format!("SELECT count(*) AS rows FROM solver WHERE {condition}");
        assert_eq!(rows(&both, &sql), [json!({"rows": expected})], "{condition}");
    }
    drop(run.store);
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    let names =
        rows(&alone, "SELECT column_name FROM information_schema.columns WHERE table_name = 'solver'");
    let has = |name: &str| names.iter().any(|row| row["column_name"] == name);
    assert!(has("score") && has("points"), "the columns of all versions: {names:?}");
    assert!(!has("reward") && !has("reward_at"), "each once, with its newest name: {names:?}");
    assert_eq!(rows(&alone, "SELECT count(points) AS n FROM solver"), [json!({"n": 2 * (STEPS + 3)})]);
}

pub(super) fn plan(session: &Session, sql: &str) -> String {
    let answer = session.sql_blocking(&format!("EXPLAIN ANALYZE {sql}")).unwrap();
    let mut text = Vec::new();
    answer.render(Format::Csv, &mut text, None).unwrap();
    String::from_utf8(text).unwrap()
}

/// The number behind a word of a plan.
pub(super) fn metric(plan: &str, word: &str) -> String {
    let at = plan.find(word).unwrap_or_else(|| panic!("no {word} in {plan}"));
    plan[at + word.len()..].split([',', ']', '\n']).next().unwrap().trim().to_owned()
}

#[test]
fn what_the_filters_rule_out_is_not_read() {
    let run = stepped();
    let (archive, _) = in_memory();
    move_all(&run.store, &archive);
    let both = session(&run.store, &archive);
    let files = |sql: &str| plan(&both, sql).matches("/part-").count();
    assert_eq!(files("SELECT reward FROM solver") as u64, OVER);
    assert_eq!(files("SELECT reward FROM solver WHERE policy_version = 3"), 1);
    assert_eq!(files("SELECT reward FROM solver WHERE policy_version > 100"), 0);
    assert_eq!(files("SELECT reward FROM solver WHERE policy_version <= 1 AND reward > 0"), 2);
    let figures =
        |sql: &str| ["versions_scanned=", "versions_pruned="].map(|word| metric(&plan(&both, sql), word));
    assert_eq!(figures("SELECT reward FROM solver"), ["5", "0"]);
    assert_eq!(figures("SELECT reward FROM solver WHERE policy_version <= 1 AND reward > 0"), ["2", "3"]);
    let by_bloom = plan(&both, "SELECT reward FROM solver WHERE sample_id = 'eval2_0_11'");
    assert_eq!(metric(&by_bloom, "row_groups_pruned_bloom_filter="), "5 total → 0 matched", "{by_bloom}");
    for sql in ["SELECT count(*) FROM solver", "SELECT count(sample_id) FROM solver"] {
        assert_eq!(files(sql), 0, "counts are in the manifests: {sql}");
    }
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    let versions = "SELECT min(policy_version) AS first, max(policy_version) AS last FROM solver";
    assert_eq!(plan(&alone, versions).matches("/part-").count(), 0, "so are the bounds of versions");
    assert_eq!(rows(&alone, versions), [json!({"first": 0, "last": OVER - 1})]);
    let bounds = rows(&both, "SELECT min(policy_version) AS first, max(policy_version) AS last FROM solver");
    assert_eq!(bounds, [json!({"first": 0, "last": STEPS - 1})]);
    let bounds = rows(&both, "SELECT min(policy_version) AS first FROM solver WHERE reward > 2");
    assert_eq!(bounds, [json!({"first": 3})], "not of all rows, where a condition leaves some out");
}

/// Parquet's own reader says how the files are made.
#[test]
fn files_are_what_others_read_best() {
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    for (input, reward) in [("q10", 1.0), ("q9", 2.0), ("q9a", 3.0)] {
        finished_group(&solver, 0, input, [reward, 0.0]);
    }
    run.commit_step("solver", &["q10", "q9", "q9a"]);
    for version in 1..3 {
        step(&run, version);
    }
    let (archive, path) = in_directory(&run);
    move_all(&run.store, &archive);
    let folder = path.join("solver/at_version=0");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let options = ReadOptionsBuilder::new().with_page_index().build();
    let open = || std::fs::File::open(&file).unwrap();
    let reader = SerializedFileReader::new_with_options(open(), options).unwrap();
    let metadata = reader.metadata();
    let group = metadata.row_group(0);
    let column =
        |name: &str| group.columns().iter().find(|column| column.column_path().string() == name).unwrap();
    assert!(matches!(column("prompt").compression(), Compression::ZSTD(_)));
    assert!(column("sample_id").bloom_filter_offset().is_some());
    assert!(
        column("policy_version").statistics().is_some_and(|statistics| statistics.min_bytes_opt().is_some())
    );
    assert!(metadata.column_index().is_some() && metadata.offset_index().is_some());

    let builder = ParquetRecordBatchReaderBuilder::try_new(open()).unwrap();
    let snapshot = run.store.snapshot();
    let live = snapshot.table("solver").unwrap().arrow_schema();
    for (column, field) in builder.schema().fields().iter().zip(live.fields()) {
        let type_in_memory = match column.data_type() {
            ArrowType::Utf8 if *field.data_type() == ArrowType::Utf8View => ArrowType::Utf8View,
            other => other.clone(),
        };
        let column = column.as_ref().clone().with_data_type(type_in_memory);
        assert_eq!(&column, field.as_ref(), "types, nullability and classes are those of the table");
    }
    let batches: Vec<_> = builder.build().unwrap().collect::<Result<_, _>>().unwrap();
    let ids = batches[0].column_by_name("sample_id").unwrap();
    let ids: Vec<&str> =
        ids.as_any().downcast_ref::<arrow_array::StringArray>().unwrap().iter().flatten().collect();
    assert_eq!(
        ids,
        ["q9_0_0", "q9_0_1", "q9a_0_0", "q9a_0_1", "q10_0_0", "q10_0_1"],
        "sorted as numbers are"
    );
    assert_eq!(compact(&batches[0]).unwrap().num_rows(), 6);
}

/// Rows whose values are far larger than what is read at a time; and one file is not written over another's.
#[test]
fn large_values_come_back_whole() {
    const ROWS: u64 = 40;
    let run = Run::with_tables();
    let solver = run.store.table("solver").unwrap();
    let tokens = |row: u64| -> Vec<i32> { (0..200_000).map(|at| (at * 7 + row as i32) % 50_000).collect() };
    for row in 0..ROWS {
        let text = format!("{row} ").repeat(20_000);
        let cells =
            [("prompt", text.as_str().into()), ("response", tokens(row).into()), ("reward", 1.0.into())];
        solver.insert(0, &format!("q{}_0_{}", row / 2, row % 2), cells).unwrap();
    }
    let groups: Vec<String> = (0..ROWS / 2).map(|group| format!("q{group}")).collect();
    run.commit_step("solver", &groups.iter().map(String::as_str).collect::<Vec<_>>());
    for version in 1..3 {
        step(&run, version);
    }
    let sql = "SELECT sum(length(prompt)) AS letters, sum(array_length(response)) AS tokens, \
               min(response[200000]) AS last, count(DISTINCT prompt) AS prompts FROM solver WHERE policy_version = 0";
    let before = rows(&run.session, sql);
    let (archive, _) = in_directory(&run);
    move_all(&run.store, &archive);
    let both = session(&run.store, &archive);
    assert_eq!(rows(&both, sql), before);
    let bytes = |columns: &str| {
        metric(
            &plan(&both, &format!("SELECT {columns} FROM solver WHERE policy_version = 0")),
            "bytes_scanned=",
        )
    };
    assert_ne!(bytes("reward"), bytes("reward, response"), "only what is projected is read");
}

/// The object store of a caller, with a name of his.
#[test]
fn an_archive_may_lie_in_an_object_store_that_the_caller_opened() {
    let run = stepped();
    let objects = Arc::new(object_store::memory::InMemory::new());
    let prefixed = object_store::prefix::PrefixStore::new(objects, Path::from("runs/17"));
    let archive = forebay_query::Archive::in_store("mine://runs/17/", Arc::new(prefixed));
    assert_eq!(archive.url(), "mine://runs/17");
    let all = rows(&run.session, EVERYTHING);
    move_all(&run.store, &archive);
    assert_eq!(rows(&session(&run.store, &archive), EVERYTHING), all);
}
