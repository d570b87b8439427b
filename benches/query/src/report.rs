//! From times to rows.

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use datafusion::arrow::compute::{cast, sum as array_sum};
use datafusion::arrow::datatypes::DataType;
use forebay_benches::{Goal, Row};

use crate::data::FirstQuery;
use crate::questions::{QUESTIONS, Question};
use crate::{Answered, Outcome, Scale};

/// The sum of every number of an answer.
pub(crate) fn sum(batches: &[RecordBatch]) -> Outcome<f64> {
    let mut total = 0.0;
    for column in batches.iter().flat_map(RecordBatch::columns) {
        if column.data_type().is_numeric() {
            let numbers = cast(column, &DataType::Float64)?;
            total += array_sum(numbers.as_primitive::<Float64Type>()).unwrap_or(0.0);
        }
    }
    Ok(total)
}

/// Fails unless all engines gave the same answer.
pub(crate) fn agree(question: usize, answers: &[(String, Answered)]) -> Outcome<()> {
    let Some(((_, first), others)) = answers.split_first() else { return Ok(()) };
    for (name, answer) in others {
        let close = (answer.sum - first.sum).abs() <= 1e-4 * first.sum.abs().max(1.0);
        if answer.rows != first.rows || !close {
            let (ours, theirs) = ((first.rows, first.sum), (answer.rows, answer.sum));
            return Err(format!("{:?}: we have {ours:?}, {name} {theirs:?}", QUESTIONS[question].name).into());
        }
    }
    Ok(())
}

/// The middle of the warm times, in milliseconds.
fn warm(times: &[Duration]) -> f64 {
    let mut times: Vec<Duration> = times.get(1..).unwrap_or_default().to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

fn cold(times: &[Duration]) -> f64 {
    times.first().map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// `times`: an engine each, ours first; of it a question each; of it a repetition each.
pub(crate) fn rows(
    scale: &Scale,
    names: &[String],
    times: &[Vec<Vec<Duration>>],
    first: [FirstQuery; 2],
    print: &mut dyn FnMut(Row),
) {
    let rows = scale.rows;
    let firsts = [
        ("of the program, 1 row".to_owned(), Goal::None),
        (format!("on an open store, {rows} rows"), Goal::AtMost(20.0)),
    ];
    for ((which, goal), FirstQuery { time, page_reads }) in firsts.into_iter().zip(first) {
        let name = format!("first query {which}, {page_reads} pages of the program read from disk");
        print(Row::new(name, (time.as_secs_f64() * 1e3, "ms"), (20.0, "the goal"), goal));
    }
    let place = |name: &str| names.iter().position(|other| other == name);
    let asked = |question: &usize| !times[0][*question].is_empty();
    for (question, Question { name, .. }) in QUESTIONS.iter().enumerate().filter(|(at, _)| asked(at)) {
        let own = warm(&times[0][question]);
        for (engine, peer) in names.iter().enumerate().skip(1) {
            let limit = warm(&times[engine][question]);
            print(Row::new(
                format!("{name}, {rows} rows, warm"),
                (own, "ms"),
                (limit, leak(peer)),
                Goal::None,
            ));
        }
        let better = ["DuckDB, own tables", "DataFusion on Arrow"].into_iter().filter_map(place);
        let better = better.map(|engine| warm(&times[engine][question])).fold(f64::INFINITY, f64::min);
        print(Row::new(
            format!("{name}, {rows} rows, warm"),
            (own, "ms"),
            (better, "the better of DuckDB's own tables and DataFusion on Arrow"),
            Goal::RatioAtMost(1.5),
        ));
        print(Row::new(
            format!("{name}, {rows} rows, cold"),
            (cold(&times[0][question]), "ms"),
            (own, "the same, warm"),
            Goal::None,
        ));
    }
    for (peer, goal) in [("DuckDB, own tables", 1.0), ("DataFusion on Arrow", 1.1)] {
        let Some(engine) = place(peer).filter(|_| (0..QUESTIONS.len()).all(|at| asked(&at))) else {
            continue;
        };
        let mean = |engine: usize| {
            let logs: f64 = times[engine].iter().map(|times| warm(times).ln()).sum();
            (logs / QUESTIONS.len() as f64).exp()
        };
        print(Row::new(
            format!("six questions, {rows} rows, warm, geometric mean"),
            (mean(0), "ms"),
            (mean(engine), leak(peer)),
            Goal::RatioAtMost(goal),
        ));
    }
}

/// Names live as long as the program: there are five of them.
fn leak(name: &str) -> &'static str {
    Box::leak(name.to_owned().into_boxed_str())
}
