//! What questions may use: the keyword arguments of `forebay.open` that are for `store.sql`.

use std::path::PathBuf;

use forebay::query::{Archive, Options};
use forebay::server::Asked;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Result;
use crate::options::{number, seconds, wrong};

/// Their names. Times are in seconds.
pub(crate) const NAMES: [&str; 4] = ["tokenizer", "archive", "query_time_max", "query_memory_bytes_max"];

/// The name of a tokenizer that is given without one.
const ONLY: &str = "default";

/// The options for questions that a call of `forebay.open` gives. `None` for a value leaves the default.
pub(crate) fn options(given: Option<&Bound<'_, PyDict>>) -> Result<Options> {
    let mut options = Options::default();
    for (name, value) in given.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "tokenizer" => tokenizers(&value)?
                .into_iter()
                .fold(options, |options, (name, file)| options.tokenizer(name, file)),
            "archive" => options.archive(&archive(&value)?),
            "query_time_max" => options.statement_time_max(seconds(&name, &value)?),
            "query_memory_bytes_max" => {
                options.memory_bytes_max(usize::try_from(number(&name, &value)?).unwrap_or(usize::MAX))
            }
            _ => options, // the store's
        };
    }
    Ok(options)
}

/// A file, or files by name.
fn tokenizers(value: &Bound<'_, PyAny>) -> Result<Vec<(String, PathBuf)>> {
    let expected = || wrong("tokenizer", "the path of a tokenizer.json, or such paths by name", value);
    let Ok(named) = value.cast::<PyDict>() else {
        return Ok(vec![(ONLY.to_owned(), value.extract().map_err(|_| expected())?)]);
    };
    let each = named
        .iter()
        .map(|(name, file)| -> PyResult<(String, PathBuf)> { Ok((name.extract()?, file.extract()?)) });
    each.collect::<PyResult<_>>().map_err(|_| expected())
}

/// Where versions lie that left the store: a path, or a URL.
fn archive(value: &Bound<'_, PyAny>) -> Result<Archive> {
    let place: PathBuf = value.extract().map_err(|_| wrong("archive", "a path or a URL", value))?;
    let place = place.to_str().ok_or_else(|| wrong("archive", "a path or a URL of UTF-8", value))?;
    Archive::open(place).map_err(|error| Asked::failure(&error).into())
}
