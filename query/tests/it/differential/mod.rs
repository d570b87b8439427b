//! The same questions to DuckDB and to us, on the same data.
//!
//! DuckDB's answers are committed beside the questions, so this runs without it. After a change to the questions or the
//! data they are made anew, with an interpreter that has the `duckdb` package:
//! `FOREBAY_PYTHON=python3 FOREBAY_WRITE_GOLDEN=1 cargo test -p forebay-query --test it differential`. With the
//! interpreter alone, `cargo test -p forebay-query --test it differential -- --ignored` asks random questions of both
//! (`FOREBAY_SEED`, `FOREBAY_CASES`).

mod data;
mod dice;
mod random;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;
use forebay_query::{Answer, Format, Options, Session};
use parquet::arrow::ArrowWriter;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use self::data::Data;

const QUESTIONS: &str = include_str!("questions.sql");
const ANSWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/differential/answers.json");
/// Random questions among the committed ones.
const RANDOM_COMMITTED: u64 = 120;

/// One question, in our words and, where they differ, in DuckDB's.
struct Question {
    name: String,
    ours: String,
    theirs: String,
}

/// What DuckDB said.
#[derive(Serialize, Deserialize)]
struct Answered {
    sql: String,
    rows: Vec<Vec<Json>>,
}

fn questions() -> Vec<Question> {
    let mut questions: Vec<Question> = Vec::new();
    for block in QUESTIONS.split("-- ").skip(1) {
        let (name, sql) = block.split_once('\n').unwrap();
        let sql = sql.trim().trim_end_matches(';').to_owned();
        if let Some(name) = name.strip_prefix("duckdb: ") {
            let question = questions.iter_mut().find(|question| question.name == name);
            question.unwrap_or_else(|| panic!("no question is named {name}")).theirs = sql;
        } else {
            assert!(questions.iter().all(|question| question.name != name), "{name} twice");
            questions.push(Question { name: name.to_owned(), theirs: sql.clone(), ours: sql });
        }
    }
    questions.extend((0..RANDOM_COMMITTED).map(random));
    questions
}

fn random(seed: u64) -> Question {
    let (ours, theirs) = random::question(seed);
    Question { name: format!("random {seed}"), ours, theirs }
}

/// Asks DuckDB, over files with the content of the tables.
fn ask_duckdb(python: &str, session: &Session, questions: &[Question]) -> Vec<Vec<Vec<Json>>> {
    let directory = tempfile::tempdir().unwrap();
    for (table, file) in [("solver", "solver"), ("checker", "checker"), ("system.steps", "steps")] {
        export(session, table, &directory.path().join(format!("{file}.parquet")));
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/differential/answers.py");
    let mut child = Command::new(python)
        .arg(script)
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{python}: {error}"));
    let statements: Vec<&str> = questions.iter().map(|question| question.theirs.as_str()).collect();
    let input = serde_json::to_vec(&statements).unwrap();
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{python} {script} failed; has it the duckdb package?");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn export(session: &Session, table: &str, file: &Path) {
    let answer = session.sql_blocking(&format!("SELECT * FROM {table}")).unwrap();
    let mut writer = ArrowWriter::try_new(std::fs::File::create(file).unwrap(), answer.schema, None).unwrap();
    answer.batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

/// Our rows, values in the order of the columns.
fn ask(session: &Session, sql: &str) -> forebay_query::Result<Vec<Vec<Json>>> {
    let answer = session.sql_blocking(sql)?;
    let mut document = Vec::new();
    answer.render(Format::Json, &mut document, None).unwrap();
    let rows: Vec<serde_json::Map<String, Json>> = serde_json::from_slice(&document).unwrap();
    let names: Vec<&String> = answer.schema.fields().iter().map(|field| field.name()).collect();
    let mut rows: Vec<Vec<Json>> =
        rows.into_iter().map(|row| names.iter().map(|name| row[*name].clone()).collect()).collect();
    not_finite(&answer, |row, column, number| rows[row][column] = Json::String(number.to_string()));
    Ok(rows)
}

/// Tells of the numbers that JSON has no word for, by their row and column.
fn not_finite(answer: &Answer, mut tell: impl FnMut(usize, usize, f64)) {
    let mut before = 0;
    for batch in &answer.batches {
        let floats =
            batch.columns().iter().enumerate().filter(|(_, values)| values.data_type().is_floating());
        for (column, values) in floats {
            let values = arrow::compute::cast(values, &DataType::Float64).unwrap();
            for (row, number) in values.as_primitive::<Float64Type>().iter().enumerate() {
                if let Some(number) = number.filter(|number| !number.is_finite()) {
                    tell(before + row, column, number);
                }
            }
        }
        before += batch.num_rows();
    }
}

/// Numbers may differ by rounding where one of them is a float: sums run in another order. DuckDB shows `-0.0` where we show
/// `0.0`, which are equal.
fn same(ours: &Json, theirs: &Json) -> bool {
    match (ours, theirs) {
        (Json::Number(ours), Json::Number(theirs)) if !ours.is_f64() && !theirs.is_f64() => ours == theirs,
        (Json::Array(ours), Json::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| same(a, b))
        }
        (Json::Number(ours), Json::Number(theirs)) => {
            let (a, b) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
            a == b || (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1e-3)
        }
        _ => ours == theirs,
    }
}

fn difference(ours: &[Vec<Json>], theirs: &[Vec<Json>]) -> Option<String> {
    if ours.len() != theirs.len() {
        return Some(format!("we have {} rows, DuckDB {}: {ours:?}\n{theirs:?}", ours.len(), theirs.len()));
    }
    let differ =
        |(a, b): &(&Vec<Json>, &Vec<Json>)| !same(&Json::Array((*a).clone()), &Json::Array((*b).clone()));
    ours.iter().zip(theirs).find(differ).map(|(a, b)| format!("ours   {a:?}\nDuckDB {b:?}"))
}

fn compare(session: &Session, question: &Question, theirs: &[Vec<Json>]) -> Option<String> {
    let found = match ask(session, &question.ours) {
        Ok(ours) => difference(&ours, theirs),
        Err(error) => Some(error.to_string()),
    };
    found.map(|difference| format!("{}\n{}\n{difference}", question.name, question.ours))
}

// FX-25
#[test]
fn answers_are_duckdbs() {
    let data = Data::new();
    let questions = questions();
    assert!(questions.len() >= 100);
    if std::env::var_os("FOREBAY_WRITE_GOLDEN").is_some() {
        let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let answers = ask_duckdb(&python, &data.session, &questions);
        let named = questions
            .iter()
            .zip(answers)
            .map(|(question, rows)| (question.name.clone(), Answered { sql: question.theirs.clone(), rows }));
        let named: BTreeMap<String, Answered> = named.collect();
        std::fs::write(ANSWERS, serde_json::to_string(&named).unwrap() + "\n").unwrap();
    }
    let answers: BTreeMap<String, Answered> =
        serde_json::from_str(&std::fs::read_to_string(ANSWERS).unwrap()).unwrap();
    let mut differences = Vec::new();
    for question in &questions {
        let answered = answers.get(&question.name).filter(|answered| answered.sql == question.theirs);
        let answered =
            answered.unwrap_or_else(|| panic!("{}: the answers are of other questions", question.name));
        differences.extend(compare(&data.session, question, &answered.rows));
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n\n"));
    let rows: usize = answers.values().map(|answered| answered.rows.len()).sum();
    assert!(rows > 1000, "questions that nothing answers say nothing");
}

/// Questions whose rows are all archived have the same answers where the store is gone.
#[test]
fn answers_of_an_archive_alone_are_duckdbs() {
    let data = Data::new();
    let archive = data.archived();
    let alone = Session::of_archive(&archive, &Options::default()).unwrap();
    let answers: BTreeMap<String, Answered> =
        serde_json::from_str(&std::fs::read_to_string(ANSWERS).unwrap()).unwrap();
    let archived: Vec<Question> =
        questions().into_iter().filter(|question| question.name.starts_with("archived: ")).collect();
    assert!(archived.len() >= 2);
    for question in &archived {
        let theirs = &answers[&question.name].rows;
        assert!(!theirs.is_empty());
        assert_eq!(compare(&alone, question, theirs), None);
    }
}

/// All questions have these answers too where half of the rows are archived, and however rows come in batches.
#[test]
fn answers_are_duckdbs_where_half_is_archived() {
    let data = Data::new();
    let archive = data.archived();
    let answers: BTreeMap<String, Answered> =
        serde_json::from_str(&std::fs::read_to_string(ANSWERS).unwrap()).unwrap();
    let options = Options::default().archive(&archive);
    let sessions =
        [options.clone(), options.batch_rows(3).partitions(3)].map(|options| data.session(&options));
    let mut differences = Vec::new();
    for question in &questions() {
        let theirs = &answers[&question.name].rows;
        differences.extend(sessions.iter().filter_map(|session| compare(session, question, theirs)));
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n\n"));
}

/// Random questions asked of both.
#[test]
#[ignore = "needs FOREBAY_PYTHON with duckdb"]
fn random_questions_long() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (seed, cases) = (number("FOREBAY_SEED", 1_000_u64), number("FOREBAY_CASES", 500_u64));
    eprintln!("FOREBAY_SEED={seed} FOREBAY_CASES={cases}");
    let data = Data::new();
    let questions: Vec<Question> = (seed..seed + cases).map(random).collect();
    let answers = ask_duckdb(&std::env::var("FOREBAY_PYTHON").unwrap(), &data.session, &questions);
    let found: Vec<String> = questions
        .iter()
        .zip(&answers)
        .filter_map(|(question, theirs)| compare(&data.session, question, theirs))
        .collect();
    assert!(found.is_empty(), "{} differ:\n{}", found.len(), found.join("\n\n"));
}
