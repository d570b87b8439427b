//! Arguments of calls: each that is of another kind is refused by its name, with what was given.
//!
//! Python's own words (`'str' object cannot be interpreted as an integer`) name neither, and are no error of this package's.

use std::num::NonZeroU32;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::consumer::ConsumerName;
use crate::options::wrong;
use crate::rows::{Position, Rows};
use crate::table_name::TableName;

/// Readers of arguments, each of which names its own, by its own name or by another that is taken here.
macro_rules! arguments {
    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $other:literal) => { $other };
    ($($name:ident $(as $other:literal)?: $type:ty = $expected:literal;)*) => {$(
        pub(crate) fn $name(given: &Bound<'_, PyAny>) -> PyResult<$type> {
            given.extract().map_err(|_| wrong(arguments!(@name $name $($other)?), $expected, given).into())
        }
    )*};
}

arguments! {
    address: String = "a text such as \"unix:///run/fb.sock\" or \"grpc://host:7070\"";
    agent: Option<String> = "a text or None";
    all: bool = "True or False";
    by_arrival: bool = "True or False";
    column: String = "the name of a column";
    columns: Option<Vec<String>> = "a list of names of columns, or None";
    early: Option<usize> = "a whole number of groups, or None";
    exact: bool = "True or False";
    exclude: bool = "True or False";
    excluded: Option<String> = "a text, the reason, or None";
    exact_or_none as "exact": Option<bool> = "True or False";
    force: bool = "True or False";
    gang: String = "a text, the name of the ranks' gang";
    idempotency_tokens: Option<Vec<u128>> = "a list with one whole number a row, or None";
    in_place: bool = "True or False";
    is_lazy as "lazy": bool = "True or False";
    key: String = "the key of a group";
    keys: Vec<String> = "a list of keys of objects";
    kind: String = "\"task\" or \"trainer\"";
    late: bool = "True or False";
    layout: String = "\"padded\", \"nested\" or \"packed\"";
    lazy: Option<Vec<String>> = "a list of names of columns, or None";
    members: u32 = "a whole number, 0 or more";
    name: String = "a text";
    newest: bool = "True or False";
    next_attempt: bool = "True or False";
    number: u64 = "the number of a step";
    object_key as "key": String = "a text, the key of an object";
    origin: Option<String> = "a text, PEER/ROUND, or None";
    outstanding: usize = "a whole number of claims, 1 or more";
    owner: Option<String> = "a text or None";
    pad: f64 = "a number";
    parents: Option<Vec<Option<String>>> = "a list with one sample id or None a row, or None";
    partial: bool = "True or False";
    parts: Vec<Py<Rows>> = "a list of rows, each what insert() or find() gave";
    path: PathBuf = "a directory";
    policy: Option<String> = "the name of a policy, or None";
    policy_version: u64 = "a whole number, 0 or more";
    purpose: Option<String> = "a text or None";
    peeked as "rows": usize = "a whole number from 1 to 1000";
    rank: Option<u32> = "a whole number, 0 or more";
    ready_for: Option<String> = "the name of a consumer, or None";
    reason: String = "a text";
    replayed as "step": u64 = "the number of a step";
    rollouts: NonZeroU32 = "a whole number of rows a sample id, 1 or more";
    sample_id: String = "a text, the id of a sample";
    sample_ids: Vec<String> = "a list of sample ids, one a row";
    set_objects: bool = "True or False";
    shared: Option<Vec<String>> = "a list of names of columns, or None";
    size: Option<usize> = "a whole number of rows";
    split: String = "\"same\" or \"balanced\"";
    state_keys: Option<Vec<String>> = "a list of texts, or None";
    statement: String = "a text in SQL";
    table: String = "the name of a table";
    tables_or_none as "tables": Option<Vec<String>> = "a list of names of tables, or None";
    tables: Vec<String> = "a list of names of tables";
    tier: String = "\"host\" or \"disk\"";
    to: PathBuf = "a directory";
    to_step as "step": u64 = "the number of a step, or 0 for none";
    tokens: Option<(String, u64)> = "(column, number of tokens), or None";
    trajectory: u32 = "a whole number, 0 or more";
    version_spans: Option<Vec<Vec<(u32, u64)>>> = "a list with one list of pairs (START, VERSION) a row, or None";
    version: u64 = "a whole number, 0 or more";
    version_or_none as "version": Option<u64> = "a whole number, 0 or more, or None";
    versions_kept: Option<u64> = "a whole number, 1 or more, or None";
    versions_up_to: Option<u64> = "a whole number, 0 or more, or None";
    weights: Option<String> = "a text or None";
    world: Option<u32> = "a whole number, 1 or more";
}

/// Rows of a table.
pub(crate) fn rows(given: &Bound<'_, PyAny>) -> PyResult<Py<Rows>> {
    let rows = given
        .cast::<Rows>()
        .map_err(|_| wrong("rows", "what insert() or find() gave, or a micro-batch's rows", given))?;
    Ok(rows.clone().unbind())
}

/// The same, or none.
pub(crate) fn rows_or_none(given: &Bound<'_, PyAny>) -> PyResult<Option<Py<Rows>>> {
    if given.is_none() { Ok(None) } else { rows(given).map(Some) }
}

/// What is told how far something is.
pub(crate) fn progress(given: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    called("progress", given)
}

/// What is told of a step's commit.
pub(crate) fn log(given: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    called("log", given)
}

fn called(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    match given.is_none() || given.is_callable() {
        true => Ok((!given.is_none()).then(|| given.clone().unbind())),
        false => Err(wrong(name, "a function, or None", given).into()),
    }
}

/// A consumer by object or by name.
pub(crate) fn consumer<'py>(given: &Bound<'py, PyAny>) -> PyResult<ConsumerName<'py>> {
    given.extract().map_err(|_| wrong("consumer", "a consumer or the name of one", given).into())
}

/// A table by object or by name.
pub(crate) fn table_or_name<'py>(given: &Bound<'py, PyAny>) -> PyResult<TableName<'py>> {
    given.extract().map_err(|_| wrong("table", "a table or the name of one", given).into())
}

/// A dict, or any other mapping as one, as the argument of that name.
pub(crate) fn dict<'py>(
    name: &str,
    expected: &str,
    given: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(dict) = given.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    let mapping = given.cast::<PyMapping>().map_err(|_| PyErr::from(wrong(name, expected, given)))?;
    let dict = PyDict::new(given.py());
    dict.update(mapping)?;
    Ok(dict)
}

/// Rows in `[]`, by their places.
pub(crate) fn position<'py>(given: &Bound<'py, PyAny>) -> PyResult<Position<'py>> {
    given.extract().map_err(|_| wrong("what stands in []", "the place of a row, or a slice", given).into())
}

/// The name of a column in `[]`, which is no argument that has one.
pub(crate) fn named_column(given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.extract().map_err(|_| wrong("what stands in []", "the name of a column", given).into())
}
