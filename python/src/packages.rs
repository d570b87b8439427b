//! The packages that arrays and tables come out through, each imported by the call that needs it.

use pyo3::prelude::*;

/// numpy, or an `ImportError` that says what to install.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    of_arrays(py, "numpy")
}

/// pyarrow, or an `ImportError` that says what to install.
pub(crate) fn pyarrow(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    of_arrays(py, "pyarrow")
}

fn of_arrays<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("forebay._arrays")?.getattr(name)?.call0()
}
