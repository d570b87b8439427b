//! Questions to a store, beside other engines on the same data, in one run.
//!
//! `data` fills a store and writes the same rows to Parquet files; `questions` has the six; `ours`, `arrow` (DataFusion on
//! Arrow and on Parquet) and `python` (DuckDB and polars, by `peers.py`, where an interpreter has them) answer; `report`
//! condenses.
//!
//! Rules: nobody caches answers, and each repetition asks after a thousand more rows, which every engine was given. The
//! first repetition is the cold one. Times are of the answer whole, as Arrow or as the engine's own rows. Engines take
//! turns, so that a busy machine slows all. Answers are compared by their number of rows and the sum of their numbers.

mod arrow;
mod beside;
mod data;
mod ours;
mod python;
mod questions;
mod report;

use std::error::Error;
use std::time::Duration;

use forebay_benches::Row;

use self::data::Data;
use self::questions::QUESTIONS;

/// What a benchmark ends in. Nothing here is caught: a failure ends the run.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How much is asked.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Rows of the solver's table; the checker's has one an input, an eighth.
    pub rows: usize,
    /// How often each question is asked of each engine.
    pub repetitions: usize,
    /// The interpreter that has `duckdb`, `polars` and `pyarrow`.
    pub python: String,
    /// Asks no other engine.
    pub alone: bool,
    /// Asks only the question, or makes only the measure, that is called so or has that in its name.
    pub only: Option<String>,
}

impl Default for Scale {
    fn default() -> Self {
        Scale { rows: 100_000, repetitions: 7, python: "python3".to_owned(), alone: false, only: None }
    }
}

impl Scale {
    /// Whether what has that name is wanted.
    fn asks(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}

/// One engine's answer: how long it took, and what tells it from another.
#[derive(Clone, Copy, Debug)]
struct Answered {
    time: Duration,
    rows: usize,
    sum: f64,
}

/// An engine with the data in it.
trait Engine {
    fn name(&self) -> &str;
    /// Takes the rows of a Parquet file of the solver's table in.
    fn add(&mut self, file: &std::path::Path) -> Outcome<()>;
    fn ask(&mut self, question: usize) -> Outcome<Answered>;
}

/// Asks everything, and gives each row to `print`. What an engine says of itself goes to `tell`.
///
/// # Errors
/// The first failure, also of two engines to agree.
pub fn run(scale: &Scale, print: &mut dyn FnMut(Row), tell: &mut dyn FnMut(String)) -> Outcome<()> {
    let mut data = Data::new(scale, tell)?;
    let first = data.first_queries()?;
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(ours::Ours::new(data.store())?)];
    if !scale.alone {
        engines.push(Box::new(arrow::DataFusion::on_arrow(&data)?));
        engines.push(Box::new(arrow::DataFusion::on_parquet(&data)?));
        engines.extend(python::peers(scale, &data, tell)?);
    }
    let mut times = vec![vec![Vec::new(); QUESTIONS.len()]; engines.len()];
    for repetition in 0..scale.repetitions {
        let file = data.grow(repetition)?;
        for engine in &mut engines {
            engine.add(&file)?;
        }
        for question in (0..QUESTIONS.len()).filter(|at| scale.asks(QUESTIONS[*at].name)) {
            let mut answers = Vec::new();
            for (engine, times) in engines.iter_mut().zip(&mut times) {
                let answer = engine.ask(question)?;
                times[question].push(answer.time);
                answers.push((engine.name().to_owned(), answer));
            }
            report::agree(question, &answers)?;
        }
    }
    let names: Vec<String> = engines.iter().map(|engine| engine.name().to_owned()).collect();
    report::rows(scale, &names, &times, first, print);
    drop(engines);
    if scale.asks(beside::NAME) { beside::measure(scale, &mut data, print) } else { Ok(()) }
}
