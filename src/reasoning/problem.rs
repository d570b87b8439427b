//! Problems and answers, as the data files hold them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A problem with its one right answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// What kind of problem it is.
    pub family: String,
    /// Its name, unique over all files; the input id of its samples.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// The right answer, to the letter.
    pub answer: String,
}

/// A problem with an answer that is right or wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CheckedAnswer {
    /// What kind of problem it is.
    pub family: String,
    /// Its name.
    pub id: String,
    /// What is asked.
    pub question: String,
    /// What was answered.
    pub answer: String,
    /// Whether that is right.
    pub right: bool,
}

/// Wrong answers to a warm-up problem that look right.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WrongAnswers {
    /// The problem.
    pub id: String,
    /// Answers that it does not have.
    pub wrong: Vec<String>,
}

/// Why a data file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(
    missing_docs,
    reason = "each variant's message is its documentation; fields are named for what they hold"
)]
pub enum DataError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} line {line} is not what it should be", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("{} holds nothing; export the data first (data/README.md)", path.display())]
    Empty { path: PathBuf },
    #[error("{} is not a vocabulary: {reason}", path.display())]
    Vocabulary { path: PathBuf, reason: String },
}

/// Reads a file of JSON lines.
///
/// # Errors
/// When it cannot be read, is empty, or a line of it is malformed; the line is named.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, DataError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DataError::Unreadable { path: path.to_owned(), source })?;
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let parsed = serde_json::from_str(line);
        rows.push(parsed.map_err(|source| DataError::Line {
            path: path.to_owned(),
            line: index + 1,
            source,
        })?);
    }
    if rows.is_empty() {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    Ok(rows)
}

/// The families, each once, in the order of their first problem.
pub fn families<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut families: Vec<&str> = Vec::new();
    for name in names {
        if !families.contains(&name) {
            families.push(name);
        }
    }
    families
}
