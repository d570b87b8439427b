//! Names that the planner did not find, and what is told of them.

use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;

use crate::catalog::Catalogs;
use crate::error::{Cause, Error, nearest};
use crate::travel::NOT_KEPT;

/// An error of planning a statement; `looks_back` where it names a table as it was.
pub(crate) fn told(
    error: DataFusionError,
    state: &SessionState,
    catalogs: &Catalogs,
    looks_back: bool,
) -> Error {
    let message = error.find_root().message().into_owned();
    if let Some(name) = quoted(&message, "Invalid function '", "'") {
        return function(name, state).into();
    }
    if let Some(name) = quoted(&message, "table function '", "' not found") {
        let mut known: Vec<&str> = state.table_functions().keys().map(String::as_str).collect();
        known.sort_unstable();
        let reason =
            format!("no function that gives a table is named {name}; there are {}", known.join(", "));
        return Cause::Query { reason }.into();
    }
    if let Some(name) = quoted(&message, "table '", "' not found") {
        return catalogs.missing(name).into();
    }
    let error = Error::from(error);
    match error.cause() {
        Cause::UnknownColumn { name, .. } if looks_back => {
            let last = name.rsplit('.').next().unwrap_or_default();
            match NOT_KEPT.contains(&last) {
                true => Cause::NotKept { name: name.clone(), all: NOT_KEPT.join(", ") }.into(),
                false => error,
            }
        }
        _ => error,
    }
}

/// What stands between two texts at the beginning of a message.
fn quoted<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(message.strip_prefix(before)?.split_once(after)?.0)
}

/// A function that is not there, or not as it was written.
fn function(name: &str, state: &SessionState) -> Cause {
    let reason = match state.window_functions().contains_key(name) {
        true => format!(
            "{name} is a function of windows, and wants OVER: {name}(…) OVER (PARTITION BY policy_version, group_key)"
        ),
        false => {
            let known = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
            let known = known.chain(state.window_functions().keys()).map(String::as_str);
            let close = nearest(name, known).map(|close| format!("; did you mean {close}?"));
            format!("no function is named {name}{}", close.unwrap_or_default())
        }
    };
    Cause::Query { reason }
}
