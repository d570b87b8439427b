//! Arguments of calls: each that is of another kind is refused by its name, with what was given.
//!
//! Python's own words (`'str' object cannot be interpreted as an integer`) name neither, and are no error of this package's.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::consumer::ConsumerName;
use crate::options::wrong;
use crate::rows::Rows;

/// Readers of arguments, each of which names its own.
macro_rules! arguments {
    ($($name:ident: $type:ty = $expected:literal;)*) => {$(
        pub(crate) fn $name(given: &Bound<'_, PyAny>) -> PyResult<$type> {
            let name = stringify!($name).trim_end_matches("_or_none");
            given.extract().map_err(|_| wrong(name, $expected, given).into())
        }
    )*};
}

arguments! {
    address: String = "a text such as \"unix:///run/fb.sock\" or \"grpc://host:7070\"";
    agent: Option<String> = "a text or None";
    column: String = "the name of a column";
    columns: Option<Vec<String>> = "a list of names of columns, or None";
    early: Option<usize> = "a whole number of groups, or None";
    exact: bool = "True or False";
    exact_or_none: Option<bool> = "True or False";
    force: bool = "True or False";
    idempotency_tokens: Option<Vec<u128>> = "a list with one whole number a row, or None";
    key: String = "the key of a group";
    kind: String = "\"task\" or \"trainer\"";
    lazy: Option<Vec<String>> = "a list of names of columns, or None";
    members: u32 = "a whole number, 0 or more";
    name: String = "a text";
    number: u64 = "the number of a step";
    owner: Option<String> = "a text or None";
    parents: Option<Vec<Option<String>>> = "a list with one sample id or None a row, or None";
    policy: Option<String> = "the name of a policy, or None";
    policy_version: u64 = "a whole number, 0 or more";
    purpose: Option<String> = "a text or None";
    rank: Option<u32> = "a whole number, 0 or more";
    reason: String = "a text";
    sample_ids: Vec<String> = "a list of sample ids, one a row";
    shared: Option<Vec<String>> = "a list of names of columns, or None";
    size: Option<usize> = "a whole number of rows";
    state_keys: Option<Vec<String>> = "a list of texts, or None";
    statement: String = "a text in SQL";
    table: String = "the name of a table";
    tables: Vec<String> = "a list of names of tables";
    tokens: Option<(String, u64)> = "(column, number of tokens), or None";
    trajectory: u32 = "a whole number, 0 or more";
    version: u64 = "a whole number, 0 or more";
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

/// A consumer by object or by name.
pub(crate) fn consumer<'py>(given: &Bound<'py, PyAny>) -> PyResult<ConsumerName<'py>> {
    given.extract().map_err(|_| wrong("consumer", "a consumer or the name of one", given).into())
}

/// A dict, as the argument of that name.
pub(crate) fn dict<'a, 'py>(
    name: &str,
    expected: &str,
    given: &'a Bound<'py, PyAny>,
) -> PyResult<&'a Bound<'py, PyDict>> {
    given.cast::<PyDict>().map_err(|_| wrong(name, expected, given).into())
}

/// The name of a column in `[]`, which is no argument that has one.
pub(crate) fn named_column(given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.extract().map_err(|_| wrong("what stands in []", "the name of a column", given).into())
}
