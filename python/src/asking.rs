//! What questions may use, and where versions go that leave the store: the keyword arguments of `forebay.open` that are for
//! `store.sql`.

use std::path::PathBuf;

use forebay::query::{Archive, ArchiveRule, Options};
use forebay::server::Asked;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::arguments;
use crate::failure::{Result, input};
use crate::options::{number, seconds, wrong};

/// Their names. Times are in seconds.
pub(crate) const NAMES: [&str; 5] =
    ["tokenizer", "archive", "archive_keep_versions", "query_time_max", "query_memory_bytes_max"];

/// The name of a tokenizer that is given without one.
const ONLY: &str = "default";

/// What a call of `forebay.open` says of questions.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    pub(crate) options: Options,
    /// Where versions are moved to, and which.
    pub(crate) moved: Option<(Archive, ArchiveRule)>,
}

/// What a call of `forebay.open` says of questions. `None` for a value leaves the default.
pub(crate) fn asking(given: Option<&Bound<'_, PyDict>>) -> Result<Asking> {
    let mut options = Options::default();
    let (mut place, mut kept) = (None, None);
    for (name, value) in given.into_iter().flatten().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "tokenizer" => tokenizers(&value)?
                .into_iter()
                .fold(options, |options, (name, file)| options.tokenizer(name, file)),
            "archive" => options.archive(place.insert(archive(&value)?)),
            "archive_keep_versions" => {
                kept = Some(number(&name, &value)?);
                options
            }
            "query_time_max" => options.statement_time_max(seconds(&name, &value)?),
            "query_memory_bytes_max" => {
                options.memory_bytes_max(usize::try_from(number(&name, &value)?).unwrap_or(usize::MAX))
            }
            _ => options, // the store's
        };
    }
    let moved = match (place, kept) {
        (_, None) => None,
        (_, Some(0)) => {
            return Err(input(
                "archive_keep_versions is 0; the current version always stays: 1 is the least",
            ));
        }
        (Some(archive), Some(kept)) => Some((archive, ArchiveRule::keep_versions(kept))),
        (None, Some(_)) => {
            return Err(input("archive_keep_versions moves versions into an archive; give archive too"));
        }
    };
    Ok(Asking { options, moved })
}

/// A file, or files by name.
fn tokenizers(value: &Bound<'_, PyAny>) -> Result<Vec<(String, PathBuf)>> {
    let expected = || wrong("tokenizer", "the path of a tokenizer.json, or such paths by name", value);
    if !value.is_instance_of::<PyMapping>() {
        return Ok(vec![(ONLY.to_owned(), value.extract().map_err(|_| expected())?)]);
    }
    let named = arguments::dict("tokenizer", "files by name", value)?;
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
