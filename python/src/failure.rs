//! What goes wrong, and the Python exception that it becomes.
//!
//! The exceptions are classes of `forebay.errors`, written in Python so that they can have two parents (an input error is a
//! `ValueError`, too). A kind that the Python side does not know becomes their common parent.

use forebay::{client, store};
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Why a call fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store said so, wherever it is.
    Store(client::Error),
    /// Found here: the class of `forebay.errors`, and the message.
    Here(&'static str, String),
    /// Python said so.
    Python(PyErr),
}

/// The result of what may fail.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// An argument that has to be mended.
pub(crate) fn input(message: impl Into<String>) -> Failure {
    Failure::Here("InputError", message.into())
}

/// A legal call at the wrong moment.
pub(crate) fn state(message: impl Into<String>) -> Failure {
    Failure::Here("StateError", message.into())
}

/// A wait that is over.
pub(crate) fn timeout(message: impl Into<String>) -> Failure {
    Failure::Here("WaitTimeout", message.into())
}

/// A store that was closed by its owner.
pub(crate) fn closed(place: &str) -> Failure {
    Failure::Here("ClosedError", format!("the store at {place} was closed; open it again"))
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Failure::Store(error.into())
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        Failure::Store(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl<'a, 'py> From<pyo3::CastError<'a, 'py>> for Failure {
    fn from(error: pyo3::CastError<'a, 'py>) -> Self {
        Failure::Python(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => {
                let (class, cause) = (class_of(error.kind()), error.cause());
                if !OF_THE_WIRE.contains(&cause) {
                    return raise(class, message(&error), cause);
                }
                let raised = raise(class, error.to_string(), cause);
                if let Some(source) = std::error::Error::source(&error) {
                    let source = PyConnectionError::new_err(message(source));
                    Python::attach(|py| raised.set_cause(py, Some(source)));
                }
                raised
            }
            Failure::Here(class, message) => raise(class, message, ""),
            Failure::Python(error) => error,
        }
    }
}

/// Causes whose messages say all that a person needs; what the transport says of them is for who looks at `__cause__`.
const OF_THE_WIRE: [&str; 6] =
    ["Connection", "Deadline", "Forbidden", "Protocol", "TooLarge", "Unauthenticated"];

fn class_of(kind: store::Kind) -> &'static str {
    match kind {
        store::Kind::Retry => "RetryError",
        store::Kind::Input => "InputError",
        store::Kind::State => "StateError",
        store::Kind::Capacity => "CapacityError",
        store::Kind::Corrupt => "CorruptError",
        store::Kind::Closed => "ClosedError",
    }
}

/// An error with the reasons that it came of, except one that only says it again.
fn message(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(reason) = source {
        let said = reason.to_string();
        if !text.ends_with(&said) {
            text.push_str(&format!(": {said}"));
        }
        source = reason.source();
    }
    text
}

fn raise(class: &str, message: String, cause: &str) -> PyErr {
    let raised = Python::attach(|py| {
        let class = py.import("forebay.errors")?.getattr(class)?.cast_into::<PyType>()?;
        let error = PyErr::from_type(class, (message,));
        error.value(py).setattr("cause", cause)?;
        Ok(error)
    });
    raised.unwrap_or_else(|failed: PyErr| failed)
}
